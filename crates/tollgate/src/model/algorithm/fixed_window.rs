//! One counter per window. The window is aligned to the clock, opens with the first request, or is a period of a calendar.

use super::numbers::{Numbers, Words};
use crate::{Quota, model::cost::Ask};

/// A window and the units spent in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct State {
    pub(super) start_us: u64,
    pub(super) count: u64,
}

impl State {
    pub(crate) fn settle(&mut self, quota: &Quota, aligned: bool, now_us: u64) -> bool {
        let period = quota.period_us();
        if aligned {
            let current = now_us - now_us % period;
            if self.start_us < current || self.count == 0 {
                (self.start_us, self.count) = (current, 0);
            } else if self.start_us > now_us + period {
                // Impossibly far ahead: the clock went back by more than a window.
                self.start_us = current;
                return true;
            } else {
                // The current window, or the next one when the clock went back a little, or a start
                // that was aligned to another period.
                let at = self.start_us.max(now_us);
                self.start_us = at - at % period;
            }
            return false;
        }
        if self.start_us > now_us && self.count > 0 {
            self.start_us = now_us;
            return true;
        }
        if self.count == 0 || now_us - self.start_us >= period {
            (self.start_us, self.count) = (now_us, 0);
        }
        false
    }

    pub(crate) fn fits(&self, limit: u64, cost: u64) -> bool {
        cost == 0 || self.count + cost <= limit
    }

    pub(crate) fn charge(&mut self, cost: u64) {
        self.count += cost;
    }

    /// Returns units only to the window in which they were spent.
    pub(crate) fn refund(&mut self, spent_us: u64, cost: u64) {
        if spent_us >= self.start_us {
            self.count = self.count.saturating_sub(cost);
        }
    }

    /// Returns the state that has these words at `now_us`.
    #[cfg(feature = "redis")]
    pub(crate) fn of_words(quota: &Quota, words: &Words, now_us: u64) -> Self {
        Self { start_us: (now_us + words[1]).saturating_sub(quota.period_us()), count: words[0] }
    }

    pub(crate) fn words(&self, quota: &Quota, now_us: u64) -> Words {
        [self.count, self.start_us + quota.period_us() - now_us, 0, 0]
    }

    pub(crate) fn fresh_at(&self, quota: &Quota) -> u64 {
        if self.count == 0 { 0 } else { self.start_us + quota.period_us() }
    }

    /// Returns the bytes that the script stores.
    #[cfg(feature = "testing")]
    pub(crate) fn to_bytes(self, quota: &Quota) -> Vec<u8> {
        super::stored::doubles(&[self.start_us, self.count, quota.period_us()])
    }
}

/// Derives the numbers from the count and the time left of the window.
pub(crate) fn numbers(quota: &Quota, words: &Words, ask: Ask) -> Numbers {
    let [count, left, ..] = *words;
    let remaining = quota.amount().saturating_sub(count);
    let used_left = if count == 0 { 0 } else { left };
    let room = ask.limit(quota.amount()).saturating_sub(count);
    Numbers { remaining, retry_us: if ask.cost > room { left } else { 0 }, reset_us: used_left, more_us: used_left }
}
