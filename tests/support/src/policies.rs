//! The quotas and policies that the laws are tried with.

use std::time::Duration;

use tollgate::{
    Algorithm, CalendarUnit, Cost, Costs, Key, Policy, PolicySet, Priority, Quota, store::Ceiling,
    testing,
};

use crate::Dice;

/// Every algorithm.
pub const ALGORITHMS: &[Algorithm] = &tollgate::testing::ALGORITHMS;

/// Returns whether exactly k times the amount accrues in k whole periods. Those that slide over
/// counters admit less, and a lockout admits nothing for a time.
#[must_use]
pub fn accrues_exactly(algorithm: Algorithm) -> bool {
    use Algorithm::{Lockout, SlidingBuckets, SlidingWindow};
    !matches!(
        algorithm,
        SlidingWindow | SlidingBuckets { .. } | Lockout { .. }
    )
}

/// Amounts and periods in µs: round, odd, tiny, prime, huge.
const QUOTAS: &[(u64, u64)] = &[
    (1, 1_000_000),
    (3, 1_000_000),
    (5, 1_000_000),
    (10, 7_000_000),
    (100, 60_000_000),
    (1_000_003, 86_400_000_000),
    (50_000, 86_400_000_000),
    (10, 3_600_000_000),
    (1_000, 1_000_000),
    (7, 3),
    (1, 1),
    (1, 50),
    (13, 1_000),
    (2, 999_983),
    (1_000_000, 1_000_000),
    (3, 315_360_000_000_000),
];

/// Amounts near 2³², 2⁴⁰ and 2⁴⁵, a trillion per month and the greatest amount, and periods in µs.
/// Most amounts do not divide their period.
const LARGE_QUOTAS: &[(u64, u64)] = &[
    (1_000_000_000_000, 2_592_000_000_000),
    (1_000_000_000_000, 86_400_000_000),
    (1_000_000_000_000, 3_600_000_000),
    (95_000_000, 86_400_000_000),
    ((1 << 32) - 1, 86_400_000_000),
    ((1 << 32) - 1, 315_360_000_000_000),
    ((1 << 32) - 5, 59_999_999),
    ((1 << 32) + 1, 2_592_000_000_000),
    ((1 << 40) - 87, 86_400_000_000),
    ((1 << 45) + 59, 315_359_999_999_999),
    (999_999_999_999_989, 2_592_000_000_000),
    (999_999_999_999_999, 315_360_000_000_000),
    (999_999_999_999_999, 1),
];

/// Draws a policy of this algorithm. Every fourth quota is a large one.
///
/// # Panics
///
/// Never: every quota of the list is valid.
pub fn policy(dice: &mut Dice, name: &str, algorithm: Algorithm) -> Policy {
    let quotas = if dice.below(4) == 0 {
        LARGE_QUOTAS
    } else {
        QUOTAS
    };
    drawn(dice, name, algorithm, quotas)
}

/// Draws a policy of this algorithm with a large quota. A sliding log has no large quota.
pub fn large_policy(dice: &mut Dice, name: &str, algorithm: Algorithm) -> Policy {
    let quotas = if algorithm == Algorithm::SlidingLog {
        QUOTAS
    } else {
        LARGE_QUOTAS
    };
    drawn(dice, name, algorithm, quotas)
}

fn drawn(dice: &mut Dice, name: &str, algorithm: Algorithm, quotas: &[(u64, u64)]) -> Policy {
    loop {
        // Not every list has a quota for every algorithm.
        let quotas = if dice.below(32) == 0 { QUOTAS } else { quotas };
        let (amount, mut period_us) = dice.pick(quotas);
        let algorithm = match algorithm {
            Algorithm::CalendarWindow { .. } => calendar(dice),
            other => other,
        };
        if let Algorithm::CalendarWindow { unit, anchor, .. } = algorithm {
            let every = anchor.map_or(1, |_| dice.pick(&[1, 1, 2, 3]));
            period_us = every * unit.nominal().as_micros() as u64;
        }
        let mut quota = Quota::try_new(amount, Duration::from_micros(period_us)).expect("a quota");
        if algorithm.has_burst() && dice.below(2) == 0 {
            let few = 1 + dice.below(2 * amount.min(40));
            let burst = dice.pick(&[
                few,
                few,
                few,
                few,
                amount - amount.min(2) + 1,
                1 << 31,
                1 << 32,
                amount / 7 + 1,
            ]);
            quota = quota.try_with_burst(burst).unwrap_or(quota);
        }
        let algorithm = match algorithm {
            Algorithm::SlidingBuckets { buckets } if dice.below(2) == 0 => {
                Algorithm::SlidingBuckets {
                    buckets: dice.pick(&[1, 2, 3, 7, buckets, 60]),
                }
            }
            Algorithm::Lockout { .. } => lockout(dice, period_us),
            other => other,
        };
        // Not every quota fits every algorithm; there are enough that do.
        if let Ok(policy) = Policy::try_new(name, algorithm, quota) {
            return policy;
        }
    }
}

