//! The algorithms as pure functions over (state, now, cost).
//!
//! They are the in-process engine and the oracle that the Lua scripts are compared with, bit for
//! bit. Each file has the same five steps, and so has each file in `scripts/`:
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
//!
//! States of fixed size are copied to be settled. Those that grow with the limit live on the heap
//! and are moved out instead; settling them only notes what has left, and the entries themselves
//! stay as they were stored until something is charged.

mod fixed_window;
mod interval_bucket;
mod kind;
mod sliding_buckets;
mod sliding_log;
mod sliding_window;
#[cfg(test)]
mod tests;
mod token_bucket;

pub use kind::Algorithm;
pub(crate) use sliding_buckets::Buckets;

use crate::{Policy, Quota};

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
        Algorithm::TokenBucket | Algorithm::LeakyBucket => token_bucket::numbers,
        Algorithm::IntervalBucket => interval_bucket::numbers,
        Algorithm::FixedWindow | Algorithm::WindowFromFirstHit => fixed_window::numbers,
        Algorithm::SlidingWindow => sliding_window::numbers,
        Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog => counted,
    };
    of(&quota, words, if reading.fits { 0 } else { cost })
}

/// How long after the decision the turn of a request comes that charged `charged` units; zero for
/// all but the queue.
pub(crate) fn delay_us(policy: &Policy, reading: &Reading, charged: u64) -> u64 {
    match policy.algorithm() {
        Algorithm::LeakyBucket => token_bucket::turn_us(&policy.quota(), &reading.words, charged),
        _ => 0,
    }
}

/// The words as they were `units` admitted units earlier at the same instant: what those said who
/// came before, of requests that were charged together.
#[cfg(feature = "redis")]
pub(crate) fn unspent(policy: &Policy, words: &Words, units: u64) -> Words {
    let mut words = *words;
    match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => token_bucket::unspend(&policy.quota(), &mut words, units),
        Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog => {
            // The time to retry is that of who was denied at last.
            (words[0], words[1]) = (words[0].saturating_sub(units), 0);
        }
        Algorithm::IntervalBucket
        | Algorithm::FixedWindow
        | Algorithm::WindowFromFirstHit
        | Algorithm::SlidingWindow => words[0] = words[0].saturating_sub(units),
    }
    words
}

/// What a policy reads `passed_us` after it read `reading` at `at_us`, if nobody spent since.
#[cfg(feature = "redis")]
pub(crate) fn later(policy: &Policy, reading: &Reading, at_us: u64, passed_us: u64, cost: u64) -> Reading {
    let (quota, words) = (policy.quota(), &reading.words);
    // A bucket that is alone does not say the time, and does not ask for it either.
    let at_us = if at_us == 0 { crate::quota::MAX_EXACT } else { at_us };
    let mut state = match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            State::TokenBucket(token_bucket::State::of_words(&quota, words, at_us))
        }
        Algorithm::IntervalBucket => State::IntervalBucket(interval_bucket::State::of_words(&quota, words, at_us)),
        Algorithm::FixedWindow | Algorithm::WindowFromFirstHit => {
            State::Window(fixed_window::State::of_words(&quota, words, at_us))
        }
        Algorithm::SlidingWindow => State::SlidingWindow(sliding_window::State::of_words(&quota, words, at_us)),
        Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog => {
            let [_, retry_us, reset_us, more_us] = words.map(|word| word.saturating_sub(passed_us));
            let fits = reading.fits || retry_us == 0;
            let used = if reset_us > 0 { words[0] } else { 0 };
            return Reading { fits, words: [used, if fits { 0 } else { retry_us }, reset_us, more_us] };
        }
    };
    let now_us = at_us + passed_us;
    let state = state.settle(policy, now_us).state;
    Reading { fits: state.fits(policy, now_us, cost), words: state.words(policy, now_us, cost) }
}

/// The algorithms whose states grow say it all themselves: the units that count, then the three
/// times.
fn counted(quota: &Quota, words: &Words, _: u64) -> Numbers {
    let [used, retry_us, reset_us, more_us] = *words;
    Numbers { remaining: quota.amount_u64().saturating_sub(used), retry_us, reset_us, more_us }
}

/// A state that one algorithm keeps for one key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    TokenBucket(token_bucket::State),
    IntervalBucket(interval_bucket::State),
    Window(fixed_window::State),
    SlidingWindow(sliding_window::State),
    SlidingBuckets(sliding_buckets::State),
    SlidingLog(sliding_log::State),
}

/// A state at some instant, under the quota in force.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) state: State,
    /// It had to be mended, so it is written back also on a denial.
    pub(crate) mended: bool,
}

