//! Periods of the calendar in a time zone, for
//! [`Algorithm::CalendarWindow`](crate::Algorithm::CalendarWindow).

mod anchor;
mod periods;
mod unit;
mod zone;

pub use anchor::Anchor;
pub(crate) use periods::{Periods, Schedule};
pub use unit::CalendarUnit;
pub use zone::TimeZone;
