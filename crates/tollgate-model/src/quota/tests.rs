use super::*;

#[test]
fn every_error_names_the_field_and_the_value() {
    let second = Duration::from_secs(1);
    let cases = [
        (
            Quota::try_new(0, Duration::ZERO),
            "quota period must be at least 1 µs, got 0ns",
        ),
        (
            Quota::try_new(1, Duration::ZERO),
            "quota period must be at least 1 µs, got 0ns",
        ),
        (
            Quota::try_new(1, Duration::from_nanos(999)),
            "quota period must be at least 1 µs, got 999ns",
        ),
        (
            Quota::try_new(1, Duration::from_secs(86_400 * 3_651)),
            "quota period must be at most 10 years (3650 days), got 315446400s",
        ),
        (
            Quota::per_second(5).try_with_burst(0),
            "quota burst must be at least 1, got 0",
        ),
        (
            Quota::try_new(1_000_000_000_000_000, second),
            "quota amount must be at most 999999999999999, got 1000000000000000",
        ),
        (
            Quota::per_second(u64::from(u32::MAX)).try_with_burst(u64::MAX),
            "quota burst must be at most 999999999999999, got 18446744073709551615",
        ),
        (
            Quota::per_second(1).try_with_margin(Duration::MAX),
            "quota period must be at most 10 years (3650 days), got 18446744073709551615.999999999s",
        ),
        (
            Quota::per_day(1).try_with_burst(4_000),
            "quota burst takes too long to refill: burst × period / amount must be at most 10 years, got burst 4000 at 1 per 86400s",
        ),
    ];
    for (result, text) in cases {
        assert_eq!(result.unwrap_err().to_string(), text);
    }
}

#[test]
fn the_time_of_any_number_of_units_is_exact() {
    for (amount, period_us) in [
        (3, 1_000_000),
        (1_000_003, 86_400_000_000),
        (10, 7_000_000),
        (1, 1),
    ] {
        let quota =
            Quota::new(amount, Duration::from_micros(period_us)).with_burst(amount.min(1000));
        for units in 0..1_000_u64 {
            assert_span(&quota, units);
        }
    }
}

#[test]
fn the_time_of_the_greatest_quotas_is_exact() {
    for amount in [
        MAX_AMOUNT,
        MAX_AMOUNT - 1,
        1_000_000_000_000,
        (1 << 45) + 1,
        (1 << 40) - 1,
        1 << 32,
    ] {
        for period_us in [
            1,
            999_983,
            86_400_000_000,
            30 * 86_400_000_000,
            MAX_PERIOD_US,
        ] {
            let quota = Quota::new(amount, Duration::from_micros(period_us));
            for units in [0, 1, 1 << 31, 1 << 32, amount / 2, amount - 1, amount] {
                assert_span(&quota, units);
            }
            assert_eq!(quota.span(amount), (period_us, 0));
        }
    }
}

#[test]
fn the_time_of_the_burst_is_exact_where_its_product_is_large() {
    for (amount, period_us, burst) in [
        (1_000_003, 86_400_000_000, 1_000_000_000),
        (MAX_AMOUNT, MAX_PERIOD_US - 1, MAX_AMOUNT - 2),
        (999_983, 999_979, 12_345_678_901_234),
        (7, 3, 2),
    ] {
        let quota = Quota::new(amount, Duration::from_micros(period_us)).with_burst(burst);
        for units in [burst - 1, burst, burst + 1] {
            assert_span(&quota, units);
        }
    }
}

#[test]
fn an_amount_of_zero_blocks_in_every_form() {
    let second = Duration::from_secs(1);
    let minute = Quota::per_minute(0);
    for quota in [
        minute,
        minute.with_burst(7),
        minute.with_burst(0),
        "0/min".parse().unwrap(),
        minute.share(3, true),
    ] {
        assert!(quota.is_blocked());
        assert_eq!(
            (quota, quota.burst(), quota.to_string()),
            (minute, 0, "0/min".to_owned())
        );
    }
    assert_eq!("0/min burst 5".parse::<Quota>().unwrap(), minute);
    assert_eq!(Quota::per_minute(9).with_burst(3).blocked(), minute);
    assert!(minute.with_margin(second).is_blocked());
}

fn assert_span(quota: &Quota, units: u64) {
    let (whole, part) = quota.span(units);
    assert!(part < quota.amount());
    let exact = u128::from(units) * u128::from(quota.period_us());
    assert_eq!(
        u128::from(whole) * u128::from(quota.amount()) + u128::from(part),
        exact,
        "{quota:?} {units}"
    );
}

#[test]
fn shares_add_up_to_the_quota_when_the_period_is_stretched() {
    let share = Quota::per_second(10).share(4, true);
    assert_eq!(
        (share.amount(), share.period(), share.burst()),
        (10, Duration::from_secs(4), 2)
    );
    let share = Quota::per_second(10).share(5, true);
    assert_eq!(
        (share.amount(), share.period(), share.burst()),
        (2, Duration::from_secs(1), 2)
    );
    let share = Quota::per_second(1).share(9, false);
    assert_eq!((share.amount(), share.burst()), (1, 1));
}
