//! Numbers as header values.

use std::time::Duration;

use http::HeaderValue;
use tollgate::{Algorithm, Policy};

use super::text::value;

/// Numbers below this one have their text in [`TEXT`].
const SMALL: usize = 1_000;

/// The digits of all small numbers, three for each number: `000001002…999`.
static TEXT: &str = match str::from_utf8(&DIGITS) {
    Ok(text) => text,
    Err(_) => panic!("digits are ASCII"),
};

const DIGITS: [u8; 3 * SMALL] = {
    let (mut digits, mut number) = ([0; 3 * SMALL], 0);
    while number < SMALL {
        digits[3 * number] = b'0' + (number / 100) as u8;
        digits[3 * number + 1] = b'0' + (number / 10 % 10) as u8;
        digits[3 * number + 2] = b'0' + (number % 10) as u8;
        number += 1;
    }
    digits
};

/// Writes a number. A number below 1000 takes no allocation, because its text exists already: most waits are that short,
/// and under attack most responses carry one.
pub(crate) fn number_value(number: u64) -> HeaderValue {
    match small_text(number) {
        Some(text) => HeaderValue::from_static(text),
        None => value(itoa::Buffer::new().format(number).as_bytes()),
    }
}

/// Returns the units per second of an amount per period, rounded down.
pub(super) fn per_second(amount: u64, period: Duration) -> u64 {
    let per_second = u128::from(amount) * 1_000_000_000 / period.as_nanos().max(1);
    u64::try_from(per_second).unwrap_or(u64::MAX)
}

/// Returns the `q` and the `w` of a policy: the most units that can be had at once, and the time in which so many accrue.
///
/// With `q` as the amount, a bucket with a greater burst would have `r=8` beside `q=5`. A burst below the amount leaves the
/// amount and the period as they are: `r` is never above `q` then, and the shorter time might be less than a second.
pub(super) fn units_and_window(policy: &Policy) -> (u64, Duration) {
    let quota = policy.quota();
    let (amount, burst, period) = (quota.amount(), quota.burst(), quota.period());
    if burst <= amount {
        return (amount, period);
    }
    let periods = match policy.algorithm() {
        Algorithm::IntervalBucket => u128::from(burst.div_ceil(amount)) * period.as_nanos(),
        _ => (u128::from(burst) * period.as_nanos()).div_ceil(u128::from(amount)),
    };
    (burst, u64::try_from(periods).map_or(Duration::MAX, Duration::from_nanos))
}

fn small_text(number: u64) -> Option<&'static str> {
    let end = 3 * (usize::try_from(number).ok()?.min(SMALL) + 1);
    let len = match number {
        0..10 => 1,
        10..100 => 2,
        _ => 3,
    };
    TEXT.get(end - len..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_rounded_down_exactly() {
        for (amount, micros, expected) in
            [(7, 140_000, 50), (33, 1_100_000, 30), (10, 1_000_000, 10), (59, 60_000_000, 0), (u64::MAX, 1, u64::MAX)]
        {
            assert_eq!(per_second(amount, Duration::from_micros(micros)), expected, "{amount} in {micros} µs");
        }
    }

    #[test]
    fn a_policy_is_described_by_the_most_units_at_once_and_the_time_in_which_they_accrue() {
        use tollgate::Quota;

        let second = Duration::from_secs(1);
        for (amount, burst, units, window) in [
            (5, 10, 10, 2 * second),
            (5, 5, 5, second),
            (5, 1, 5, second),
            (5, 7, 7, second * 7 / 5),
            (3, 4, 4, Duration::from_nanos(1_333_333_334)),
        ] {
            let policy = Policy::token_bucket("a", Quota::per_second(amount).with_burst(burst));
            assert_eq!(units_and_window(&policy), (units, window), "{amount} burst {burst}");
        }
        let policy = Policy::interval_bucket("a", Quota::per_second(5).with_burst(7));
        assert_eq!(units_and_window(&policy), (7, 2 * second));
    }

    #[test]
    fn numbers_of_any_length_are_written_in_full() {
        for number in (0..=1_100).chain([4_294_967_295, u64::MAX]) {
            assert_eq!(number_value(number), number.to_string());
        }
    }
}
