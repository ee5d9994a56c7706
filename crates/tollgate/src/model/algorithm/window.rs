//! The state of the three windows with one counter: the start of the window and the units spent in
//! it.

use std::marker::PhantomData;

use super::{
    Meter, Refund, StoredState,
    stored::{self, doubles, whole},
    table::{Numbers, Words},
};
use crate::{Policy, model::cost::Ask};

/// A window that opens as `O` says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Window<O> {
    pub(super) start_us: u64,
    pub(super) count: u64,
    opening: PhantomData<O>,
}

/// Decides when a window begins and ends.
pub(crate) trait Opening: Clone + Default {
    /// Returns the start of the window and its count at `now_us`, and whether the state had to be
    /// mended.
    fn settle(policy: &Policy, start_us: u64, count: u64, now_us: u64) -> (u64, u64, bool);

    /// Returns the end of a window that counts at `now_us`.
    #[inline]
    fn end_us(policy: &Policy, start_us: u64, _now_us: u64) -> u64 {
        start_us + policy.quota_ref().period_us()
    }

    /// Returns the start of the window that ends `left_us` after `now_us`.
    fn start_us(policy: &Policy, left_us: u64, now_us: u64) -> u64 {
        (now_us + left_us).saturating_sub(policy.quota_ref().period_us())
    }

    /// Returns the number that is stored behind the start and the count.
    fn stored(policy: &Policy, _start_us: u64) -> u64 {
        policy.quota_ref().period_us()
    }

    /// Returns the length of a window that starts at `start_us`, from the number that is stored
    /// behind the count.
    fn length_us(_start_us: u64, stored: u64) -> Option<u64> {
        Some(stored)
    }

    /// Returns the numbers that the script takes behind the amount.
    fn args(policy: &Policy) -> [Option<u64>; 3] {
        [Some(policy.quota_ref().period_us()), None, None]
    }
}

impl<O: Opening> Meter for Window<O> {
    #[inline]
    fn settle(&mut self, policy: &Policy, _other: Option<f64>, now_us: u64) -> (Self, bool) {
        let (start_us, count, mended) = O::settle(policy, self.start_us, self.count, now_us);
        (
            Self {
                start_us,
                count,
                opening: PhantomData,
            },
            mended,
        )
    }

    #[inline]
    fn fits(&self, policy: &Policy, _now_us: u64, ask: Ask) -> bool {
        ask.cost == 0 || self.count + ask.cost <= ask.limit(policy.quota_ref().amount())
    }

    #[inline]
    fn charge(&mut self, _policy: &Policy, _now_us: u64, cost: u64, _tag: &[u8]) {
        self.count += cost;
    }

    fn spent(&self) -> u64 {
        self.count
    }

    /// Returns units only to the window in which they were spent.
    fn refund(&mut self, refund: &Refund<'_>) -> bool {
        if refund.spent_us >= self.start_us {
            self.count = self.count.saturating_sub(refund.cost);
        }
        true
    }

    #[inline]
    fn words(&self, policy: &Policy, now_us: u64, _denied: Ask) -> Words {
        [
            self.count,
            O::end_us(policy, self.start_us, now_us) - now_us,
            0,
            0,
        ]
    }

    fn fresh_at(&self, policy: &Policy) -> u64 {
        // A window that is stored has begun.
        if self.count == 0 {
            0
        } else {
            O::end_us(policy, self.start_us, self.start_us)
        }
    }

    fn to_bytes(&self, policy: &Policy, _other: Option<f64>) -> Vec<u8> {
        doubles(&[self.start_us, self.count, O::stored(policy, self.start_us)])
    }

    fn of_bytes(bytes: &[u8]) -> Option<(Self, f64)> {
        let ([start_us, count, stored], []) = stored::split(bytes)? else {
            return None;
        };
        let (start_us, count) = (whole(start_us)?, whole(count)?);
        let length_us =
            O::length_us(start_us, whole(stored)?).filter(|&length_us| length_us > 0)?;
        Some((
            Self {
                start_us,
                count,
                opening: PhantomData,
            },
            length_us as f64,
        ))
    }

    fn shown(&self, length_us: f64) -> StoredState {
        StoredState::Window {
            start_us: self.start_us,
            count: self.count,
            period_us: length_us as u64,
        }
    }

    /// Derives the numbers from the count and the time left of the window.
    fn numbers(policy: &Policy, words: &Words, ask: Ask) -> Numbers {
        let (amount, [count, left, ..]) = (policy.quota_ref().amount(), *words);
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

    fn of_words(policy: &Policy, words: &Words, now_us: u64) -> Option<Self> {
        let start_us = O::start_us(policy, words[1], now_us);
        Some(Self {
            start_us,
            count: words[0],
            opening: PhantomData,
        })
    }

    fn args(policy: &Policy) -> [Option<u64>; 3] {
        O::args(policy)
    }
}
