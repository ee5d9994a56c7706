//! The state of the three windows with one counter: the start of the window and the units spent in
//! it.
//! When a window opens is decided in the file of each: fixed, from the first hit, or by a calendar.

use std::ops::Range;

use super::{
    Adjust, Decide, Meter, Refund, StoredState,
    level::{Numbers, Reading},
    stored::{self, doubles, whole},
};
use crate::{Policy, charge::Ask};

/// A window that opens as `O` says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Window<O> {
    pub(super) opening: O,
    pub(super) count: u64,
}

/// The start of a window, and what its policy does not say of its end. Decides when a window begins
/// and ends.
pub(crate) trait Opening: Copy + Default {
    /// A window begins with the first units that are spent in it, and not by itself.
    const BEGINS_WITH_UNITS: bool = false;

    /// Returns the window that counts at `now_us`, and whether it had to be mended.
    fn advance(window: Window<Self>, policy: &Policy, now_us: u64) -> (Window<Self>, bool);

    /// Returns the window that is adjusted at `now_us`.
    fn adjustable(window: Window<Self>, policy: &Policy, now_us: u64) -> Window<Self> {
        Self::advance(window, policy, now_us).0
    }

    /// Returns the opening of a window between two times.
    fn of(start_us: u64, end_us: u64) -> Self;

    fn start_us(self) -> u64;

    /// Returns the end of a current window.
    #[inline]
    fn end_us(self, policy: &Policy) -> u64 {
        self.start_us() + policy.quota_ref().period_us()
    }

    /// Returns the opening of the window that counts at `now_us` and ends at `end_us`.
    fn ending(policy: &Policy, end_us: u64, _now_us: u64) -> Self {
        let start_us = end_us.saturating_sub(policy.quota_ref().period_us());
        Self::of(start_us, end_us)
    }

    /// Returns the number that is stored behind the start and the count.
    fn stored(self, policy: &Policy) -> u64 {
        policy.quota_ref().period_us()
    }

    /// Returns the end of a window that starts at `start_us`, from the number that is stored behind
    /// the count.
    fn end_of_stored(start_us: u64, stored: u64) -> u64 {
        start_us + stored
    }

    /// Returns the numbers that the script takes behind the amount.
    fn args(policy: &Policy) -> [Option<u64>; 3] {
        [Some(policy.quota_ref().period_us()), None, None]
    }
}

impl<O: Opening> Decide for Window<O> {
    #[inline]
    fn advance(
        &mut self,
        policy: &Policy,
        _stored_interval: Option<f64>,
        now_us: u64,
    ) -> (Self, bool) {
        O::advance(*self, policy, now_us)
    }

    #[inline]
    fn fits(&self, policy: &Policy, _now_us: u64, ask: Ask) -> bool {
        ask.cost == 0 || self.count + ask.cost <= ask.limit(policy.quota_ref().amount())
    }

    #[inline]
    fn charge(&mut self, _policy: &Policy, _now_us: u64, cost: u64, _tag: &[u8]) {
        self.count += cost;
    }

    #[inline]
    fn reading(&self, policy: &Policy, now_us: u64, _denied: Ask) -> Reading {
        [self.count, self.opening.end_us(policy) - now_us, 0, 0]
    }
}

impl<O: Opening> Adjust for Window<O> {
    fn adjusted_under(&self, policy: &Policy, stored_interval: f64, now_us: u64) -> Option<Policy> {
        let (period_us, start_us) = (stored_interval as u64, self.opening.start_us());
        let is_open = start_us <= now_us && now_us < start_us.saturating_add(period_us);
        is_open.then(|| policy.with_period_us(period_us))
    }

    fn adjustable(&mut self, policy: &Policy, now_us: u64) -> Self {
        O::adjustable(*self, policy, now_us)
    }

    fn spent(&self) -> u64 {
        self.count
    }

    /// Returns units only to the window in which they were spent.
    fn refund(&mut self, refund: &Refund<'_>) -> bool {
        if refund.spent_us >= self.opening.start_us() {
            self.count = self.count.saturating_sub(refund.cost);
        }
        true
    }
}

impl<O: Opening> Meter for Window<O> {
    fn fresh_at(&self, policy: &Policy) -> u64 {
        // A window that is stored has begun.
        if self.count == 0 {
            0
        } else {
            self.opening.end_us(policy)
        }
    }

    fn to_bytes(&self, policy: &Policy, _stored_interval: Option<f64>) -> Vec<u8> {
        let (start_us, stored) = (self.opening.start_us(), self.opening.stored(policy));
        doubles(&[start_us, self.count, stored])
    }

    fn of_bytes(bytes: &[u8]) -> Option<(Self, f64)> {
        let ([start_us, count, stored], []) = stored::split(bytes)? else {
            return None;
        };
        let (start_us, count) = (whole(start_us)?, whole(count)?);
        let end_us = O::end_of_stored(start_us, whole(stored)?);
        let opening = O::of(start_us, end_us);
        let length_us = end_us.checked_sub(start_us).filter(|&length| length > 0)?;
        Some((Self { opening, count }, length_us as f64))
    }

    fn shown(&self, stored_interval: f64) -> StoredState {
        StoredState::Window {
            start_us: self.opening.start_us(),
            count: self.count,
            period_us: stored_interval as u64,
        }
    }

    /// Derives the numbers from the count and the time left of the window.
    fn numbers(policy: &Policy, reading: &Reading, ask: Ask) -> Numbers {
        let (amount, [count, left, ..]) = (policy.quota_ref().amount(), *reading);
        let remaining = amount.saturating_sub(count);
        let used_left = if count == 0 { 0 } else { left };
        let room = ask.limit(amount).saturating_sub(count);
        Numbers {
            remaining,
            retry_us: if ask.cost > room { left } else { 0 },
            reset_us: used_left,
            more_us: used_left,
        }
    }

    fn period_us(policy: &Policy, now_us: u64, more_us: u64) -> Option<Range<u64>> {
        let opening = match more_us {
            0 if O::BEGINS_WITH_UNITS => return None,
            0 => O::advance(Self::default(), policy, now_us).0.opening,
            _ => O::ending(policy, now_us + more_us, now_us),
        };
        Some(opening.start_us()..opening.end_us(policy))
    }

    fn of_reading(policy: &Policy, reading: &Reading, now_us: u64) -> Option<Self> {
        Some(Self {
            opening: O::ending(policy, now_us + reading[1], now_us),
            count: reading[0],
        })
    }

    fn args(policy: &Policy) -> [Option<u64>; 3] {
        O::args(policy)
    }
}
