//! Values as code and files have them: a text is read as it is written, and what is wrong is
//! refused with its field and its value.

use std::time::Duration;

use tollgate::{
    Algorithm, CalendarUnit, Enforcement, Lease, Policy, Quota, TimeZone, permits::Concurrency,
    testing::ALGORITHMS,
};

/// Returns policies of an algorithm that differ in each part of their text.
fn policies(algorithm: Algorithm) -> Vec<Policy> {
    let period = match algorithm {
        Algorithm::CalendarWindow { unit, .. } => unit.nominal(),
        _ => Duration::from_micros(86_399_999_999),
    };
    let plain = Policy::try_new("a/b-c.d_E", algorithm, Quota::new(90_000, period));
    let plain = plain.expect("a policy");
    let lease = Lease::new()
        .generation(Duration::from_millis(1_500))
        .share(7);
    let burst = plain.quota().with_burst(123);
    [
        plain.clone(),
        plain.clone().at_level(2).at_branch(3),
        plain.clone().unranked(),
        plain.clone().unranked().hidden(),
    ]
    .into_iter()
    .chain(plain.with_quota(Quota::new(0, period)))
    .chain(plain.clone().try_leased(lease))
    .chain(plain.with_quota(burst))
    .collect()
}

#[test]
fn every_policy_is_read_as_it_is_written() {
    let odd = Duration::from_micros(61_000_001);
    let others = [
        Algorithm::Lockout {
            first: odd,
            longest: odd * 3,
        },
        Algorithm::SlidingBuckets { buckets: 1_000 },
        Algorithm::CalendarWindow {
            unit: CalendarUnit::Month,
            zone: "Europe/Lisbon".parse().expect("a zone"),
            anchor: "2026-01-31T09:30:15".parse().ok(),
        },
    ];
    for algorithm in ALGORITHMS.into_iter().chain(others) {
        let all = policies(algorithm);
        assert!(all.len() >= 4, "{algorithm}");
        for policy in all {
            let read: Policy = policy.to_string().parse().expect("a policy");
            assert_eq!(read, policy, "{policy}");
        }
    }
}

