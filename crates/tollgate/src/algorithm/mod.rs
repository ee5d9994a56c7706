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
mod state;
#[cfg(test)]
mod tests;
mod token_bucket;

pub use kind::Algorithm;
pub(crate) use sliding_buckets::Buckets;
pub(crate) use state::{Settled, State};

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
    let (quota, words) = (policy.quota_ref(), &reading.words);
    let denied = if reading.fits { 0 } else { cost };
    match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => token_bucket::numbers(quota, words, denied),
        Algorithm::IntervalBucket => interval_bucket::numbers(quota, words, denied),
        Algorithm::FixedWindow | Algorithm::WindowFromFirstHit => fixed_window::numbers(quota, words, denied),
        Algorithm::SlidingWindow => sliding_window::numbers(quota, words, denied),
        Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog => counted(quota, words),
    }
}

/// How long after the decision the turn of a request comes that charged `charged` units; zero for
/// all but the queue.
pub(crate) fn delay_us(policy: &Policy, reading: &Reading, charged: u64) -> u64 {
    match policy.algorithm() {
        Algorithm::LeakyBucket => token_bucket::turn_us(policy.quota_ref(), &reading.words, charged),
        _ => 0,
    }
}

/// The words as they were `units` admitted units earlier at the same instant: what those said who
/// came before, of requests that were charged together.
#[cfg(feature = "redis")]
pub(crate) fn unspent(policy: &Policy, words: &Words, units: u64) -> Words {
    let mut words = *words;
    match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => token_bucket::unspend(policy.quota_ref(), &mut words, units),
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
    let (quota, words) = (policy.quota_ref(), &reading.words);
    // A bucket that is alone does not say the time, and does not ask for it either.
    let at_us = if at_us == 0 { crate::quota::MAX_EXACT } else { at_us };
    let mut state = match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            State::TokenBucket(token_bucket::State::of_words(words, at_us))
        }
        Algorithm::IntervalBucket => State::IntervalBucket(interval_bucket::State::of_words(quota, words, at_us)),
        Algorithm::FixedWindow | Algorithm::WindowFromFirstHit => {
            State::Window(fixed_window::State::of_words(quota, words, at_us))
        }
        Algorithm::SlidingWindow => State::SlidingWindow(sliding_window::State::of_words(quota, words, at_us)),
        Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog => {
            let [_, retry_us, reset_us, more_us] = words.map(|word| word.saturating_sub(passed_us));
            let fits = reading.fits || retry_us == 0;
            let used = if reset_us > 0 { words[0] } else { 0 };
            return Reading { fits, words: [used, if fits { 0 } else { retry_us }, reset_us, more_us] };
        }
    };
    let now_us = at_us + passed_us;
    let state = state.settle(policy, policy, now_us).state;
    Reading { fits: state.fits(policy, now_us, cost), words: state.words(policy, now_us, cost) }
}

/// The algorithms whose states grow say it all themselves: the units that count, then the three
/// times.
fn counted(quota: &Quota, words: &Words) -> Numbers {
    let [used, retry_us, reset_us, more_us] = *words;
    Numbers { remaining: quota.amount_u64().saturating_sub(used), retry_us, reset_us, more_us }
}

/// The bytes of a state that is a few doubles.
#[cfg(feature = "testing")]
fn doubles(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|&word| (word as f64).to_le_bytes()).collect()
}
