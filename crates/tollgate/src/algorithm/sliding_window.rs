//! Two counters: this window's, and of the one before it the share that still lies inside.
//!
//! Shares are compared as products, count × microseconds: a policy is refused when it is made
//! whose n·W would reach 2⁵³, so the products are exact in Lua too.

use super::level::{Numbers, Words};
use crate::Quota;

/// An aligned window and what was spent in it and in the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct State {
    start_us: u64,
    current: u32,
    previous: u32,
}

impl State {
    pub(crate) fn settle(&mut self, quota: &Quota, now_us: u64) -> bool {
        let (period, most) = (quota.period_us(), quota.amount());
        let start = now_us - now_us % period;
        let mut mended = self.current > most || self.previous > most;
        self.current = self.current.min(most);
        self.previous = self.previous.min(most);
        if self.start_us > now_us + period {
            // Impossibly far ahead: the clock went back by more than a window.
            self.start_us = start;
            mended = true;
        } else if self.start_us >= start {
            // This window; the next one, when the clock went back a little; or a start that
            // another period aligned.
            let at = self.start_us.max(now_us);
            self.start_us = at - at % period;
        } else {
            let follows = self.start_us + period >= start;
            *self = Self { start_us: start, current: 0, previous: if follows { self.current } else { 0 } };
        }
        mended && self.counts() != (0, 0)
    }

    pub(crate) fn fits(&self, quota: &Quota, now_us: u64, cost: u64) -> bool {
        let (current, previous) = self.counts();
        cost == 0
            || current + cost <= quota.amount_u64()
                && previous * self.left(quota, now_us).min(quota.period_us())
                    <= (quota.amount_u64() - current - cost) * quota.period_us()
    }

    /// Spends a cost that fits: the count stays within the amount.
    pub(crate) fn charge(&mut self, cost: u64) {
        self.current += cost as u32;
    }

    /// Units come back to the window in which they were spent, while it counts.
    pub(crate) fn refund(&mut self, quota: &Quota, spent_us: u64, cost: u64) {
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        if spent_us >= self.start_us {
            self.current = self.current.saturating_sub(cost);
        } else if spent_us + quota.period_us() >= self.start_us {
            self.previous = self.previous.saturating_sub(cost);
        }
    }

    /// The state that says these words at `now_us`.
    #[cfg(feature = "redis")]
    pub(crate) fn of_words(quota: &Quota, words: &Words, now_us: u64) -> Self {
        let start_us = (now_us + words[2]).saturating_sub(quota.period_us());
        let count = |word: u64| u32::try_from(word).unwrap_or(u32::MAX);
        Self { start_us, current: count(words[0]), previous: count(words[1]) }
    }

    /// What was spent in this window and in the one before.
    fn counts(&self) -> (u64, u64) {
        (self.current.into(), self.previous.into())
    }

    pub(crate) fn words(&self, quota: &Quota, now_us: u64) -> Words {
        let (current, previous) = self.counts();
        [current, previous, self.left(quota, now_us), 0]
    }

    pub(crate) fn fresh_at(&self, quota: &Quota) -> u64 {
        match (self.current, self.previous) {
            (0, 0) => 0,
            (0, _) => self.start_us + quota.period_us(),
            _ => self.start_us + 2 * quota.period_us(),
        }
    }

    /// Until the window ends: more than a period, while it has not begun.
    fn left(&self, quota: &Quota, now_us: u64) -> u64 {
        self.start_us + quota.period_us() - now_us
    }

    /// The bytes that the script stores.
    #[cfg(feature = "testing")]
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let (current, previous) = self.counts();
        super::stored::doubles(&[self.start_us, current, previous])
    }
}

/// From the two counts and the time left of the window.
pub(crate) fn numbers(quota: &Quota, words: &Words, cost: u64) -> Numbers {
    let [current, previous, left, _] = *words;
    let (amount, period) = (quota.amount_u64(), quota.period_us());
    // Of a window that counts `count` at its end, how much of it may still be inside so that
    // `room` is left for it.
    let share = |room: u64, count: u64| (u128::from(room) * u128::from(period) / u128::from(count)) as u64;
    let until = |units: u64| {
        if current + units > amount {
            // Not before this window is the previous one.
            left + period - share(amount.saturating_sub(units), current)
        } else if previous == 0 {
            0
        } else {
            left.saturating_sub(share(amount - current - units, previous))
        }
    };
    let inside = (u128::from(previous) * u128::from(left.min(period))).div_ceil(u128::from(period)) as u64;
    let remaining = amount.saturating_sub(current + inside);
    let reset_us = match (current, previous) {
        (0, 0) => 0,
        (0, _) => left,
        _ => left + period,
    };
    Numbers {
        remaining,
        retry_us: if cost > remaining { until(cost) } else { 0 },
        reset_us,
        more_us: if remaining == amount { 0 } else { until(remaining + 1) },
    }
}
