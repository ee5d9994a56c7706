//! Target: quotas and policies from configured values.

use std::{num::NonZeroUsize, time::Duration};

use proptest::prelude::*;
use tollgate::{
    Algorithm, Cost, ErrorKind, Limiter, MemoryStore, Policy, Quota, store::Clock,
    testing::ALGORITHMS,
};

use crate::{equal, hold};

/// The law: what exact arithmetic cannot hold is refused with its value, all else admits its burst
/// and names the wait to the microsecond.
#[test]
fn a_quota_is_refused_or_kept_to_the_microsecond() {
    hold(&inputs(), |input| law(&input));
}

#[derive(Clone, Debug)]
struct Input {
    amount: u64,
    burst: Option<u64>,
    period: Duration,
    algorithm: Algorithm,
    name: String,
    now_us: u64,
}

const TEN_YEARS_US: u128 = 3_650 * 86_400 * 1_000_000;
/// The greatest amount and burst: fifteen digits.
const MOST: u64 = 999_999_999_999_999;

/// The greatest amount of an algorithm with counters of four bytes.
const MOST_COUNTED: u64 = 4_294_967_295;

fn inputs() -> impl Strategy<Value = Input> {
    let amount = || {
        prop_oneof![
            4 => 1_u64..200,
            2 => (0_u32..52, -2_i64..=2).prop_map(|(power, off)| u64::try_from((1_i64 << power) + off).unwrap_or(0)),
            2 => 1..=MOST,
            1 => any::<u64>(),
            1 => prop::sample::select(vec![MOST_COUNTED, MOST_COUNTED + 1, MOST, MOST + 1, u64::MAX]),
        ]
    };
    let ten_years = u64::try_from(TEN_YEARS_US).expect("it fits");
    let period = prop_oneof![
        3 => (1_u64..100_000_000).prop_map(Duration::from_micros),
        2 => prop::sample::select(vec![1_u64, 60, 3_600, 86_400, 2_592_000]).prop_map(Duration::from_secs),
        1 => (0_u64..3_000).prop_map(Duration::from_nanos),
        1 => (ten_years - 3..ten_years + 3).prop_map(Duration::from_micros),
        1 => any::<u64>().prop_map(Duration::from_nanos),
        1 => any::<u64>().prop_map(Duration::from_secs),
    ];
    let algorithm = prop_oneof![
        9 => prop::sample::select(ALGORITHMS.to_vec()),
        1 => (0_u16..1_003).prop_map(|buckets| Algorithm::SlidingBuckets { buckets }),
        1 => (1_u16..12).prop_map(|buckets| Algorithm::SlidingBuckets { buckets }),
    ];
    let name = prop_oneof![
        6 => "[a-zA-Z0-9_./-]{1,64}",
        1 => "[a-z]{60,70}",
        1 => "[a-z:{}\" \\r\u{e4}]{0,6}",
    ];
    let burst = prop_oneof![2 => Just(None), 1 => amount().prop_map(Some)];
    // Also where the product of both begins to exceed the integers of a double.
    let edge = (4_u32..=49, -1_i64..=1).prop_map(|(power, off)| {
        let burst = u64::try_from((1_i64 << (53 - power)) + off).expect("at least 2^4 - 1");
        (1 << power, Some(burst))
    });
    let amount_and_burst = prop_oneof![15 => (amount(), burst), 1 => edge];
    (
        amount_and_burst,
        period,
        algorithm,
        name,
        1_u64 << 40..1 << 51,
    )
        .prop_map(|((amount, burst), period, algorithm, name, now_us)| Input {
            amount,
            burst,
            period,
            algorithm,
            name,
            now_us,
        })
}

fn law(input: &Input) -> Result<(), String> {
    let Input { amount, period, .. } = *input;
    let quota = Quota::try_new(amount, period);
    let expected = is_quota(amount, period, amount);
    let Some(quota) = refused_or(
        quota,
        expected,
        &[format!("{amount}"), format!("{period:?}")],
    )?
    else {
        return Ok(());
    };
    let burst = input.burst.unwrap_or(amount);
    let quota = match input.burst {
        None => quota,
        Some(burst) => {
            let values = [format!("{burst}")];
            match refused_or(
                quota.try_with_burst(burst),
                is_quota(amount, period, burst),
                &values,
            )? {
                Some(quota) => quota,
                None => return Ok(()),
            }
        }
    };
    let burst = if amount == 0 { 0 } else { burst };
    let whole = Duration::from_micros(
        u64::try_from(period.as_micros()).map_err(|error| error.to_string())?,
    );
    equal(
        "the quota",
        (quota.amount(), quota.period(), quota.burst()),
        (amount, whole, burst),
    )?;
    let values = [
        format!("{:?}", input.name),
        format!("in policy {}", input.name),
    ];
    let policy = Policy::try_new(input.name.as_str(), input.algorithm, quota);
    let Some(policy) = refused_or(policy, is_policy(input, burst), &values)? else {
        return Ok(());
    };
    equal(
        "the policy",
        (policy.name(), policy.algorithm(), policy.quota()),
        (input.name.as_str(), input.algorithm, quota),
    )?;
    // A log of thousands of entries takes long and shows nothing new.
    if input.algorithm == Algorithm::SlidingLog && burst > 300 {
        Ok(())
    } else {
        spend(input, policy, burst)
    }
}

