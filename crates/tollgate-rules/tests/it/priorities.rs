//! Classes of requests that leave a share of each limit to others.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response};
use tollgate::{Cost, Priority};
use tollgate_rules::{
    Actions, Code, Descriptor, RequestRules, RuleLimiter, RuleWarningKind, Rules,
};
use tollgate_tower::{RateLimitLayer, key::Global};
use tower::{Layer, ServiceExt, service_fn};

use super::{envoy_refused, envoy_rules, refused, rules, still};

const CLASSES: &str = "
priorities:
- {name: critical, ceiling: 100%, key: path, value: /orders}
- {name: background, ceiling: 60%, key: path, value: /reports*}
- {name: batch, ceiling: 30%, key: batch}
- {name: default, ceiling: 90%}
";

const RULES: &str = "
domain: d
descriptors:
- {key: service, rate_limit: {quota: 10/h, algorithm: token_bucket}}
- {key: tenant, rate_limit: {quota: 20/h, algorithm: token_bucket}}
- {key: shadow, shadow_mode: true, rate_limit: {quota: 10/h, algorithm: token_bucket}}
";

fn limiter(yaml: &str) -> RuleLimiter {
    RuleLimiter::new(Rules::new(rules(yaml)), still())
}

fn request(entries: &[(&'static str, &'static str)]) -> Vec<Descriptor<'static>> {
    entries
        .iter()
        .map(|entry| Descriptor::from([*entry]))
        .collect()
}

/// Returns how many requests pass, one after the other.
async fn passed(limiter: &RuleLimiter, entries: &[(&'static str, &'static str)]) -> usize {
    let mut passed = 0;
    while limiter
        .check("d", &request(entries), 1)
        .await
        .unwrap()
        .is_allowed()
    {
        passed += 1;
        assert!(passed < 100);
    }
    passed
}

#[tokio::test]
async fn each_class_spends_up_to_its_ceiling_of_one_counter() {
    let limiter = limiter(&format!("{RULES}{CLASSES}"));
    let service = ("service", "all");
    assert_eq!(passed(&limiter, &[service, ("batch", "7")]).await, 3);
    assert_eq!(
        passed(&limiter, &[service, ("path", "/reports/7")]).await,
        3
    );
    assert_eq!(passed(&limiter, &[service, ("path", "/search")]).await, 3);
    assert_eq!(passed(&limiter, &[service, ("path", "/orders")]).await, 1);
}

#[tokio::test]
async fn the_first_class_of_the_file_counts_whatever_the_order_of_the_request() {
    let set = rules(&format!("{RULES}{CLASSES}"));
    for (entries, expected) in [
        (vec![("batch", "1"), ("path", "/orders")], ("critical", 100)),
        (vec![("path", "/orders"), ("batch", "1")], ("critical", 100)),
        (
            vec![("batch", "1"), ("path", "/reports")],
            ("background", 60),
        ),
        (vec![("path", "/orders/7"), ("batch", "")], ("batch", 30)),
        (vec![("service", "all")], ("default", 90)),
    ] {
        let request = request(&entries);
        let plan = set.plan("d", &request, 1).unwrap();
        let class = plan.class().unwrap();
        assert_eq!(
            (class.name(), class.priority().as_percent()),
            expected,
            "{entries:?}"
        );
    }
    // An entry of a longer descriptor counts, too.
    let nested = [Descriptor::from([("service", "all"), ("batch", "1")])];
    assert_eq!(
        set.plan("d", &nested, 1).unwrap().class().unwrap().name(),
        "batch"
    );
}

#[tokio::test]
async fn a_request_of_no_class_is_critical() {
    let limiter = limiter(&format!(
        "{RULES}priorities:\n- {{name: low, ceiling: 1%, key: batch}}\n"
    ));
    assert_eq!(passed(&limiter, &[("service", "all")]).await, 10);
}

