//! Two counters: the current window counts in full, the previous window by the share that is still
//! within W.
//!
//! Shares are compared as products of a count and microseconds, so nothing is rounded. A policy of
//! more than 2³² − 1 units is refused, so that both counters fit into 64 bits of the state.
//! Windows that are not weighed are in `window.rs`.

use super::{
    Adjust, Decide, Meter, Refund, StoredState,
    debt::{MOST_BURSTS, marked, unmarked},
    level::{Numbers, Reading},
    stored::{self, doubles, whole},
};
use crate::{Policy, Quota, charge::Ask};

/// An aligned window, and the units spent in it and in the previous one.
// Packed as a `Bucket` is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(Rust, packed(4))]
pub(crate) struct SlidingWindowState {
    start_us: u64,
    current: u32,
    previous: u32,
    /// It was stored in debt, or follows a window that was.
    in_debt: bool,
}

impl SlidingWindowState {
    /// Returns the units spent in this window and in the previous one.
    fn counts(&self) -> (u64, u64) {
        (self.current.into(), self.previous.into())
    }

    /// Moves the counts to the windows at `now_us`. Returns whether the window lay too far ahead.
    #[inline]
    fn moved_to(self, quota: &Quota, now_us: u64) -> (Self, bool) {
        let (mut state, period, mut mended) = (self, quota.period_us(), false);
        let start = now_us - now_us % period;
        if state.start_us > now_us + period {
            // Impossibly far ahead: the clock went back by more than a window.
            state.start_us = start;
            mended = true;
        } else if state.start_us >= start {
            // The current window, or the next one when the clock went back a little, or a start
            // that was aligned to another period.
            let at = state.start_us.max(now_us);
            state.start_us = at - at % period;
        } else {
            let follows = state.start_us + period >= start;
            state = Self {
                start_us: start,
                current: 0,
                previous: if follows { state.current } else { 0 },
                in_debt: state.in_debt,
            };
        }
        (state, mended && state.counts() != (0, 0))
    }

    /// Returns the time until the window ends. It is more than a period when the window has not
    /// begun.
    fn left(&self, quota: &Quota, now_us: u64) -> u64 {
        self.start_us + quota.period_us() - now_us
    }
}

impl Decide for SlidingWindowState {
    const ADMITS_IN_DEBT: bool = true;

    #[inline]
    fn advance(
        &mut self,
        policy: &Policy,
        _stored_interval: Option<f64>,
        now_us: u64,
    ) -> (Self, bool) {
        let (mut state, mut most) = (*self, policy.quota_ref().amount() as u32);
        if std::mem::take(&mut state.in_debt) {
            most = most.saturating_mul(MOST_BURSTS as u32);
        }
        // The amount was lowered. The counts are cut as often as they are read, and need not be
        // stored.
        state.current = state.current.min(most);
        state.previous = state.previous.min(most);
        state.moved_to(policy.quota_ref(), now_us)
    }

    #[inline]
    fn fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool {
        let (quota, (current, previous)) = (policy.quota_ref(), self.counts());
        let (limit, cost) = (ask.limit(quota.amount()), ask.cost);
        cost == 0
            || current + cost <= limit
                && product(previous, self.left(quota, now_us).min(quota.period_us()))
                    <= product(limit - current - cost, quota.period_us())
    }

    /// Spends a cost. The count never exceeds four bytes: a cost that does not fit is cut before.
    #[inline]
    fn charge(&mut self, _policy: &Policy, _now_us: u64, cost: u64, _tag: &[u8]) {
        self.current += cost as u32;
    }

    #[inline]
    fn note_debt(&mut self, policy: &Policy, _stored_interval: Option<f64>, _now_us: u64) {
        let ((current, previous), amount) = (self.counts(), policy.quota_ref().amount());
        self.in_debt |= previous > amount || current > amount;
    }