/// Draws a lockout whose times are near the period of its quota.
fn lockout(dice: &mut Dice, period_us: u64) -> Algorithm {
    let first = dice.pick(&[
        1,
        period_us.div_ceil(3),
        period_us,
        period_us + 1,
        1_000,
        60_000_000,
    ]);
    let longest = first * dice.pick(&[1, 1, 2, 3, 5, 1_000]);
    Algorithm::Lockout {
        first: Duration::from_micros(first),
        longest: Duration::from_micros(longest),
    }
}

/// Returns a policy whose other times, if it has some, are its period.
///
/// # Panics
///
/// Panics when the quota is not valid for the algorithm.
#[must_use]
pub fn of_one_period(algorithm: Algorithm, quota: Quota) -> PolicySet {
    let algorithm = match algorithm {
        Algorithm::Lockout { .. } => Algorithm::Lockout {
            first: quota.period(),
            longest: quota.period(),
        },
        other => other,
    };
    Policy::try_new("p", algorithm, quota)
        .expect("a policy")
        .into()
}

/// Returns the period of a policy in microseconds, or the longest time of its lockout if that is
/// longer.
#[must_use]
pub fn longest_us(policy: &Policy) -> u64 {
    let period = policy.quota().period();
    let longest = match policy.algorithm() {
        Algorithm::Lockout { longest, .. } => period.max(longest),
        _ => period,
    };
    longest.as_micros() as u64
}

/// Draws a calendar window. Every second one has an anchor: days that few months have, and times
/// around which clocks are changed.
///
/// # Panics
///
/// Never: every zone and every anchor of the lists exists.
pub fn calendar(dice: &mut Dice) -> Algorithm {
    let zones = [
        "UTC",
        "Europe/Berlin",
        "Australia/Lord_Howe",
        "America/Havana",
        "Pacific/Kiritimati",
        "-09:30",
    ];
    let anchors = [
        "2026-01-31T09:30",
        "2096-02-29T00:30",
        "2095-08-30T02:30:15",
        "2026-03-29T01:15",
        "2098-12-31T23:59:59",
    ];
    let anchor = (dice.below(2) == 0).then(|| dice.pick(&anchors));
    Algorithm::CalendarWindow {
        unit: dice.pick(&CalendarUnit::ALL),
        zone: dice.pick(&zones).parse().expect("a zone"),
        anchor: anchor.map(|anchor| anchor.parse().expect("an anchor")),
    }
}

/// Draws a policy whose quota can be spent one unit at a time, and whose period is so short that
/// many of them fit into the microseconds that a double counts.
pub fn small_policy(dice: &mut Dice, name: &str, algorithm: Algorithm) -> Policy {
    loop {
        let policy = policy(dice, name, algorithm);
        let quota = policy.quota();
        if quota.burst() <= 1_000
            && quota.amount() <= 1_000
            && quota.period() <= Duration::from_secs(86_400)
        {
            return policy;
        }
    }
}

/// Returns the policy with the same rate and another amount: half of both the amount and the period
/// where these are even, and twice both otherwise. Returns an unchanged policy where no other fits
/// the algorithm.
#[must_use]
pub fn same_rate(policy: &Policy) -> Policy {
    let quota = policy.quota();
    let (amount, period_us) = (quota.amount(), quota.period().as_micros() as u64);
    let is_even = amount % 2 == 0 && period_us % 2 == 0;
    let (amount, period_us) = if is_even {
        (amount / 2, period_us / 2)
    } else {
        (amount * 2, period_us * 2)
    };
    let scaled = Quota::try_new(amount, Duration::from_micros(period_us))
        .and_then(|scaled| {
            if quota.burst() == quota.amount() {
                Ok(scaled)
            } else {
                scaled.try_with_burst(quota.burst())
            }
        })
        .and_then(|scaled| Policy::try_new(policy.name(), policy.algorithm(), scaled))
        .and_then(|scaled| {
            policy
                .level()
                .map_or(Ok(scaled.clone()), |level| scaled.try_at_level(level))
        })
        .and_then(|scaled| scaled.try_at_branch(policy.branch()));
    scaled.unwrap_or_else(|_| policy.clone())
}

/// Draws a set: one policy of `first`, and less than `most` others of any algorithm.
pub fn set(dice: &mut Dice, first: Algorithm, most: u64) -> PolicySet {
    let mut policies = vec![policy(dice, "p0", first)];
    for at in 1..=dice.below(most) {
        let algorithm = dice.pick(ALGORITHMS);
        policies.push(policy(dice, &format!("p{at}"), algorithm));
    }
    PolicySet::from(policies)
}

