//! One counter per period of a calendar: a local day, week, month or year, or some of them, from
//! an anchor on.
//!
//! The state is as of the other [windows](super::window), and has the end of its period. The end
//! shows whether units that were counted under another anchor, zone or unit count in a period: they
//! do when theirs had not ended where this one began.
//! Where periods begin and end is computed in `calendar/`; what all windows have in common is
//! in `window.rs`.

use super::{
    Algorithm,
    arguments::{arguments, shown},
    window::{Opening, Window},
};
use crate::{Error, Policy};

pub(crate) type CalendarWindowState = Window<Calendar>;

/// Opens windows with the periods of a calendar.
///
/// Periods begin and end with a second. So their start and their length in seconds are one number,
/// and the state is as small as the others: 34 bits for the years up to 2255, and 30 for 34 years.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Calendar(u64);

const SECOND_US: u64 = 1_000_000;

/// The bits of the length, and the greatest length.
const LENGTH: u32 = 30;
const LONGEST_SECONDS: u64 = (1 << LENGTH) - 1;

impl Opening for Calendar {
    #[inline]
    fn advance(window: Window<Self>, policy: &Policy, now_us: u64) -> (Window<Self>, bool) {
        let (periods, start_us) = (policy.periods(now_us), window.opening.start_us());
        let counts = window.count > 0 && window.opening.end() > periods.begin;
        // The next period, because the clock went back a little.
        let opening = match counts && start_us == periods.close {
            true => Self::of(periods.close, periods.after),
            false => Self::of(periods.begin, periods.close),
        };
        let count = if counts { window.count } else { 0 };
        // Units of a period that ends later, or lies impossibly far ahead, are moved to this one.
        let mended = counts && window.opening.end() > opening.end();
        (Window { opening, count }, mended)
    }

    /// Leaves a period that is open as it is, because the decision may have known another calendar.
    fn adjustable(window: Window<Self>, policy: &Policy, now_us: u64) -> Window<Self> {
        let is_open = window.opening.start_us() <= now_us
            && now_us < window.opening.end()
            && window.count > 0;
        if is_open {
            window
        } else {
            Self::advance(window, policy, now_us).0
        }
    }

    fn of(start_us: u64, end_us: u64) -> Self {
        let (start, end) = (start_us / SECOND_US, end_us / SECOND_US);
        let length = end.saturating_sub(start).min(LONGEST_SECONDS);
        Self(start << LENGTH | length)
    }

    fn start_us(self) -> u64 {
        (self.0 >> LENGTH) * SECOND_US
    }

    fn end_us(self, _policy: &Policy) -> u64 {
        self.end()
    }

    fn ending(policy: &Policy, end_us: u64, now_us: u64) -> Self {
        let periods = policy.periods(now_us);
        let is_next = end_us > periods.close;
        let start_us = if is_next {
            periods.close
        } else {
            periods.begin
        };
        Self::of(start_us, end_us)
    }

    fn stored(self, _policy: &Policy) -> u64 {
        self.end()
    }

    fn end_of_stored(_start_us: u64, stored: u64) -> u64 {
        stored
    }

    /// Nothing: the numbers of the periods depend on the time.
    fn args(_policy: &Policy) -> [Option<u64>; 3] {
        [None; 3]
    }
}

impl Calendar {
    fn end(self) -> u64 {
        self.start_us() + (self.0 & LONGEST_SECONDS) * SECOND_US
    }
}

/// Reads the unit, the zone and the anchor, if there is one, of a calendar window from `rest`:
/// `(month, Europe/Lisbon, 2026-01-17T09:30)`.
pub(super) fn parse(text: &str, rest: &str) -> Result<Algorithm, Error> {
    let Some((unit, zone)) = arguments(rest).and_then(|arguments| arguments.split_once(',')) else {
        return Err(Error::config(format!(
            "algorithm {:?} needs a unit and a time zone, as in calendar_window(month, Europe/Berlin)",
            shown(text)
        )));
    };
    let (zone, anchor) = match zone.split_once(',') {
        Some((zone, anchor)) => (zone, Some(anchor.trim().parse()?)),
        None => (zone, None),
    };
    Ok(Algorithm::CalendarWindow {
        unit: unit.trim().parse()?,
        zone: zone.trim().parse()?,
        anchor,
    })
}
