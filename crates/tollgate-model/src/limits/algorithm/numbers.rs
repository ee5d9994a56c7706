//! Derives what callers and scripts need from the reading of a level, for any algorithm.
//! How one algorithm does it is in its own file. The state of a key is in `state.rs`.

use std::ops::Range;

use super::{
    Adjust, Meter,
    level::{Numbers, PolicyLevel, Reading},
    state::{State, by_algorithm},
};
use crate::{
    Policy,
    charge::Ask,
    quota::{MAX_EXACT, Span},
};

/// Derives the numbers of a policy from its level after a check that asked for `ask`.
///
/// Only the time to retry depends on a ceiling: all else is said of checks without one.
pub fn numbers(policy: &Policy, level: &PolicyLevel, ask: impl Into<Ask>) -> Numbers {
    let (algorithm, reading) = (policy.algorithm(), &level.reading);
    let denied = ask.into().denied_unless(level.fits);
    let mut numbers =
        by_algorithm!(algorithm, Of => <Of as Meter>::numbers(policy, reading, denied));
    if denied.cost > 0 {
        if algorithm.facts().reading_len < reading.len() {
            // Only a leased policy has this integer: the time until missing units have lapsed.
            numbers.retry_us = numbers.retry_us.max(reading[3]);
        }
        numbers.reset_us = numbers.reset_us.max(numbers.retry_us);
    }
    numbers
}

/// Returns the delay of a request that charged `charged` units, in microseconds: the time until its
/// turn in a queue, or until the debt into which it went is paid.
pub(crate) fn delay_us(policy: &Policy, level: &PolicyLevel, charged: u64) -> u64 {
    by_algorithm!(policy.algorithm(), Of => <Of as Meter>::delay_us(policy, &level.reading, charged))
}

/// Returns the period whose units a policy counts, see [`Meter::period_us`].
pub(crate) fn period_us(policy: &Policy, now_us: u64, more_us: u64) -> Option<Range<u64>> {
    by_algorithm!(policy.algorithm(), Of => <Of as Meter>::period_us(policy, now_us, more_us))
}

/// Returns the end of the places of a request, see [`Meter::end_of`].
pub(crate) fn end_of(
    policy: &Policy,
    level: &PolicyLevel,
    is_owed: impl FnOnce() -> bool,
) -> Option<Span> {
    by_algorithm!(policy.algorithm(), Of => <Of as Meter>::end_of(&level.reading, is_owed))
}

/// Returns the most units that a policy spends in debt.
#[must_use]
pub fn most_spent(policy: &Policy) -> u64 {
    by_algorithm!(policy.algorithm(), Of => <Of as Adjust>::most_spent(policy))
}

/// Returns the numbers that a script takes behind the amount of a policy: up to three.
pub(crate) fn args(policy: &Policy) -> [Option<u64>; 3] {
    by_algorithm!(policy.algorithm(), Of => <Of as Meter>::args(policy))
}

/// Returns the numbers that a script takes of a ceiling: one or two.
pub(crate) fn ceiling_args(policy: &Policy, ask: Ask) -> (u64, Option<u64>) {
    by_algorithm!(policy.algorithm(), Of => <Of as Meter>::ceiling_args(policy, ask))
}

/// Returns the reading as it was before the last `units` units were charged at the same instant. A
/// batch returns only the reading after its last request, and this derives those of the others.
#[must_use]
pub fn unspent(policy: &Policy, reading: &Reading, units: u64) -> Reading {
    let mut reading = *reading;
    by_algorithm!(policy.algorithm(), Of => <Of as Meter>::unspend(policy, &mut reading, units));
    reading
}

/// Returns the level of a policy `passed_us` after it was `level` at `at_us`, if nobody spent
/// since.
#[must_use]
pub fn later(
    policy: &Policy,
    level: &PolicyLevel,
    at_us: u64,
    passed_us: u64,
    ask: impl Into<Ask>,
) -> PolicyLevel {
    let ask = ask.into();
    // The reply for a single bucket has no time. Any time gives the same result then.
    let at_us = if at_us == 0 { MAX_EXACT } else { at_us };
    let Some(mut state) = state_of(policy, &level.reading, at_us) else {
        let [_, retry_us, reset_us, more_us] =
            level.reading.map(|word| word.saturating_sub(passed_us));
        let fits = level.fits || retry_us == 0;
        let used = if reset_us > 0 { level.reading[0] } else { 0 };
        return PolicyLevel {
            fits,
            reading: [used, if fits { 0 } else { retry_us }, reset_us, more_us],
        };
    };
    let now_us = at_us + passed_us;
    state.note_debt(policy, None, at_us);
    let state = state.advance(policy, None, now_us).state;
    let mut later = PolicyLevel {
        fits: state.fits(policy, now_us, ask),
        reading: state.reading(policy, now_us, ask),
    };
    if !level.fits {
        later.reading[3] = level.reading[3].saturating_sub(passed_us);
        later.fits &= later.reading[3] == 0;
    }
    later
}