/// Returns the value, or nothing where it was refused correctly, in a message that names one of
/// `values`.
fn refused_or<T>(
    result: Result<T, tollgate::Error>,
    is_right: bool,
    values: &[String],
) -> Result<Option<T>, String> {
    equal("whether it is accepted", result.is_ok(), is_right)?;
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            equal("the kind of the error", error.kind(), ErrorKind::Config)?;
            let message = error.to_string();
            let is_named = values.iter().any(|value| message.contains(value.as_str()));
            equal(
                &format!("whether {message:?} names the value"),
                is_named,
                true,
            )
            .map(|()| None)
        }
    }
}

fn is_quota(amount: u64, period: Duration, burst: u64) -> bool {
    let period_us = period.as_nanos() / 1_000;
    if amount == 0 {
        // It blocks, whatever the burst.
        return burst <= MOST && (1..=TEN_YEARS_US).contains(&period_us);
    }
    (1..=MOST).contains(&amount)
        && (1..=MOST).contains(&burst)
        && (1..=TEN_YEARS_US).contains(&period_us)
        && period_us * u128::from(burst) / u128::from(amount) <= TEN_YEARS_US
}

fn is_policy(input: &Input, burst: u64) -> bool {
    let is_name = |name: &str| {
        (1..=64).contains(&name.len())
            && name
                .chars()
                .all(|it| it.is_ascii_alphanumeric() || "-_./".contains(it))
    };
    let (amount, period_us) = (input.amount, input.period.as_micros());
    let is_whole = burst == input.amount;
    is_name(&input.name)
        && match input.algorithm {
            algorithm if algorithm.has_burst() => true,
            Algorithm::SlidingWindow => is_whole && amount <= MOST_COUNTED,
            Algorithm::SlidingBuckets { buckets } => {
                is_whole
                    && (1..=1_000).contains(&buckets)
                    && u128::from(buckets) <= period_us
                    && amount <= MOST_COUNTED
            }
            Algorithm::SlidingLog => is_whole && amount <= 100_000,
            _ => is_whole,
        }
}

/// Spends the burst at once, and waits as the answer says.
fn spend(input: &Input, policy: Policy, burst: u64) -> Result<(), String> {
    let clock = Clock::manual(input.now_us);
    let one = NonZeroUsize::MIN;
    let limiter = Limiter::new(
        MemoryStore::builder()
            .max_keys(one)
            .clock(clock.clone())
            .build(),
        policy,
    );
    let check = |units: u64| {
        let decision = limiter
            .check("key")
            .cost(Cost::new(units))
            .into_future()
            .into_ready();
        decision
            .map_err(|_| "it waits".to_owned())?
            .map_err(|error| error.to_string())
    };
    if burst == 0 {
        let blocked = check(1)?;
        return equal(
            "a quota of 0",
            (blocked.is_blocked(), blocked.retry_after()),
            (true, None),
        );
    }
    if let Some(above) = burst.checked_add(1) {
        equal(
            "whether more than the burst is an error",
            check(above).is_err(),
            true,
        )?;
    }
    let all = check(burst)?;
    let left = all.states().next().map(|state| state.remaining());
    equal("the burst", (all.is_allowed(), left), (true, Some(0)))?;
    let denied = check(1)?;
    let Some(wait) = denied.retry_after() else {
        return Err("one more passes".to_owned());
    };
    equal("whether there is a wait", wait > Duration::ZERO, true)?;
    clock.advance(wait - Duration::from_micros(1));
    equal("a microsecond early", check(1)?.is_allowed(), false)?;
    clock.advance(Duration::from_micros(1));
    equal("on time", check(1)?.is_allowed(), true)
}
