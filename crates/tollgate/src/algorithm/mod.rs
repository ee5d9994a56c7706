//! The algorithms as pure functions over (state, now, cost).
//!
//! They are the in-process engine and the oracle that the Lua scripts are compared with, bit for
//! bit. Each file has the same five steps, and so has each fragment in `scripts/`:
//!
//! 1. *settle*: bring a stored state to `now` under the quota in force;
//! 2. *fits*: would this cost pass;
//! 3. *charge*: spend it;
//! 4. *refund*: give some back;
//! 5. *words*: the few integers from which [`numbers`] derives what the caller is told.
//!
//! A settled state is written back when it was charged, or when it had to be *mended*: it lay
//! impossibly far ahead of the clock, or another quota wrote it. Otherwise it is thrown away, so
//! that a denial and a peek leave no trace.

pub(crate) mod fixed_window;
pub(crate) mod token_bucket;

use crate::{Algorithm, Policy};

/// What a script replies for one policy, and what the pure functions say: the meaning of each word
/// belongs to the algorithm. Words that an algorithm does not use are zero.
pub(crate) type Words = [u64; 4];

/// What one policy reads at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Whether the cost fits (or fitted, when it was charged).
    pub(crate) fits: bool,
    /// The level after the charge; before it, when nothing was charged.
    pub(crate) words: Words,
}

/// What the caller is told of one policy. Times are microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// Units that would pass at this instant.
    pub(crate) remaining: u64,
    /// Until the cost that was asked fits, if nobody else spends; 0 when it fits.
    pub(crate) retry_us: u64,
    /// Until the state equals a fresh one.
    pub(crate) reset_us: u64,
    /// Until one more unit than `remaining` would pass; 0 when all are there.
    pub(crate) more_us: u64,
}

/// The numbers behind the words of a policy's reading, for a check of `cost`.
pub(crate) fn numbers(policy: &Policy, reading: &Reading, cost: u64) -> Numbers {
    let (quota, words) = (policy.quota(), &reading.words);
    let of = match policy.algorithm() {
        Algorithm::TokenBucket => token_bucket::numbers,
        Algorithm::FixedWindow | Algorithm::WindowFromFirstHit => fixed_window::numbers,
    };
    of(&quota, words, if reading.fits { 0 } else { cost })
}

/// A state that one algorithm keeps for one key; the default is fresh.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum State {
    TokenBucket(token_bucket::State),
    Window(fixed_window::State),
}

/// What [`State::settle`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// The state had to be mended, so it is written back also on a denial.
    pub(crate) mended: bool,
}

impl State {
    /// The state of a key nobody has spent from.
    pub(crate) fn fresh(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::TokenBucket => Self::TokenBucket(token_bucket::State::default()),
            Algorithm::FixedWindow | Algorithm::WindowFromFirstHit => Self::Window(fixed_window::State::default()),
        }
    }

    /// Brings the state to `now_us` under the policy's quota.
    pub(crate) fn settle(&mut self, policy: &Policy, now_us: u64) -> Settled {
        let quota = policy.quota();
        let mended = match self {
            Self::TokenBucket(state) => state.settle(&quota, now_us),
            Self::Window(state) => state.settle(&quota, policy.algorithm() == Algorithm::FixedWindow, now_us),
        };
        Settled { mended }
    }

    /// Whether `cost` fits a settled state.
    pub(crate) fn fits(&self, policy: &Policy, now_us: u64, cost: u64) -> bool {
        let quota = policy.quota();
        match self {
            Self::TokenBucket(state) => state.fits(&quota, now_us, cost),
            Self::Window(state) => state.fits(&quota, cost),
        }
    }

    /// Spends `cost` of a settled state that it fits.
    pub(crate) fn charge(&mut self, policy: &Policy, cost: u64) {
        match self {
            Self::TokenBucket(state) => state.charge(&policy.quota(), cost),
            Self::Window(state) => state.charge(cost),
        }
    }

    /// Gives back up to `cost` units that were spent at `spent_us`, to a settled state.
    pub(crate) fn refund(&mut self, policy: &Policy, now_us: u64, spent_us: u64, cost: u64) {
        match self {
            Self::TokenBucket(state) => state.refund(&policy.quota(), now_us, cost),
            Self::Window(state) => state.refund(spent_us, cost),
        }
    }

    /// The words of a settled state.
    pub(crate) fn words(&self, policy: &Policy, now_us: u64) -> Words {
        match self {
            Self::TokenBucket(state) => state.words(now_us),
            Self::Window(state) => state.words(&policy.quota(), now_us),
        }
    }

    /// When the settled state will equal a fresh one; `now_us` or earlier if it does already.
    pub(crate) fn fresh_at(&self, policy: &Policy) -> u64 {
        match self {
            Self::TokenBucket(state) => state.fresh_at(),
            Self::Window(state) => state.fresh_at(&policy.quota()),
        }
    }

    /// When the key that holds the state expires at a server.
    #[cfg(feature = "testing")]
    pub(crate) fn expires_ms(&self, policy: &Policy) -> u64 {
        let last_us = match self {
            Self::TokenBucket(state) => state.full_us(),
            Self::Window(state) => state.fresh_at(&policy.quota()),
        };
        last_us / 1_000 + 1
    }

    /// The bytes that the script stores.
    #[cfg(feature = "testing")]
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::TokenBucket(state) => state.to_bytes(),
            Self::Window(state) => state.to_bytes(),
        }
    }
}