/// Draws a set of these algorithms, in this order, with other quotas each time.
pub fn set_of(dice: &mut Dice, algorithms: &[Algorithm]) -> PolicySet {
    let drawn = algorithms
        .iter()
        .enumerate()
        .map(|(at, &algorithm)| policy(dice, &format!("p{at}"), algorithm));
    PolicySet::from(drawn.collect::<Vec<_>>())
}

/// Draws a set as [`set`] does, for keys of three levels. Each policy meters the whole key or outer
/// levels.
pub fn nested_set(dice: &mut Dice, first: Algorithm, most: u64) -> PolicySet {
    let flat = set(dice, first, most);
    let policies = flat.iter().map(|policy| match dice.below(4) as u8 {
        0 => policy.clone(),
        level => policy.clone().at_level(level),
    });
    PolicySet::from(policies.collect::<Vec<_>>())
}

/// Draws a set as [`set`] does, for keys of three branches with up to two levels: see
/// [`branched_key`].
pub fn branched_set(dice: &mut Dice, first: Algorithm, most: u64) -> PolicySet {
    let flat = set(dice, first, most);
    let policies = flat.iter().map(|policy| {
        let policy = policy.clone().at_branch(1 + dice.below(3) as u8);
        if dice.below(4) == 0 {
            policy.at_level(1)
        } else {
            policy
        }
    });
    PolicySet::from(policies.collect::<Vec<_>>())
}

/// Draws a key of three branches, of which each has one or two levels. Few parts are drawn, so keys
/// often have a branch or a level in common, also at other places.
pub fn branched_key(dice: &mut Dice) -> Key {
    let branch = |dice: &mut Dice| {
        let outer = Key::from(dice.below(3));
        if dice.below(3) == 0 {
            outer.child(dice.below(2))
        } else {
            outer
        }
    };
    let key = branch(dice);
    let key = key.with_branch(branch(dice));
    key.with_branch(branch(dice))
}

/// Draws a ceiling for each policy, which is not below the cost: the share of one priority, or any.
/// Only a bucket waits for what is above it.
#[must_use]
pub fn ceilings(dice: &mut Dice, set: &PolicySet, costs: &Costs) -> Vec<Ceiling> {
    let priority = (dice.below(3) == 0).then(|| Priority::percent(1 + dice.below(100) as u8));
    let draw = |policy: &Policy| {
        let (quota, burst) = (policy.quota(), policy.quota().burst());
        let cost = costs
            .cost_of(policy.name())
            .map_or(0, Cost::units)
            .min(burst);
        if let Some(priority) = priority {
            return testing::ceiling(priority.units_of(burst).max(cost), 0);
        }
        let period = quota.period().as_micros() as u64;
        let unit = period / quota.amount();
        let units = [
            cost,
            burst,
            cost + (burst - cost) / 2,
            burst - dice.below(burst - cost + 1),
        ];
        let waits = [
            0,
            1,
            unit,
            unit + 1,
            period - 1,
            period,
            dice.below(9 * period),
            1 << 60,
        ];
        let wait_us = if policy.algorithm().has_burst() {
            dice.pick(&waits)
        } else {
            0
        };
        testing::ceiling(dice.pick(&units), wait_us)
    };
    set.iter().map(draw).collect()
}

/// Returns the most units that may be admitted in any half-open interval of `span_us`, without
/// those that were returned.
///
/// A timer that a returned unit has started goes on, so one unit more fits into the interval.
///
/// # Panics
///
/// For an algorithm without a formula.
#[must_use]
pub fn net_bound(policy: &Policy, span_us: u64) -> u64 {
    let is_started = matches!(
        policy.algorithm(),
        Algorithm::IntervalBucket | Algorithm::WindowFromFirstHit
    );
    bound(policy, span_us) + u64::from(is_started)
}

/// Returns the most units that may be admitted in any half-open interval of `span_us`.
///
/// # Panics
///
/// For an algorithm without a formula.
#[must_use]
pub fn bound(policy: &Policy, span_us: u64) -> u64 {
    let (quota, span) = (policy.quota(), u128::from(span_us));
    let (amount, burst, period) = (
        u128::from(quota.amount()),
        u128::from(quota.burst()),
        quota.period().as_micros(),
    );
    // n in W.
    let strict = amount * span.div_ceil(period);
    let most = match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => burst + amount * span / period,
        // The first spend starts the timer, so it lies before the first fill.
        Algorithm::IntervalBucket => burst - 1 + strict,
        // n in each window that the interval touches: two, and one more for each further period.
        Algorithm::FixedWindow => strict + amount,
        // A window holds its first hit; the rest of it and another whole one fit beside that.
        Algorithm::WindowFromFirstHit | Algorithm::SlidingWindow => {
            strict + amount - u128::from(span <= period)
        }
        Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog => strict,
        Algorithm::Lockout { first, .. } => {
            amount * ((span - 1).div_ceil(period.min(first.as_micros())) + 1)
        }
        algorithm => panic!("no bound is known for {algorithm:?}"),
    };
    u64::try_from(most).expect("a bound")
}
