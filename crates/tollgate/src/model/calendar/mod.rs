//! Periods of the calendar in a time zone, for
//! [`Algorithm::CalendarWindow`](crate::Algorithm::CalendarWindow).

mod periods;
mod unit;
mod zone;

pub(crate) use periods::Periods;
pub use unit::CalendarUnit;
pub use zone::TimeZone;
