//! Two counters: the current window counts in full, the previous window by the share that is still
//! within W.
//!
//! Shares are compared as products of a count and microseconds, so nothing is rounded. A policy of
//! more than 2³² − 1 units is refused, so that both counters fit into 64 bits of the state.

#[cfg(feature = "testing")]
use super::debt::MARK;
use super::{
    debt::MOST_BURSTS,
    numbers::{Numbers, Words},
};
use crate::{Quota, model::cost::Ask};

/// An aligned window, and the units spent in it and in the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct State {
    /// A stored state in debt is [marked](IN_DEBT) here.
    start_us: u64,
    current: u32,
    previous: u32,
}

/// Marks a stored window that is in debt, or follows one that is. No time reaches it.
const IN_DEBT: u64 = 1 << 63;

impl State {
    pub(crate) fn settle(&mut self, quota: &Quota, now_us: u64) -> bool {
        let (period, mut most) = (quota.period_us(), quota.amount() as u32);
        if self.start_us >= IN_DEBT {
            self.start_us -= IN_DEBT;
            most = most.saturating_mul(MOST_BURSTS as u32);
        }
        let start = now_us - now_us % period;
        let mut mended = self.current > most || self.previous > most;
        self.current = self.current.min(most);
        self.previous = self.previous.min(most);
        if self.start_us > now_us + period {
            // Impossibly far ahead: the clock went back by more than a window.
            self.start_us = start;
            mended = true;
        } else if self.start_us >= start {
            // The current window, or the next one when the clock went back a little, or a start that
            // was aligned to another period.
            let at = self.start_us.max(now_us);
            self.start_us = at - at % period;
        } else {
            let follows = self.start_us + period >= start;
            *self = Self { start_us: start, current: 0, previous: if follows { self.current } else { 0 } };
        }
        mended && self.counts() != (0, 0)
    }

    pub(crate) fn fits(&self, quota: &Quota, now_us: u64, limit: u64, cost: u64) -> bool {
        let (current, previous) = self.counts();
        cost == 0
            || current + cost <= limit
                && product(previous, self.left(quota, now_us).min(quota.period_us()))
                    <= product(limit - current - cost, quota.period_us())
    }

    /// Spends a cost. The count never exceeds four bytes: a cost that does not fit is cut before.
    pub(crate) fn charge(&mut self, cost: u64) {
        self.current += cost as u32;
    }

    /// Returns units to the window in which they were spent, as long as it counts.
    pub(crate) fn refund(&mut self, quota: &Quota, spent_us: u64, cost: u64) {
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        if spent_us >= self.start_us {
            self.current = self.current.saturating_sub(cost);
        } else if spent_us + quota.period_us() >= self.start_us {
            self.previous = self.previous.saturating_sub(cost);
        }
    }

    /// Returns the state that has these words at `now_us`.
    #[cfg(feature = "redis")]
    pub(crate) fn of_words(quota: &Quota, words: &Words, now_us: u64) -> Self {
        let start_us = (now_us + words[2]).saturating_sub(quota.period_us());
        let count = |word: u64| u32::try_from(word).unwrap_or(u32::MAX);
        Self { start_us, current: count(words[0]), previous: count(words[1]) }
    }

    /// Marks a settled state that is in debt, before it is stored.
    #[inline]
    pub(crate) fn mark_debt(&mut self, quota: &Quota) {
        let (current, previous) = self.counts();
        if previous > quota.amount() || current > quota.amount() {
            self.start_us |= IN_DEBT;
        }
    }

    /// Marks a state whatever it holds.
    pub(crate) fn mark_as_debt(&mut self) {
        self.start_us |= IN_DEBT;
    }

    pub(crate) fn current(&self) -> u64 {
        self.current.into()
    }

    /// Returns the units spent in this window and in the previous one.
    fn counts(&self) -> (u64, u64) {
        (self.current.into(), self.previous.into())
    }

    pub(crate) fn words(&self, quota: &Quota, now_us: u64) -> Words {
        let (current, previous) = self.counts();
        [current, previous, self.left(quota, now_us), 0]
    }

    pub(crate) fn fresh_at(&self, quota: &Quota) -> u64 {
        let start_us = self.start_us & !IN_DEBT;
        match (self.current, self.previous) {
            (0, 0) => 0,
            (0, _) => start_us + quota.period_us(),
            _ => start_us + 2 * quota.period_us(),
        }
    }

    /// Returns the time until the window ends. It is more than a period when the window has not begun.
    fn left(&self, quota: &Quota, now_us: u64) -> u64 {
        self.start_us + quota.period_us() - now_us
    }

    /// Returns the bytes that the script stores.
    #[cfg(feature = "testing")]
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let (current, previous) = self.counts();
        let mark = if self.start_us >= IN_DEBT { MARK } else { 0 };
        super::stored::doubles(&[self.start_us & !IN_DEBT, current + mark, previous])
    }
}

fn product(units: u64, time_us: u64) -> u128 {
    u128::from(units) * u128::from(time_us)
}

/// Derives the numbers from the two counts and the time left of the window.
pub(crate) fn numbers(quota: &Quota, words: &Words, ask: Ask) -> Numbers {
    let [current, previous, left, _] = *words;
    let (amount, period) = (quota.amount(), quota.period_us());
    // Returns the time for which a previous window of `count` units may still overlap, so that its
    // share is at most `room`.
    let share =
        |room: u64, count: u64| u64::try_from(product(room, period) / u128::from(count.max(1))).unwrap_or(u64::MAX);
    let until = |units: u64, limit: u64| {
        if current + units > limit {
            // It cannot fit before this window has become the previous one.
            (left + period).saturating_sub(share(limit.saturating_sub(units), current))
        } else if previous == 0 {
            0
        } else {
            left.saturating_sub(share(limit - current - units, previous))
        }
    };
    let inside = product(previous, left.min(period)).div_ceil(u128::from(period)) as u64;
    let remaining = amount.saturating_sub(current + inside);
    let reset_us = match (current, previous) {
        (0, 0) => 0,
        (0, _) => left,
        _ => left + period,
    };
    Numbers {
        remaining,
        retry_us: if ask.cost > 0 { until(ask.cost, ask.limit(amount)) } else { 0 },
        reset_us,
        more_us: if remaining == amount { 0 } else { until(remaining + 1, amount) },
    }
}