    #[inline]
    fn reading(&self, policy: &Policy, now_us: u64, _denied: Ask) -> Reading {
        let (current, previous) = self.counts();
        [current, previous, self.left(policy.quota_ref(), now_us), 0]
    }
}

impl Adjust for SlidingWindowState {
    fn adjustable(&mut self, policy: &Policy, now_us: u64) -> Self {
        let period = policy.quota_ref().period_us();
        let counts = self.start_us + period >= now_us - now_us % period;
        let (state, _) = self.moved_to(policy.quota_ref(), now_us);
        Self {
            in_debt: counts && self.in_debt,
            ..state
        }
    }

    fn spent(&self) -> u64 {
        self.current.into()
    }

    fn most_spent(policy: &Policy) -> u64 {
        (policy.quota_ref().burst() * MOST_BURSTS).min(u32::MAX.into())
    }

    /// Returns units to the window in which they were spent, as long as it counts.
    fn refund(&mut self, refund: &Refund<'_>) -> bool {
        let cost = u32::try_from(refund.cost).unwrap_or(u32::MAX);
        if refund.spent_us >= self.start_us {
            self.current = self.current.saturating_sub(cost);
        } else if refund.spent_us + refund.policy.quota_ref().period_us() >= self.start_us {
            self.previous = self.previous.saturating_sub(cost);
        }
        true
    }
}

impl Meter for SlidingWindowState {
    fn fresh_at(&self, policy: &Policy) -> u64 {
        let (start_us, period) = (self.start_us, policy.quota_ref().period_us());
        match (self.current, self.previous) {
            (0, 0) => 0,
            (0, _) => start_us + period,
            _ => start_us + 2 * period,
        }
    }

    fn to_bytes(&self, _policy: &Policy, _stored_interval: Option<f64>) -> Vec<u8> {
        let (current, previous) = self.counts();
        doubles(&[self.start_us, marked(current, self.in_debt), previous])
    }

    fn of_bytes(bytes: &[u8]) -> Option<(Self, f64)> {
        let ([start_us, current, previous], []) = stored::split(bytes)? else {
            return None;
        };
        let (current, in_debt) = unmarked(whole(current)?);
        Some((
            Self {
                start_us: whole(start_us)?,
                current: current.try_into().ok()?,
                previous: whole(previous)?.try_into().ok()?,
                in_debt,
            },
            0.0,
        ))
    }

    fn shown(&self, _stored_interval: f64) -> StoredState {
        let (current, previous) = self.counts();
        StoredState::SlidingWindow {
            start_us: self.start_us,
            current,
            previous,
        }
    }

    /// Derives the numbers from the two counts and the time left of the window.
    fn numbers(policy: &Policy, reading: &Reading, ask: Ask) -> Numbers {
        let (quota, [current, previous, left, _]) = (policy.quota_ref(), *reading);
        let (amount, period) = (quota.amount(), quota.period_us());
        // Returns the time for which a previous window of `count` units may still overlap, so that
        // its share is at most `room`.
        let share = |room: u64, count: u64| {
            u64::try_from(product(room, period) / u128::from(count.max(1))).unwrap_or(u64::MAX)
        };
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
            retry_us: if ask.cost > 0 {
                until(ask.cost, ask.limit(amount))
            } else {
                0
            },
            reset_us,
            more_us: if remaining == amount {
                0
            } else {
                until(remaining + 1, amount)
            },
        }
    }

    fn of_reading(policy: &Policy, reading: &Reading, now_us: u64) -> Option<Self> {
        let start_us = (now_us + reading[2]).saturating_sub(policy.quota_ref().period_us());
        let count = |word: u64| u32::try_from(word).unwrap_or(u32::MAX);
        Some(Self {
            start_us,
            current: count(reading[0]),
            previous: count(reading[1]),
            in_debt: false,
        })
    }
}

fn product(units: u64, time_us: u64) -> u128 {
    u128::from(units) * u128::from(time_us)
}