/// Returns the level of a policy `passed_us` after it was `level` at `at_us`, with at most `most`
/// units left.
#[must_use]
pub fn lowered(
    policy: &Policy,
    level: &PolicyLevel,
    at_us: u64,
    passed_us: u64,
    most: u64,
) -> PolicyLevel {
    // The reply for a single bucket has no time. Any time gives the same result then.
    let at_us = if at_us == 0 { MAX_EXACT } else { at_us };
    let lowered = by_algorithm!(policy.algorithm(), Of => {
        match <Of as Meter>::lowered(policy, &level.reading, passed_us, most) {
            Some(reading) => Some(PolicyLevel { fits: true, reading }),
            None => lowered_state::<Of>(policy, &level.reading, at_us, at_us + passed_us, most),
        }
    });
    if let Some(level) = lowered {
        return level;
    }
    let level = PolicyLevel {
        fits: true,
        ..*level
    };
    let mut level = later(policy, &level, at_us, passed_us, 0);
    let surplus = numbers(policy, &level, 0).remaining.saturating_sub(most);
    if surplus > 0 {
        let period_us = policy.quota_ref().period_us();
        let [used, _, reset_us, more_us] = level.reading;
        let more_us = if used == 0 { period_us } else { more_us };
        level.reading = [used + surplus, 0, reset_us.max(period_us), more_us];
    }
    level
}

/// Returns the level that [`lowered`] returns for a state that has this reading. `None` when the reading
/// is not the whole state.
///
/// Each decision that a lease makes passes here, but for those of a [bucket](super::bucket). The steps are those of [`later`], without the enum of
/// all states around them.
fn lowered_state<Of: Meter>(
    policy: &Policy,
    reading: &Reading,
    at_us: u64,
    now_us: u64,
    most: u64,
) -> Option<PolicyLevel> {
    let mut state = Of::of_reading(policy, reading, at_us)?;
    state.note_debt(policy, None, at_us);
    let (state, _) = state.advance(policy, None, now_us);
    let nothing = Ask::from(0);
    let fits = state.fits(policy, now_us, nothing);
    let mut reading = state.reading(policy, now_us, nothing);
    let remaining = Of::numbers(policy, &reading, nothing).remaining;
    if remaining > most {
        let mut state = Of::of_reading(policy, &reading, now_us)?;
        state.charge(policy, now_us, remaining - most, &[]);
        reading = state.reading(policy, now_us, nothing);
    }
    Some(PolicyLevel { fits, reading })
}

/// Returns the state that has this reading at `at_us`. `None` for an algorithm with more in its
/// state than in its reading.
fn state_of(policy: &Policy, reading: &Reading, at_us: u64) -> Option<State> {
    by_algorithm!(policy.algorithm(), Of => <Of as Meter>::of_reading(policy, reading, at_us).map(State::from))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{bucket::Bucket, token_bucket::TokenBucketState},
        *,
    };
    use crate::Quota;

    /// Draws quotas whose units take whole microseconds, parts of one, less than one, and days.
    fn quotas() -> impl Strategy<Value = Quota> {
        prop_oneof![
            Just(Quota::per_second(10)),
            Just(Quota::per_second(7).with_burst(3)),
            Just(Quota::per_second(900_000).with_burst(1_000_000_000)),
            Just(Quota::per_second(3_000_000).with_burst(1)),
            Just(Quota::per_day(3).with_burst(5)),
            (1..2_000_000_u64, 1..1_000_u64)
                .prop_map(|(amount, burst)| Quota::per_minute(amount).with_burst(burst)),
        ]
    }

    /// Draws a quota, the time until its bucket is full, a time that passes, and the most units left.
    fn lowerings() -> impl Strategy<Value = (Quota, Reading, u64, u64)> {
        quotas().prop_flat_map(|quota| {
            let (top, amount, burst) = (quota.span(quota.burst()).0, quota.amount(), quota.burst());
            let ahead = prop_oneof![Just(0), Just(top), 0..=top, 0..=2 * top + 1];
            let passed = prop_oneof![Just(0), 0..=10_u64, 0..=top + 1];
            let most = prop_oneof![Just(0), Just(burst), 0..=burst, 0..=burst + 1];
            (Just(quota), ahead, 0..amount, passed, most).prop_map(
                |(quota, ahead, part, passed_us, most)| {
                    (quota, [ahead, part, 0, 0], passed_us, most)
                },
            )
        })
    }

    /// Compares the reading that is lowered at once with that of the steps.
    fn is_lowered_as_by_steps<Of: Meter>(
        policy: &Policy,
        reading: &Reading,
        passed_us: u64,
        most: u64,
    ) -> bool {
        let steps = lowered_state::<Of>(policy, reading, 1_000, 1_000 + passed_us, most);
        let top = policy.quota_ref().span(policy.quota_ref().burst());
        let (whole, part) = (reading[0].saturating_sub(passed_us), reading[1]);
        match Of::lowered(policy, reading, passed_us, most) {
            Some(reading) => {
                steps
                    == Some(PolicyLevel {
                        fits: true,
                        reading,
                    })
            }
            // One that holds more than its burst takes the steps.
            None => (whole, part) > top,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn a_bucket_is_lowered_at_once_as_by_its_steps((quota, reading, passed_us, most) in lowerings()) {
            let queue = Policy::leaky_bucket("queue", quota);
            prop_assert!(is_lowered_as_by_steps::<Bucket>(&queue, &reading, passed_us, most));
            let tokens = Policy::token_bucket("tokens", quota);
            prop_assert!(is_lowered_as_by_steps::<TokenBucketState>(&tokens, &reading, passed_us, most));
        }
    }
}