#[tokio::test]
async fn the_ceiling_holds_for_descriptors_that_are_decided_together_and_alone() {
    let yaml = format!("{RULES}{CLASSES}");
    let limiter = limiter(&yaml);
    // 6 of 10 bind before 12 of 20, and the denied request is free on both.
    assert_eq!(
        passed(
            &limiter,
            &[("service", "all"), ("tenant", "a"), ("path", "/reports")]
        )
        .await,
        6
    );
    let decision = limiter
        .check("d", &request(&[("tenant", "a"), ("path", "/orders")]), 1)
        .await
        .unwrap();
    assert_eq!(decision.verdict().statuses()[0].remaining(), 13);
    // A rule in shadow mode has a step of its own.
    for at in 0..8 {
        let decision = limiter
            .check("d", &request(&[("shadow", "a"), ("path", "/reports")]), 1)
            .await
            .unwrap();
        let usage = decision.verdict().statuses()[0].usage();
        let expected = if at < 6 { (1, 0, 0) } else { (0, 1, 1) };
        assert_eq!((usage.within, usage.over, usage.shadow), expected, "{at}");
    }
}

#[tokio::test]
async fn a_denial_below_the_ceiling_tells_the_exact_wait_and_counts_all_units_as_over() {
    let limiter = limiter(&format!("{RULES}{CLASSES}"));
    let report = request(&[("service", "all"), ("path", "/reports")]);
    for _ in 0..6 {
        assert!(limiter.check("d", &report, 1).await.unwrap().is_allowed());
    }
    let decision = limiter.check("d", &report, 1).await.unwrap();
    let status = &decision.verdict().statuses()[0];
    assert_eq!(
        (status.code(), status.usage().over, status.usage().within),
        (Code::OverLimit, 1, 0)
    );
    // One unit accrues in six minutes.
    assert_eq!(decision.retry_after(), Some(Duration::from_secs(360)));
}

#[tokio::test]
async fn units_above_the_share_are_denied_and_never_fit() {
    let limiter = limiter(&format!("{RULES}{CLASSES}"));
    let both = request(&[("service", "all"), ("tenant", "a"), ("path", "/reports")]);
    let decision = limiter.check("d", &both, 7).await.unwrap();
    assert!(decision.is_denied());
    assert_eq!(decision.retry_after(), None);
    assert!(limiter.check("d", &both, 6).await.unwrap().is_allowed());
}

#[tokio::test]
async fn an_unranked_limit_is_whole_for_every_class() {
    let plan = "- {key: plan, rate_limit: {quota: 20/h, unranked: true}}\n";
    let limiter = limiter(&format!("{RULES}{plan}{CLASSES}"));
    let report = ("path", "/reports");
    assert_eq!(passed(&limiter, &[("plan", "a"), report]).await, 20);
    // In one step with a limit that many share, of which a report has 60 %.
    assert_eq!(
        passed(&limiter, &[("tenant", "a"), ("plan", "b"), report]).await,
        12
    );
    assert_eq!(passed(&limiter, &[("plan", "b"), report]).await, 8);
    // Units up to the whole limit fit, and a denial names what is left of it.
    let decision = limiter
        .check("d", &request(&[("plan", "c"), report]), 20)
        .await
        .unwrap();
    assert!(decision.is_allowed());
    let limits: Vec<_> = rules(&format!("{RULES}{plan}"))
        .rules()
        .map(|rule| rule.limit().to_string())
        .collect();
    assert!(
        limits.contains(&"20/hour unranked".to_owned()),
        "{limits:?}"
    );
}