#[test]
fn a_text_that_is_no_policy_is_refused_with_what_is_right() {
    let long = "x".repeat(401);
    for (text, message) in [
        (
            "",
            r#"policy "" needs a name and a quota, as in api=100/min, token_bucket"#,
        ),
        (
            "api=1/s, token_bucket, level x",
            r#"has no number in "level x""#,
        ),
        (
            "api=1/s, token_bucket, level 9",
            "policy level must be 1 to 4, got 9 in policy api",
        ),
        (
            "api=1/s, token_bucket, shiny",
            r#"has the unknown part "shiny""#,
        ),
        (
            "api=1/s, token_bucket, leased(5s)",
            "has a lease without terms",
        ),
        (
            "api=1/s, token_bucket, leased(5s, 1/8)",
            "lease share of the burst must be at least 8 units",
        ),
        ("a b=1/s, token_bucket", "policy name must be"),
        (
            "api=1/s, bucket",
            "unknown algorithm \"bucket\", expected token_bucket, interval_bucket, leaky_bucket, fixed_window, \
             window_from_first_hit, sliding_window, sliding_log or sliding_buckets(10) or lockout(1m, 1h)",
        ),
        (
            "api=1/s, sliding_buckets(0)",
            "must have 1 to 1000 buckets, as in sliding_buckets(10)",
        ),
        (
            "api=1/s, sliding_buckets(+9)",
            "must have 1 to 1000 buckets, as in sliding_buckets(10)",
        ),
        (&long, "policy text must have at most 400 bytes, got 401"),
    ] {
        let error = text.parse::<Policy>().expect_err(text).to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_policy_that_cannot_be_is_refused_with_the_field_and_the_value() {
    let (second, day) = (Quota::per_second(5), Quota::per_day(4_294_967_296));
    let buckets = |buckets| Algorithm::SlidingBuckets { buckets };
    let micros = Quota::new(5, Duration::from_micros(9));
    for (algorithm, quota, message) in [
        (
            buckets(0),
            second,
            "policy buckets must be 1 to 1000, got SlidingBuckets { buckets: 0 } in policy p",
        ),
        (
            buckets(10_000),
            second,
            "policy buckets must be 1 to 1000, got SlidingBuckets { buckets: 10000 } in policy p",
        ),
        (
            buckets(10),
            micros,
            "policy buckets must not exceed the period in microseconds, got 5 per 9µs in policy p",
        ),
        (
            Algorithm::SlidingLog,
            Quota::per_day(1_000_000),
            "policy quota amount must be at most 100000 for a sliding log, got 1000000 per 86400s in policy p",
        ),
        (
            Algorithm::SlidingWindow,
            day,
            "policy quota amount must be at most 4294967295 for a sliding window, got 4294967296 per 86400s in policy p",
        ),
        (
            buckets(10),
            day,
            "policy quota amount must be at most 4294967295 for sliding buckets, got 4294967296 per 86400s in policy p",
        ),
    ] {
        let error = Policy::try_new("p", algorithm, quota).expect_err(message);
        assert_eq!(error.to_string(), message);
        let policy = Policy::try_new("p", algorithm, Quota::per_minute(1));
        if let Ok(policy) = policy {
            let error = policy.with_quota(quota).expect_err(message);
            assert_eq!(error.to_string(), message, "another quota");
        }
    }
    for (algorithm, quota) in [
        (buckets(1), second),
        (buckets(1_000), second),
        (buckets(9), micros),
        (Algorithm::SlidingLog, Quota::per_day(100_000)),
        (Algorithm::SlidingWindow, Quota::per_day(4_294_967_295)),
        (buckets(10), Quota::per_day(4_294_967_295)),
        (Algorithm::FixedWindow, Quota::per_day(999_999_999_999_999)),
        (Algorithm::TokenBucket, Quota::per_day(999_999_999_999_999)),
    ] {
        assert!(Policy::try_new("p", algorithm, quota).is_ok(), "{quota}");
    }
}

#[test]
fn names_that_are_unsafe_in_a_header_or_a_redis_key_are_refused() {
    let long = "x".repeat(65);
    for name in ["", "a b", "a:b", "a{b}", "ä", "a\"", "a\r\n", "\0", &long] {
        let policy = Policy::try_new(name, Algorithm::TokenBucket, Quota::per_second(1));
        let words = "must be 1 to 64 characters of A-Z a-z 0-9 - _ . /, got";
        assert_eq!(
            policy.expect_err(name).to_string(),
            format!("policy name {words} {name:?}")
        );
        assert_eq!(
            Concurrency::try_new(name, 1).expect_err(name).to_string(),
            format!("concurrency name {words} {name:?}")
        );
    }
    assert!(Concurrency::try_new("x".repeat(64), u32::MAX).is_ok());
}

#[test]
fn a_name_that_is_known_at_run_time_is_the_name_of_a_literal() {
    let named = |name: &str| {
        let policy = Policy::try_new(name, Algorithm::TokenBucket, Quota::per_second(1));
        policy.expect("a policy")
    };
    let literal = Policy::token_bucket("api", Quota::per_second(1));
    assert!(named("api") == literal && named("apj") != literal);
    assert!(literal.clone().at_branch(1) == literal && literal.clone().at_branch(2) != literal);
}

#[test]
fn a_life_of_permits_is_a_tenth_of_a_second_to_a_day() {
    let life = |life| Concurrency::new("a", 1).try_with_life(life);
    for wrong in [
        Duration::ZERO,
        Duration::from_millis(99),
        Duration::from_secs(86_401),
        Duration::MAX,
    ] {
        assert_eq!(
            life(wrong).expect_err("a wrong life").to_string(),
            format!("concurrency life must be 100ms to 1 day, got {wrong:?}")
        );
    }
    assert!(life(Duration::from_millis(100)).is_ok() && life(Duration::from_secs(86_400)).is_ok());
}

#[test]
fn a_share_is_a_whole_number_of_percent() {
    for (text, expected) in [("0%", 0), ("25%", 25), ("100%", 100)] {
        let enforcement: Enforcement = text.parse().expect("a share");
        assert_eq!(enforcement.percent(), expected);
        assert_eq!(enforcement.to_string(), text);
    }
    for text in [
        "", "%", "25", "101%", "256%", "+1%", "-1%", "2.5%", "25 %", "5O%",
    ] {
        assert!(text.parse::<Enforcement>().is_err(), "{text}");
    }
}

#[test]
fn a_zone_is_read_as_it_is_written_and_other_texts_are_refused() {
    let zone = |text: &str| text.parse::<TimeZone>();
    for name in [
        "UTC",
        "Europe/Berlin",
        "Australia/Lord_Howe",
        "+05:30",
        "-23:59",
        "+14:00",
    ] {
        let read = zone(name).expect("a zone");
        assert_eq!(read.to_string(), name);
        assert_eq!(zone(&name.to_lowercase()).expect("a zone"), read);
    }
    assert_eq!(zone("-00:00").expect("a zone"), TimeZone::UTC);
    for text in [
        "",
        "Mars/Olympus",
        "+5:30",
        "+05:60",
        "+24:00",
        "+05",
        "05:30",
        "+aa:00",
        "+é:00",
        "Etc/Unknown",
    ] {
        assert!(zone(text).is_err(), "{text:?}");
    }
}
