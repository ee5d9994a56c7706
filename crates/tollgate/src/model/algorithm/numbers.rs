//! Derives the numbers that a caller sees from the words of a level.

#[cfg(all(feature = "calendar", feature = "redis"))]
use super::calendar_window;
#[cfg(feature = "redis")]
use super::state::State;
use super::{fixed_window, interval_bucket, kind::Algorithm, sliding_window, token_bucket};
use crate::{Policy, Quota, model::cost::Ask};

/// Derives the numbers of a policy from its level after a check that asked for `ask`.
///
/// Only the time to retry depends on a ceiling: all else is said of checks without one.
pub(crate) fn numbers(policy: &Policy, level: &PolicyLevel, ask: impl Into<Ask>) -> Numbers {
    let (quota, words) = (policy.quota_ref(), &level.words);
    let denied = ask.into().denied_unless(level.fits);
    let mut numbers = match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            token_bucket::numbers(quota, words, denied.cost, token_bucket::ceiling_span(policy, denied))
        }
        Algorithm::IntervalBucket => interval_bucket::numbers(quota, words, denied),
        Algorithm::FixedWindow | Algorithm::WindowFromFirstHit => fixed_window::numbers(quota, words, denied),
        #[cfg(feature = "calendar")]
        Algorithm::CalendarWindow { .. } => fixed_window::numbers(quota, words, denied),
        Algorithm::SlidingWindow => sliding_window::numbers(quota, words, denied),
        Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog => counted(quota, words),
    };
    if denied.cost > 0 {
        if policy.algorithm().words() < words.len() {
            // Only a leased policy has this word: the time until missing units have lapsed.
            numbers.retry_us = numbers.retry_us.max(words[3]);
        }
        numbers.reset_us = numbers.reset_us.max(numbers.retry_us);
    }
    numbers
}

/// Returns the delay of a request that charged `charged` units, in microseconds: the time until its turn in a queue, or until
/// the debt into which it went is paid.
pub(crate) fn delay_us(policy: &Policy, level: &PolicyLevel, charged: u64) -> u64 {
    match policy.algorithm() {
        Algorithm::LeakyBucket => token_bucket::bucket_delay_us(policy.quota_ref(), &level.words, charged),
        Algorithm::TokenBucket if charged > 0 => token_bucket::debt_us(policy.quota_ref(), &level.words),
        Algorithm::IntervalBucket if charged > 0 => interval_bucket::debt_us(policy.quota_ref(), &level.words),
        _ => 0,
    }
}

/// Returns the words as they were before the last `units` units were charged at the same instant. A
/// batch returns only the words after its last request, and those of the others are derived here.
#[cfg(feature = "redis")]
pub(crate) fn unspent(policy: &Policy, words: &Words, units: u64) -> Words {
    let mut words = *words;
    match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => token_bucket::unspend(policy.quota_ref(), &mut words, units),
        Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog => {
            // The time to retry belongs to the last request of the batch, which was denied.
            (words[0], words[1]) = (words[0].saturating_sub(units), 0);
        }
        Algorithm::IntervalBucket
        | Algorithm::FixedWindow
        | Algorithm::WindowFromFirstHit
        | Algorithm::SlidingWindow => words[0] = words[0].saturating_sub(units),
        #[cfg(feature = "calendar")]
        Algorithm::CalendarWindow { .. } => words[0] = words[0].saturating_sub(units),
    }
    words
}