#[tokio::test]
async fn a_header_gives_the_class_in_a_layer() {
    let yaml = format!(
        "{RULES}{CLASSES}rate_limits:\n- actions: [{{generic_key: {{descriptor_key: service, descriptor_value: all}}}}]\n\
         - actions: [{{request_headers: {{header_name: x-batch, descriptor_key: batch}}}}]\n"
    );
    let limiter = limiter(&yaml);
    let layer = RateLimitLayer::new(limiter.for_requests("d"), Global);
    let service = layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let passed = async |header: Option<&str>| {
        let mut passed = 0;
        loop {
            let request = Request::get("/");
            let request = header
                .map_or(Request::get("/"), |value| request.header("x-batch", value))
                .body(())
                .unwrap();
            if service.clone().oneshot(request).await.unwrap().status() != 200 {
                return passed;
            }
            passed += 1;
        }
    };
    assert_eq!((passed(Some("1")).await, passed(None).await), (3, 6));
}

const ONE_SERVICE: &str = "
domain: d
rate_limits:
- actions: [{generic_key: {descriptor_key: service, descriptor_value: all}}]
- actions: [{request_headers: {header_name: x-batch, descriptor_key: batch}}]
descriptors:
- {key: service, rate_limit: {quota: 20/h, algorithm: token_bucket}}
";

/// Returns how many requests of two units pass a layer, first those of the path `/reports`, and the
/// status of the first that does not.
async fn passed_in_a_layer(
    limits: RequestRules,
    header: Option<&'static str>,
) -> Vec<(usize, u16)> {
    let layer = RateLimitLayer::builder(limits, Global)
        .cost(|_| Cost::new(2))
        .priority(|parts| {
            if parts.uri.path() == "/reports" {
                Priority::BACKGROUND
            } else {
                Priority::CRITICAL
            }
        });
    let service = layer.build().layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let mut all = Vec::new();
    for path in ["/reports", "/orders"] {
        let mut passed = 0;
        let status = loop {
            let request = Request::get(path);
            let request = header
                .map_or(Request::get(path), |value| request.header("x-batch", value))
                .body(())
                .unwrap();
            match service
                .clone()
                .oneshot(request)
                .await
                .unwrap()
                .status()
                .as_u16()
            {
                200 => passed += 1,
                status => break status,
            }
            assert!(passed < 100);
        };
        all.push((passed, status));
    }
    all
}

#[tokio::test]
async fn a_layer_gives_the_cost_and_the_priority_of_requests_without_a_class() {
    let limits = |yaml: &str| limiter(yaml).for_requests("d");
    assert_eq!(
        passed_in_a_layer(limits(ONE_SERVICE), None).await,
        [(6, 429), (4, 429)]
    );
    // The class of the file is in force before the priority of the layer.
    let classes =
        format!("{ONE_SERVICE}priorities:\n- {{name: batch, ceiling: 30%, key: batch}}\n");
    assert_eq!(
        passed_in_a_layer(limits(&classes), Some("1")).await,
        [(3, 429), (0, 429)]
    );
    assert_eq!(
        passed_in_a_layer(limits(&classes), None).await,
        [(6, 429), (4, 429)]
    );
}

#[tokio::test]
async fn limits_without_priorities_refuse_those_of_a_layer() {
    let leased = ONE_SERVICE.replace(
        "quota: 20/h, algorithm: token_bucket",
        "quota: 180/h, lease: true",
    );
    assert_eq!(
        passed_in_a_layer(limiter(&leased).for_requests("d"), None).await[0],
        (0, 500)
    );
    let envoy = "{domain: d, descriptors: [{key: service, rate_limit: {unit: hour, requests_per_unit: 20}}]}";
    let actions = Actions::new().fixed("service", "all");
    let limits = RuleLimiter::new(Rules::new(envoy_rules(envoy)), still()).for_requests("d");
    assert_eq!(
        passed_in_a_layer(limits.descriptors(actions), None).await,
        [(0, 500), (10, 429)]
    );
}

