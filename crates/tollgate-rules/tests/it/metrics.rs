//! The metrics of rules, and the keys that are denied most.

use std::{collections::BTreeMap, fmt::Write, fs, future::Future};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tollgate::limiter::DeniedKeys;
use tollgate_rules::{Descriptor, LimitOverride, RuleLimiter, Rules, Unit};

use super::{rules, still};

const RULES: &str = "
domain: d
descriptors:
  - {key: ten, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: detailed, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: never, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
";

/// The series of a snapshot by name and labels. Taking it sets counters and gauges to zero.
fn series(snapshotter: &Snapshotter) -> BTreeMap<String, f64> {
    let series = snapshotter.snapshot().into_vec().into_iter();
    let rules = series.filter(|(key, ..)| key.key().name().starts_with("tollgate_rule"));
    let one = |(key, unit, description, value): (
        metrics_util::CompositeKey,
        Option<_>,
        Option<_>,
        DebugValue,
    )| {
        let name = key.key().name().trim_start_matches("tollgate_rule");
        let labels: Vec<_> = key
            .key()
            .labels()
            .map(|label| format!(" {}={}", label.key(), label.value()))
            .collect();
        assert!(
            unit.is_some() && description.is_some(),
            "{name} is not described"
        );
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(_) => panic!("{name} is a histogram"),
        };
        (name.to_owned() + &labels.concat(), value)
    };
    rules.map(one).collect()
}

/// Returns the units of a rule: asked for, within, near, over and in shadow mode.
fn units(series: &BTreeMap<String, f64>, rule: &str) -> [f64; 5] {
    ["", "within_", "near_", "over_", "shadow_"]
        .map(|kind| series[&format!("_units_{kind}total rule={rule}")])
}

/// Runs `work` on one thread, with a recorder of its own.
fn record<F: Future<Output = ()>>(work: impl FnOnce(Snapshotter) -> F) {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(work(snapshotter)));
}

async fn check(limiter: &RuleLimiter, descriptor: Descriptor<'_>, hits: u32) {
    let _ = limiter.check("d", &[descriptor], hits).await.unwrap();
}

#[test]
fn units_are_counted_by_the_rules_of_the_file_and_by_where_they_lie() {
    record(async |snapshotter| {
        let limiter = RuleLimiter::new(Rules::new(rules(RULES)), still());
        for value in ["a", "a", "b"] {
            check(&limiter, Descriptor::from([("ten", value)]), 4).await;
            check(&limiter, Descriptor::from([("detailed", value)]), 1).await;
        }
        // Two of these three are over the limit, and none of them is charged.
        check(&limiter, Descriptor::from([("ten", "a")]), 3).await;
        for _ in 0..3 {
            check(&limiter, Descriptor::from([("shadow", "x")]), 1).await;
        }
        check(&limiter, Descriptor::from([("never", "x")]), 2).await;
        check(&limiter, Descriptor::from([("free", "x")]), 2).await;
        check(&limiter, Descriptor::from([("unknown", "x")]), 2).await;
        let limit = LimitOverride::new(5, Unit::Day);
        check(
            &limiter,
            Descriptor::from([("ten", "x")]).with_limit(limit),
            2,
        )
        .await;

        let series = series(&snapshotter);
        assert_eq!(units(&series, "d.ten"), [15.0, 12.0, 2.0, 1.0, 0.0]);
        assert_eq!(units(&series, "d.detailed"), [3.0, 3.0, 0.0, 0.0, 0.0]);
        assert_eq!(units(&series, "d.shadow"), [3.0, 1.0, 1.0, 2.0, 2.0]);
        assert_eq!(units(&series, "d.never"), [2.0, 0.0, 0.0, 2.0, 0.0]);
        assert_eq!(units(&series, "override"), [2.0, 2.0, 0.0, 0.0, 0.0]);
        assert_eq!(
            series.len(),
            5 * 5 + 4,
            "no other series: {:?}",
            series.keys()
        );
    });
}

#[test]
fn rules_keep_their_counters_when_they_are_replaced_and_the_names_are_bounded() {
    record(async |snapshotter| {
        let handle = Rules::new(rules(RULES));
        let limiter = RuleLimiter::new(handle.clone(), still());
        check(&limiter, Descriptor::from([("ten", "a")]), 1).await;
        handle.replace(rules(RULES));
        check(&limiter, Descriptor::from([("ten", "a")]), 1).await;

        let mut many = "domain: d\ndescriptors:\n".to_owned();
        for number in 0..1_100 {
            writeln!(many, "- {{key: k{number}, rate_limit: {{quota: 5/d}}}}").unwrap();
        }
        handle.replace(rules(&many));
        for number in 0..1_100 {
            check(
                &limiter,
                Descriptor::from([(format!("k{number}"), "x".to_owned())]),
                1,
            )
            .await;
        }
        handle.replace(rules(RULES));
        check(&limiter, Descriptor::from([("ten", "a")]), 1).await;

        let series = series(&snapshotter);
        assert_eq!(units(&series, "d.ten")[0], 3.0);
        assert_eq!(units(&series, "other")[0], 101.0);
        assert_eq!(series.len(), 5 * 1_001 + 4);
    });
}

#[test]
fn loads_are_counted_and_refused_files_show_until_they_are_right() {
    record(async |snapshotter| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rules.yaml");
        fs::write(&path, RULES).unwrap();
        let handle = Rules::load(&path).unwrap();
        // The last one is whether the time of the last change was set since the snapshot before.
        let loads = || {
            let series = series(&snapshotter);
            let load = |name: &str| series[name];
            [
                load("_loads_total outcome=succeeded"),
                load("_loads_total outcome=failed"),
                load("s_refused"),
                f64::from(u8::from(load("s_since_timestamp_seconds") > 1e9)),
            ]
        };
        assert_eq!(loads(), [1.0, 0.0, 0.0, 1.0]);
        fs::write(&path, "domain: [").unwrap();
        for _ in 0..2 {
            handle.reload().unwrap_err();
        }
        assert_eq!(loads(), [0.0, 2.0, 1.0, 0.0]);
        fs::write(&path, RULES).unwrap();
        handle.reload().unwrap();
        assert_eq!(
            loads(),
            [1.0, 0.0, 0.0, 0.0],
            "equal rules are in force since before"
        );
        fs::write(&path, RULES.replace("10}", "11}")).unwrap();
        handle.reload().unwrap();
        assert_eq!(loads(), [1.0, 0.0, 0.0, 1.0]);
    });
}

#[tokio::test]
async fn the_keys_that_are_denied_most_are_found_and_those_of_shadow_rules_too() {
    let denied_keys = DeniedKeys::with_plain_keys(10);
    let builder = RuleLimiter::builder(Rules::new(rules(RULES)), still());
    let limiter = builder.denied_keys(denied_keys.clone()).build();
    for _ in 0..3 {
        check(&limiter, Descriptor::from([("ten", "a")]), 5).await;
        check(&limiter, Descriptor::from([("shadow", "x")]), 1).await;
        check(&limiter, Descriptor::from([("never", "x")]), 1).await;
    }
    let top: Vec<_> = denied_keys
        .top(10)
        .iter()
        .map(|key| (key.name().to_owned(), key.denials()))
        .collect();
    let expected = [("d,(never,x)", 3), ("d,(shadow,x)", 2), ("d,(ten,a)", 1)];
    assert_eq!(
        top,
        expected.map(|(name, denials)| (name.to_owned(), denials))
    );
    assert_eq!(denied_keys.total(), 6);
}
