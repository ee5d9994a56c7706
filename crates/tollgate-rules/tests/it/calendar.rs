//! Limits whose windows are periods of the calendar.

use std::time::Duration;

use tollgate::{Algorithm, CalendarUnit, MemoryStore, store::Clock};
use tollgate_rules::{Descriptor, RuleLimiter, Rules};

use super::{envoy_refused, refused, rules};

fn with(limit: &str) -> String {
    format!("domain: d\ndescriptors:\n- key: k\n  rate_limit: {{{limit}}}\n")
}

#[test]
fn a_unit_with_a_time_zone_is_a_period_of_the_calendar() {
    for (unit, expected) in [
        ("day", CalendarUnit::Day),
        ("week", CalendarUnit::Week),
        ("month", CalendarUnit::Month),
        ("YEAR", CalendarUnit::Year),
    ] {
        let set = rules(&with(&format!(
            "unit: {unit}, requests_per_unit: 5, time_zone: Europe/Berlin"
        )));
        let rule = set.rules().next().unwrap();
        let policy = rule.policies().unwrap().iter().next().unwrap();
        let zone = "Europe/Berlin".parse().unwrap();
        assert_eq!(
            policy.algorithm(),
            Algorithm::CalendarWindow {
                unit: expected,
                zone
            }
        );
    }
    let set = rules(&with(
        "limits: [{unit: month, requests_per_unit: 5, time_zone: '+05:30'}, {quota: 1/s}]",
    ));
    let rule = set.rules().next().unwrap();
    assert_eq!(rule.policies().unwrap().len(), 2);
    assert_eq!(rule.limit().to_string(), "5/month in +05:30 and 1/s");
}

#[tokio::test]
async fn a_month_of_a_rule_ends_at_its_local_end() {
    // 2096-02-29 22:00 UTC is an hour before March in Berlin.
    let clock = Clock::manual(3_981_391_200_000_000);
    let set = rules(&with(
        "unit: month, requests_per_unit: 1, time_zone: Europe/Berlin",
    ));
    let limiter = RuleLimiter::new(
        Rules::new(set),
        MemoryStore::builder().clock(clock.clone()).build(),
    );
    let request = [Descriptor::from([("k", "x")])];
    assert!(limiter.check("d", &request, 1).await.unwrap().is_allowed());
    let denied = limiter.check("d", &request, 1).await.unwrap();
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(3_600)));
    clock.advance(Duration::from_secs(3_600));
    assert!(limiter.check("d", &request, 1).await.unwrap().is_allowed());
}

#[test]
fn a_time_zone_that_does_not_fit_is_refused_with_its_place() {
    for (limit, message) in [
        (
            "unit: hour, requests_per_unit: 5, time_zone: UTC",
            "needs the unit day, week, month or year",
        ),
        (
            "unit: day, requests_per_unit: 5, time_zone: Mars",
            "unknown time zone \"Mars\"",
        ),
        (
            "quota: 5/day, time_zone: UTC",
            "must not stand beside time_zone",
        ),
        (
            "unit: day, requests_per_unit: 5, burst: 9, time_zone: UTC",
            "must not stand beside time_zone",
        ),
        (
            "limits: [{quota: 5/s}], time_zone: UTC",
            "must not stand beside limits",
        ),
    ] {
        let errors = refused(&with(limit));
        let error = errors.iter().next().unwrap();
        assert!(error.to_string().contains(message), "{errors}");
        assert_eq!(error.line(), Some(4));
    }
    let errors = envoy_refused(&with("unit: day, requests_per_unit: 5, time_zone: UTC"));
    assert!(errors.to_string().contains("time_zone"), "{errors}");
}