#[test]
fn mistakes_name_the_field_and_the_value() {
    let error =
        |classes: &str| refused(&format!("domain: d\npriorities:\n{classes}\n")).to_string();
    for (classes, expected) in [
        (
            "- {name: a, ceiling: 0%}",
            "line 3, column 22: priorities[0].ceiling: must be 1% to 100%, got the text \"0%\"",
        ),
        (
            "- {name: a}",
            "line 3, column 3: priorities[0].ceiling: is missing",
        ),
        (
            "- {ceiling: 5%}",
            "line 3, column 3: priorities[0].name: is missing",
        ),
        (
            "- {name: '', ceiling: 5%}",
            "line 3, column 10: priorities[0].name: must not be empty",
        ),
        (
            "- {name: a, ceiling: 5%, value: b}",
            "line 3, column 3: priorities[0].value: must stand beside a key",
        ),
        (
            "- {name: a, ceiling: 5%, when: b}",
            "line 3, column 26: priorities[0].when: unknown field, expected name, ceiling, key or value",
        ),
        (
            "- {name: a, ceiling: 5%}\n- {name: b, ceiling: 6%, key: k}",
            "line 3, column 3: priorities[0].key: is missing in class \"a\", only the last class may leave it out",
        ),
        (
            "- {name: a, ceiling: 5%, key: k}\n- {name: a, ceiling: 6%}",
            "line 4, column 3: priorities[1].name: class \"a\" appears twice, first at line 3",
        ),
        (
            "  a: 5%",
            "line 3, column 3: priorities: expected a list, got a mapping",
        ),
    ] {
        assert_eq!(error(classes), expected, "{classes}");
    }
    let error = envoy_refused("{domain: d, priorities: []}").to_string();
    assert!(
        error.contains("field priorities is an addition of Tollgate"),
        "{error}"
    );
}

#[test]
fn a_leased_limit_has_no_priorities() {
    let lease = "descriptors:\n- {key: a, descriptors: [{key: b, rate_limit: {quota: 1000/s, lease: true}}]}\n";
    let error = refused(&format!(
        "domain: d\n{lease}priorities:\n- {{name: low, ceiling: 50%}}\n"
    ))
    .to_string();
    assert_eq!(
        error,
        "line 5, column 3: priorities: class \"low\" has a ceiling below 100%, and the limit at line 3 is leased: its units \
         have no priority"
    );
    rules(&format!(
        "domain: d\n{lease}priorities:\n- {{name: all, ceiling: 100%}}\n"
    ));
    let unranked = lease.replace("lease: true", "lease: true, unranked: true");
    rules(&format!(
        "domain: d\n{unranked}priorities:\n- {{name: low, ceiling: 50%}}\n"
    ));
}

#[test]
fn classes_without_a_request_are_warned_of() {
    let set = rules(
        "
domain: d
rate_limits:
- actions: [{path: {descriptor_key: path}}]
priorities:
- {name: reports, ceiling: 60%, key: path, value: /reports*}
- {name: yearly, ceiling: 30%, key: path, value: /reports/yearly-*}
- {name: one, ceiling: 30%, key: path, value: /reports/1}
- {name: batch, ceiling: 30%, key: batch}
- {name: others, ceiling: 90%}
",
    );
    let warnings: Vec<_> = set
        .warnings()
        .iter()
        .map(|warning| (warning.kind(), warning.to_string()))
        .collect();
    let covered = |line: u32, name: &str| {
        let text = format!(
            "line {line}: class {name:?} is never selected, because class \"reports\" (line 6) has all its requests"
        );
        (RuleWarningKind::NeverSelected, text)
    };
    let unknown =
        "line 9: class \"batch\" has the key \"batch\", which no action of rate_limits makes";
    let expected = [
        covered(7, "yearly"),
        covered(8, "one"),
        (RuleWarningKind::UnknownName, unknown.to_owned()),
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn classes_are_listed_in_the_order_of_the_file() {
    let set = rules(&format!("{RULES}{CLASSES}"));
    let classes: Vec<_> = set
        .priorities("d")
        .map(|class| (class.name(), class.priority()))
        .collect();
    assert_eq!(classes[1], ("background", Priority::BACKGROUND));
    assert_eq!(classes.len(), 4);
    assert_eq!(set.priorities("other").count(), 0);
}