impl State {
    /// The state of a key nobody has spent from.
    pub(crate) fn fresh(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Self::TokenBucket(token_bucket::State::default()),
            Algorithm::IntervalBucket => Self::IntervalBucket(interval_bucket::State::default()),
            Algorithm::FixedWindow | Algorithm::WindowFromFirstHit => Self::Window(fixed_window::State::default()),
            Algorithm::SlidingWindow => Self::SlidingWindow(sliding_window::State::default()),
            Algorithm::SlidingBuckets { .. } => Self::SlidingBuckets(sliding_buckets::State::default()),
            Algorithm::SlidingLog => Self::SlidingLog(sliding_log::State::default()),
        }
    }

    /// This state brought to `now_us` under the policy's quota.
    ///
    /// A state on the heap [is moved out](Self::is_moved) unless it had to be mended, and belongs
    /// back in this place when nothing is written.
    pub(crate) fn settle(&mut self, policy: &Policy, now_us: u64) -> Settled {
        let quota = policy.quota();
        let (state, mended) = match *self {
            Self::TokenBucket(mut state) => {
                let mended = state.settle(&quota, now_us);
                (Self::TokenBucket(state), mended)
            }
            Self::IntervalBucket(mut state) => {
                let mended = state.settle(&quota, now_us);
                (Self::IntervalBucket(state), mended)
            }
            Self::Window(mut state) => {
                let mended = state.settle(&quota, policy.algorithm() == Algorithm::FixedWindow, now_us);
                (Self::Window(state), mended)
            }
            Self::SlidingWindow(mut state) => {
                let mended = state.settle(&quota, now_us);
                (Self::SlidingWindow(state), mended)
            }
            Self::SlidingBuckets(ref mut state) => {
                let (state, mended) = state.settle(policy.buckets(), now_us);
                (Self::SlidingBuckets(state), mended)
            }
            Self::SlidingLog(ref mut state) => {
                let (state, mended) = state.settle(&quota, now_us);
                (Self::SlidingLog(state), mended)
            }
        };
        Settled { state, mended }
    }

    /// Whether settling moved this state out of its place, rather than copied it.
    pub(crate) fn is_moved(&self) -> bool {
        match self {
            Self::SlidingBuckets(state) => state.is_some(),
            Self::SlidingLog(state) => state.is_some(),
            Self::TokenBucket(_) | Self::IntervalBucket(_) | Self::Window(_) | Self::SlidingWindow(_) => false,
        }
    }

    /// Whether `cost` fits a settled state.
    pub(crate) fn fits(&self, policy: &Policy, now_us: u64, cost: u64) -> bool {
        let quota = policy.quota();
        match self {
            Self::TokenBucket(state) => state.fits(&quota, now_us, cost),
            Self::IntervalBucket(state) => state.fits(&quota, cost),
            Self::Window(state) => state.fits(&quota, cost),
            Self::SlidingWindow(state) => state.fits(&quota, now_us, cost),
            Self::SlidingBuckets(state) => state.fits(&quota, cost),
            Self::SlidingLog(state) => state.fits(&quota, cost),
        }
    }

    /// Spends `cost` of a settled state that it fits. Only a log keeps the tag.
    pub(crate) fn charge(&mut self, policy: &Policy, now_us: u64, cost: u64, tag: &[u8]) {
        match self {
            Self::TokenBucket(state) => state.charge(&policy.quota(), cost),
            Self::IntervalBucket(state) => state.charge(cost),
            Self::Window(state) => state.charge(cost),
            Self::SlidingWindow(state) => state.charge(cost),
            Self::SlidingBuckets(state) => state.charge(policy.buckets(), now_us, cost),
            Self::SlidingLog(state) => state.charge(now_us, cost, tag),
        }
    }

    /// Gives back up to `cost` units that were spent at `spent_us`, to a settled state.
    pub(crate) fn refund(&mut self, policy: &Policy, now_us: u64, spent_us: u64, cost: u64) {
        match self {
            Self::TokenBucket(state) => state.refund(&policy.quota(), now_us, cost),
            Self::IntervalBucket(state) => state.refund(&policy.quota(), spent_us, cost),
            Self::Window(state) => state.refund(spent_us, cost),
            Self::SlidingWindow(state) => state.refund(&policy.quota(), spent_us, cost),
            Self::SlidingBuckets(state) => state.refund(spent_us, cost),
            Self::SlidingLog(state) => state.refund(spent_us, cost),
        }
    }

    /// The words of a settled state; `denied` is the cost that did not fit, or zero.
    pub(crate) fn words(&self, policy: &Policy, now_us: u64, denied: u64) -> Words {
        let quota = policy.quota();
        match self {
            Self::TokenBucket(state) => state.words(now_us),
            Self::IntervalBucket(state) => state.words(&quota, now_us),
            Self::Window(state) => state.words(&quota, now_us),
            Self::SlidingWindow(state) => state.words(&quota, now_us),
            Self::SlidingBuckets(state) => state.words(&quota, policy.buckets(), now_us, denied),
            Self::SlidingLog(state) => state.words(&quota, now_us, denied),
        }
    }

    /// When the state will equal a fresh one; `now_us` or earlier if it does already.
    pub(crate) fn fresh_at(&self, policy: &Policy) -> u64 {
        match self {
            Self::TokenBucket(state) => state.fresh_at(),
            Self::IntervalBucket(state) => state.fresh_at(&policy.quota()),
            Self::Window(state) => state.fresh_at(&policy.quota()),
            Self::SlidingWindow(state) => state.fresh_at(&policy.quota()),
            Self::SlidingBuckets(state) => state.fresh_at(policy.buckets()),
            Self::SlidingLog(state) => state.fresh_at(&policy.quota()),
        }
    }

    /// When the key that holds the state expires at a server.
    #[cfg(feature = "testing")]
    pub(crate) fn expires_ms(&self, policy: &Policy) -> u64 {
        let last_us = match self {
            Self::TokenBucket(state) => state.full_us(),
            _ => self.fresh_at(policy),
        };
        last_us / 1_000 + 1
    }

    /// What the script stores.
    #[cfg(feature = "testing")]
    pub(crate) fn to_value(&self) -> crate::testing::Value {
        use crate::testing::Value;
        match self {
            Self::TokenBucket(state) => Value::Bytes(state.to_bytes()),
            Self::IntervalBucket(state) => Value::Bytes(state.to_bytes()),
            Self::Window(state) => Value::Bytes(state.to_bytes()),
            Self::SlidingWindow(state) => Value::Bytes(state.to_bytes()),
            Self::SlidingBuckets(state) => Value::Bytes(state.to_bytes()),
            Self::SlidingLog(state) => Value::List(state.to_list()),
        }
    }
}

/// The bytes of a state that is a few doubles.
#[cfg(feature = "testing")]
fn doubles(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|&word| (word as f64).to_le_bytes()).collect()
}
