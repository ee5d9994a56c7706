//! One counter per period of a calendar: a local day, week, month or year.
//!
//! The state is that of the other [windows](super::window). The end of the period follows from the
//! calendar of the policy, which keeps the state as small as the others.

use super::{
    Algorithm,
    text::{arguments, shown},
    window::{Opening, Window},
};
use crate::{Error, Policy};

pub(crate) type State = Window<Calendar>;

/// Opens windows with the periods of a calendar.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Calendar;

impl Opening for Calendar {
    #[inline]
    fn settle(policy: &Policy, start_us: u64, count: u64, now_us: u64) -> (u64, u64, bool) {
        let periods = policy.periods(now_us);
        let is_old = count == 0 || start_us < periods.begin;
        if !is_old && start_us == periods.close {
            // The next period, because the clock went back a little.
            return (start_us, count, false);
        }
        // Units of the current period, of one that another calendar started within it, or of one
        // that lies impossibly far ahead.
        (
            periods.begin,
            if is_old { 0 } else { count },
            !is_old && start_us > periods.close,
        )
    }

    #[inline]
    fn end_us(policy: &Policy, start_us: u64, now_us: u64) -> u64 {
        let periods = policy.periods(now_us);
        if start_us == periods.close {
            periods.after
        } else {
            periods.close
        }
    }

    fn start_us(policy: &Policy, left_us: u64, now_us: u64) -> u64 {
        let periods = policy.periods(now_us);
        let is_next = now_us + left_us > periods.close;
        if is_next {
            periods.close
        } else {
            periods.begin
        }
    }

    fn stored(policy: &Policy, start_us: u64) -> u64 {
        policy.periods(start_us).close
    }

    /// Nothing: the numbers of the periods depend on the time.
    fn args(_policy: &Policy) -> [Option<u64>; 3] {
        [None; 3]
    }

    fn length_us(start_us: u64, stored: u64) -> Option<u64> {
        stored.checked_sub(start_us)
    }
}

/// Reads the unit and the zone of a calendar window from `rest`: `(month, Europe/Berlin)`.
pub(super) fn parse(text: &str, rest: &str) -> Result<Algorithm, Error> {
    match arguments(rest).and_then(|arguments| arguments.split_once(',')) {
        Some((unit, zone)) => Ok(Algorithm::CalendarWindow {
            unit: unit.trim().parse()?,
            zone: zone.trim().parse()?,
        }),
        None => Err(Error::config(format!(
            "algorithm {:?} needs a unit and a time zone, as in calendar_window(month, Europe/Berlin)",
            shown(text)
        ))),
    }
}
