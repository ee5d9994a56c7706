//! Periods of the calendar in a time zone, for
//! [`Algorithm::CalendarWindow`](crate::Algorithm::CalendarWindow).
//! How a window counts in such a period is in `algorithm/calendar_window.rs`.

// A zone remembers the periods that it computed last, periods begin at an anchor, and an anchor is a
// time in a zone: the three files know each other.

mod anchor;
mod periods;
mod unit;
mod zone;

pub use anchor::Anchor;
pub(crate) use periods::{Periods, Schedule};
pub use unit::CalendarUnit;
pub use zone::TimeZone;
