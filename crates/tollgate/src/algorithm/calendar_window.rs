//! One counter per period of a calendar: a local day, week, month or year.

use super::level::Words;
use crate::{Policy, Quota, calendar::Periods};

/// A period and the units spent in it. The calendar of the policy tells the end of the period, which keeps the state as
/// small as the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct State {
    start_us: u64,
    count: u64,
}

impl State {
    /// Brings the state to the current period. `periods` are those around the current time.
    pub(crate) fn settle(&mut self, periods: Periods) -> bool {
        let start = self.start_us;
        let is_old = self.count == 0 || start < periods.begin;
        if !is_old && start == periods.close {
            // The next period, because the clock went back a little.
            return false;
        }
        // Units of the current period, of one that another calendar started within it, or of one that lies impossibly
        // far ahead.
        let count = if is_old { 0 } else { self.count };
        *self = Self { start_us: periods.begin, count };
        !is_old && start > periods.close
    }

    pub(crate) fn fits(&self, quota: &Quota, cost: u64) -> bool {
        cost == 0 || self.count + cost <= quota.amount()
    }

    pub(crate) fn charge(&mut self, cost: u64) {
        self.count += cost;
    }

    /// Returns units only to the period in which they were spent.
    pub(crate) fn refund(&mut self, spent_us: u64, cost: u64) {
        if spent_us >= self.start_us {
            self.count = self.count.saturating_sub(cost);
        }
    }

    /// Returns the state that has these words at the time around which `periods` are.
    #[cfg(feature = "redis")]
    pub(crate) fn of_words(words: &Words, periods: Periods, now_us: u64) -> Self {
        let is_next = now_us + words[1] > periods.close;
        Self { start_us: if is_next { periods.close } else { periods.begin }, count: words[0] }
    }

    /// Returns the words of a settled state. `periods` are those around the current time.
    pub(crate) fn words(&self, periods: Periods, now_us: u64) -> Words {
        let end_us = if self.start_us == periods.close { periods.after } else { periods.close };
        [self.count, end_us - now_us, 0, 0]
    }

    pub(crate) fn fresh_at(&self, policy: &Policy) -> u64 {
        if self.count == 0 { 0 } else { policy.periods(self.start_us).close }
    }

    /// Returns the bytes that the script stores.
    #[cfg(feature = "testing")]
    pub(crate) fn to_bytes(self, policy: &Policy) -> Vec<u8> {
        super::stored::doubles(&[self.start_us, self.count, policy.periods(self.start_us).close])
    }
}