/// Returns the level of a policy `passed_us` after it was `level` at `at_us`, if nobody spent since.
#[cfg(feature = "redis")]
pub(crate) fn later(
    policy: &Policy,
    level: &PolicyLevel,
    at_us: u64,
    passed_us: u64,
    ask: impl Into<Ask>,
) -> PolicyLevel {
    let ask = ask.into();
    // The reply for a single bucket has no time. Any time gives the same result then.
    let at_us = if at_us == 0 { crate::model::quota::MAX_EXACT } else { at_us };
    let Some(mut state) = state_of(policy, &level.words, at_us) else {
        let [_, retry_us, reset_us, more_us] = level.words.map(|word| word.saturating_sub(passed_us));
        let fits = level.fits || retry_us == 0;
        let used = if reset_us > 0 { level.words[0] } else { 0 };
        return PolicyLevel { fits, words: [used, if fits { 0 } else { retry_us }, reset_us, more_us] };
    };
    let now_us = at_us + passed_us;
    state.mark_debt(policy, at_us);
    let state = state.settle(policy, policy, now_us).state;
    let mut later = PolicyLevel { fits: state.fits(policy, now_us, ask), words: state.words(policy, now_us, ask) };
    if !level.fits {
        later.words[3] = level.words[3].saturating_sub(passed_us);
        later.fits &= later.words[3] == 0;
    }
    later
}

/// Returns the level of a policy `passed_us` after it was `level` at `at_us`, with at most `most` units left.
#[cfg(feature = "redis")]
pub(crate) fn lowered(policy: &Policy, level: &PolicyLevel, at_us: u64, passed_us: u64, most: u64) -> PolicyLevel {
    let mut level = later(policy, &PolicyLevel { fits: true, ..*level }, at_us, passed_us, 0);
    let surplus = numbers(policy, &level, 0).remaining.saturating_sub(most);
    if surplus == 0 {
        return level;
    }
    let now_us = if at_us == 0 { crate::model::quota::MAX_EXACT } else { at_us } + passed_us;
    level.words = match state_of(policy, &level.words, now_us) {
        Some(mut state) => {
            state.charge(policy, now_us, surplus, &[]);
            state.words(policy, now_us, 0)
        }
        None => {
            let period_us = policy.quota_ref().period_us();
            let [used, _, reset_us, more_us] = level.words;
            let more_us = if used == 0 { period_us } else { more_us };
            [used + surplus, 0, reset_us.max(period_us), more_us]
        }
    };
    level
}

/// Returns the state that has these words at `at_us`. `None` for an algorithm with more in its state than in its words.
#[cfg(feature = "redis")]
fn state_of(policy: &Policy, words: &Words, at_us: u64) -> Option<State> {
    let quota = policy.quota_ref();
    Some(match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            State::TokenBucket(token_bucket::State::of_words(words, at_us))
        }
        Algorithm::IntervalBucket => State::IntervalBucket(interval_bucket::State::of_words(quota, words, at_us)),
        Algorithm::FixedWindow | Algorithm::WindowFromFirstHit => {
            State::Window(fixed_window::State::of_words(quota, words, at_us))
        }
        #[cfg(feature = "calendar")]
        Algorithm::CalendarWindow { unit, zone } => {
            State::CalendarWindow(calendar_window::of_words(words, zone.periods(unit, at_us), at_us))
        }
        Algorithm::SlidingWindow => State::SlidingWindow(sliding_window::State::of_words(quota, words, at_us)),
        Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog => return None,
    })
}

/// Derives the numbers of an algorithm whose words already are the used units and the three times.
fn counted(quota: &Quota, words: &Words) -> Numbers {
    let [used, retry_us, reset_us, more_us] = *words;
    Numbers { remaining: quota.amount().saturating_sub(used), retry_us, reset_us, more_us }
}

/// The integers of one policy in the reply of a script. The pure functions return the same. The
/// algorithm defines the meaning of each word. Unused words are zero.
pub(crate) type Words = [u64; 4];

/// The level of one policy for one key at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyLevel {
    /// Is true when the cost fits, or fitted before it was charged.
    pub(crate) fits: bool,
    /// The state after the charge, or the unchanged state when nothing was charged.
    pub(crate) words: Words,
}

/// The numbers that a caller sees for one policy. Times are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// The units that would be admitted at this instant.
    pub(crate) remaining: u64,
    /// The time until the denied cost fits, if nobody else spends; 0 when it fits now.
    pub(crate) retry_us: u64,
    /// The time until the state equals a fresh one.
    pub(crate) reset_us: u64,
    /// The time until one unit more than `remaining` is available; 0 when nothing is spent.
    pub(crate) more_us: u64,
}
