//! Periods of the calendar in a time zone, for
//! [`Algorithm::CalendarWindow`](crate::Algorithm::CalendarWindow).
//! How a window counts in such a period is in `model/algorithm/calendar_window.rs`.

mod anchor;
mod periods;
mod unit;
mod zone;

pub use anchor::Anchor;
pub(crate) use periods::{Periods, Schedule};
pub use unit::CalendarUnit;
pub use zone::TimeZone;
