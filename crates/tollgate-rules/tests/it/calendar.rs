//! Limits whose windows are periods of the calendar.

use tollgate::{Algorithm, CalendarUnit, Policy};

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
                zone,
                anchor: None,
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

#[test]
fn a_limit_begins_with_its_customer() {
    let shown = |limit: &str| {
        let set = rules(&with(limit));
        let rule = set.rules().next().unwrap();
        (
            rule.policies().unwrap().iter().next().unwrap().clone(),
            rule.limit().to_string(),
        )
    };
    let (policy, text) = shown(
        "unit: month, requests_per_unit: 5, time_zone: Europe/Lisbon, begins: 2026-01-17T09:30",
    );
    let zone = "Europe/Lisbon".parse().unwrap();
    let expected = Policy::calendar_window("k", 5, CalendarUnit::Month, zone);
    let anchor = "2026-01-17T09:30".parse().unwrap();
    assert_eq!(policy, expected.with_anchor(anchor).unwrap());
    assert_eq!(text, "5/month in Europe/Lisbon from 2026-01-17T09:30");
    let (policy, text) =
        shown("window: 30d, requests_per_unit: 5, time_zone: UTC, begins: '2026-01-17'");
    let window = "calendar_window(day, UTC, 2026-01-17T00:00)";
    assert_eq!(policy.algorithm().to_string(), window);
    assert_eq!(text, "5/30d in UTC from 2026-01-17T00:00");
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
        (
            "unit: day, requests_per_unit: 5, time_zone: UTC, begins: 2026-02-30",
            "or without a time, as in 2026-01-17T09:30, got \"2026-02-30\"",
        ),
        (
            "unit: day, requests_per_unit: 5, begins: 2026-01-17",
            "needs a time_zone beside it",
        ),
        (
            "quota: 5/day, time_zone: UTC, begins: 2026-01-17",
            "must not stand beside begins",
        ),
        (
            "window: 36h, requests_per_unit: 5, time_zone: UTC, begins: 2026-01-17",
            "needs a window of whole days",
        ),
        (
            "window: 30d, requests_per_unit: 5, time_zone: UTC",
            "must not stand beside time_zone",
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
