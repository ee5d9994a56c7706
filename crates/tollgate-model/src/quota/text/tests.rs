use std::time::Duration;

use proptest::prelude::*;

use crate::Quota;

fn quota(amount: u64, period_us: u64, burst: u64) -> Quota {
    Quota::new(amount, Duration::from_micros(period_us)).with_burst(burst)
}

#[test]
fn quotas_are_read_in_all_forms() {
    const SECOND: u64 = 1_000_000;
    for (text, expected) in [
        ("100/min", quota(100, 60 * SECOND, 100)),
        ("100/m", quota(100, 60 * SECOND, 100)),
        ("100 / minute", quota(100, 60 * SECOND, 100)),
        ("10/s", quota(10, SECOND, 10)),
        ("5/10m", quota(5, 600 * SECOND, 5)),
        ("5/10 minutes", quota(5, 600 * SECOND, 5)),
        ("1000/1h30m", quota(1_000, 5_400 * SECOND, 1_000)),
        ("1000/1h 30m", quota(1_000, 5_400 * SECOND, 1_000)),
        ("1/500ms", quota(1, SECOND / 2, 1)),
        ("1/1s500ms", quota(1, 3 * SECOND / 2, 1)),
        (
            "1_000_000/day",
            quota(1_000_000, 86_400 * SECOND, 1_000_000),
        ),
        ("1/µs", quota(1, 1, 1)),
        ("3/2w burst 7", quota(3, 1_209_600 * SECOND, 7)),
        ("  100/min  burst  20 ", quota(100, 60 * SECOND, 20)),
    ] {
        assert_eq!(text.parse::<Quota>().unwrap(), expected, "{text}");
    }
}

#[test]
fn quotas_are_written_shortly() {
    const SECOND: u64 = 1_000_000;
    for (period_us, text) in [
        (1, "1/us"),
        (1_000, "1/ms"),
        (SECOND / 2, "1/500ms"),
        (SECOND, "1/s"),
        (SECOND + 1, "1/1s1us"),
        (90 * SECOND, "1/90s"),
        (60 * SECOND, "1/min"),
        (600 * SECOND, "1/10m"),
        (5_400 * SECOND, "1/90m"),
        (3_600 * SECOND, "1/hour"),
        (86_400 * SECOND, "1/day"),
        (7 * 86_400 * SECOND, "1/week"),
        (14 * 86_400 * SECOND, "1/2w"),
        (30 * 86_400 * SECOND, "1/30d"),
    ] {
        assert_eq!(quota(1, period_us, 1).to_string(), text);
    }
    assert_eq!(quota(100, 60 * SECOND, 20).to_string(), "100/min burst 20");
}

#[test]
fn every_error_names_the_text_the_place_and_the_right_form() {
    for (text, error) in [
        (
            "",
            r#"quota "", character 1: expected a number of units, as in 100/min, got the end"#,
        ),
        (
            "min",
            r#"quota "min", character 1: expected a number of units, as in 100/min, got "min""#,
        ),
        (
            "-1/min",
            r#"quota "-1/min", character 1: expected a number of units, as in 100/min, got "-""#,
        ),
        (
            "100",
            r#"quota "100", character 4: expected a slash, as in 100/min, got the end"#,
        ),
        (
            "1.5/s",
            r#"quota "1.5/s", character 2: expected a slash, as in 100/min, got ".""#,
        ),
        (
            "100/",
            r#"quota "100/", character 5: expected a period such as min or 10m, got the end"#,
        ),
        (
            "µ/s",
            r#"quota "µ/s", character 1: expected a number of units, as in 100/min, got "µ""#,
        ),
        (
            "1/10",
            r#"quota "1/10", character 5: expected a unit, one of us, ms, s, min, hour, day or week"#,
        ),
        (
            "100/Min",
            r#"quota "100/Min", character 5: unknown unit "Min", expected us, ms, s, min, hour, day or week"#,
        ),
        (
            "1/30m1h",
            r#"quota "1/30m1h", character 7: unit h must follow a longer unit, as in 1h30m"#,
        ),
        (
            "1/month",
            r#"quota "1/month", character 3: unit month has no fixed length, write the number of days, such as 30d"#,
        ),
        (
            "1/min 20",
            r#"quota "1/min 20", character 7: expected the end, or a burst as in 100/min burst 20, got "20""#,
        ),
        (
            "1/min burst=20",
            r#"quota "1/min burst=20", character 12: expected a number after burst, as in 100/min burst 20, got "=""#,
        ),
        (
            "1/min burst 2 3",
            r#"quota "1/min burst 2 3", character 15: expected the end, got "3""#,
        ),
        (
            "1/0s",
            r#"quota "1/0s", character 3: quota period must be at least 1 µs, got 0ns"#,
        ),
        (
            "1/min burst 0",
            r#"quota "1/min burst 0", character 13: quota burst must be at least 1, got 0"#,
        ),
        (
            "99999999999999999999/s",
            r#"quota "99999999999999999999/s", character 1: 99999999999999999999 is too large, the most is 999999999999999"#,
        ),
    ] {
        assert_eq!(text.parse::<Quota>().unwrap_err().to_string(), error);
    }
    let long = "1/18446744073709551615w"
        .parse::<Quota>()
        .unwrap_err()
        .to_string();
    assert!(
        long.contains("character 3: quota period must be at most 10 years (3650 days)"),
        "{long}"
    );
    let text = "9".repeat(101);
    assert_eq!(
        text.parse::<Quota>().unwrap_err().to_string(),
        r#"quota text must have at most 100 bytes, got 101 in "99999999999999999999"…"#
    );
}

#[test]
fn a_period_is_read_alone() {
    assert_eq!(
        Quota::parse_period("1h30m").unwrap(),
        Duration::from_secs(5_400)
    );
    assert_eq!(
        Quota::parse_period("10m burst 3").unwrap_err().to_string(),
        r#"period "10m burst 3", character 5: expected the end, got "burst""#
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_quota_is_read_as_it_is_written(
        amount in prop_oneof![1..1_000_u64, 1..=999_999_999_999_999_u64],
        period_us in prop_oneof![
            1..=315_360_000_000_000_u64,
            (1..=315_360_000_u64).prop_map(|s| s * 1_000_000),
            (1..=5_256_000_u64).prop_map(|m| m * 60_000_000),
            (1..=3_650_u64).prop_map(|d| d * 86_400_000_000),
        ],
        burst in 1..=999_999_999_999_999_u64,
    ) {
        let quota = Quota::try_new(amount, Duration::from_micros(period_us)).unwrap();
        let quota = quota.try_with_burst(burst).unwrap_or(quota);
        let text = quota.to_string();
        prop_assert!(text.len() <= 60, "{}", text);
        prop_assert_eq!(text.parse::<Quota>().unwrap(), quota, "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused_with_its_place(text in r"[0-9a-zµ_/. \-]{0,12}|\PC{0,30}") {
        if let Err(error) = text.parse::<Quota>() {
            let error = error.to_string();
            prop_assert!(error.starts_with(&format!("quota {text:?}, character ")), "{}", error);
        }
    }

    #[test]
    fn nearly_right_texts_are_read_or_refused(
        text in r"[0-9_]{0,20} ?/ ?([0-9]{0,3}(us|µs|ms|s|min|m|h|d|w|week)){0,4}( burst [0-9]{0,4})?"
    ) {
        let _ = text.parse::<Quota>();
        let _ = Quota::parse_period(&text);
    }
}
