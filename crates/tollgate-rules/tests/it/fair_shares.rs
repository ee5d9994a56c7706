//! Limits that customers share fairly.

use std::convert::Infallible;

use http::{Request, Response};
use tollgate::Priority;
use tollgate_rules::{Actions, Descriptor, RuleLimiter, Rules};
use tollgate_tower::{RateLimitLayer, key::Global};
use tower::{Layer, ServiceExt, service_fn};

use super::{envoy_refused, refused, rules, still};

const PLAIN: &str = "
domain: d
descriptors:
- {key: service, rate_limit: {quota: 1000/s, algorithm: token_bucket}}
- {key: tenant, rate_limit: {quota: 10000/h, unranked: true}}
";

const FAIR: &str = "fair_shares: {key: tenant, weights: {gold: 100, '7': 100}}\n";

fn limiter(yaml: &str) -> RuleLimiter {
    RuleLimiter::new(Rules::new(rules(yaml)), still())
}

/// Returns how many requests of a tenant pass, one after the other.
async fn passed(limiter: &RuleLimiter, tenant: Option<&'static str>) -> usize {
    let service = Descriptor::from([("service", "all")]);
    let tenant = tenant.map(|tenant| Descriptor::from([("tenant", tenant)]));
    let request: Vec<_> = [service].into_iter().chain(tenant).collect();
    let mut passed = 0;
    while limiter.check("d", &request, 1).await.unwrap().is_allowed() {
        passed += 1;
        assert!(passed <= 1_000);
    }
    passed
}

#[tokio::test]
async fn each_tenant_gets_its_share_of_a_limit_by_its_weight() {
    // By the hour: what a customer spent fades by the clock of the process.
    let plain = PLAIN.replace("1000/s", "1000/h");
    let first = async |tenant| passed(&limiter(&format!("{plain}{FAIR}")), tenant).await;
    // Alone, each has all but what is kept. All without a tenant are one.
    for tenant in [Some("acme"), Some("gold"), None] {
        assert_eq!(first(tenant).await, 880, "{tenant:?}");
    }
    for heavy in ["gold", "7"] {
        let both = limiter(&format!("{plain}{FAIR}"));
        let [mut acme, mut gold] = [0, 0];
        for _ in 0..1_000 {
            for (tenant, passed) in [("acme", &mut acme), (heavy, &mut gold)] {
                let service = Descriptor::from([("service", "all")]);
                let tenant = Descriptor::from([("tenant", tenant)]);
                let verdict = both.check("d", &[service, tenant], 1).await;
                *passed += u32::from(verdict.unwrap().is_allowed());
            }
        }
        assert!(gold > acme * 5 / 4, "{heavy}: {gold} and {acme}");
    }
    for heavy in [Some("acme"), None] {
        let limiter = limiter(&format!("{plain}{FAIR}"));
        let _ = passed(&limiter, heavy).await;
        assert_eq!(passed(&limiter, heavy).await, 0);
        assert!(passed(&limiter, Some("other")).await > 0);
    }
}

#[tokio::test]
async fn a_reload_brings_fair_shares_and_takes_them_away() {
    let limiter = limiter(PLAIN);
    let fair = rules(&format!("{PLAIN}{FAIR}"));
    limiter.rules().replace(fair);
    let shared = passed(&limiter, Some("acme")).await;
    assert!((100..900).contains(&shared), "{shared}");
    limiter.rules().replace(rules(PLAIN));
    assert_eq!(passed(&limiter, Some("acme")).await, 1_000 - shared);
}

#[tokio::test]
async fn a_layer_with_priorities_is_refused_beside_fair_shares() {
    let limits = limiter(&format!("{PLAIN}{FAIR}"))
        .for_requests("d")
        .descriptors(Actions::new().fixed("service", "all"));
    let layer = RateLimitLayer::builder(limits, Global)
        .priority(|_| Priority::BACKGROUND)
        .build();
    let service = layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let response = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.status(), 500);
}

#[tokio::test]
async fn a_layer_with_customers_is_refused_with_and_without_fair_shares() {
    for yaml in [PLAIN.to_owned(), format!("{PLAIN}{FAIR}")] {
        let limits = limiter(&yaml)
            .for_requests("d")
            .descriptors(Actions::new().fixed("service", "all"));
        let layer = RateLimitLayer::builder(limits, Global)
            .customer(Global)
            .build();
        let service = layer.layer(service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(String::new()))
        }));
        let response = service.oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), 500);
    }
}

#[test]
fn mistakes_name_the_field_and_the_value() {
    let error = |yaml: &str| refused(yaml).to_string();
    for (shares, expected) in [
        ("{weights: {acme: 2}}", "fair_shares.key: is missing"),
        ("{key: ''}", "fair_shares.key: must not be empty"),
        (
            "{key: tenant, weights: {acme: 0}}",
            "fair_shares.weights.acme: must be 1 to 1000, got 0",
        ),
        (
            "{key: tenant, weights: {acme: 1001}}",
            "fair_shares.weights.acme: must be 1 to 1000, got 1001",
        ),
        (
            "{key: tenant, weight: {acme: 2}}",
            "fair_shares.weight: unknown field, did you mean weights?",
        ),
    ] {
        let error = error(&format!("{PLAIN}fair_shares: {shares}\n"));
        assert!(error.contains(expected), "{shares}: {error}");
    }
    let beside = |field: &str| error(&format!("{PLAIN}{FAIR}{field}\n"));
    let priorities = beside("priorities: [{name: low, ceiling: 10%, key: batch}]");
    assert!(
        priorities.contains("fair_shares: must not stand beside priorities"),
        "{priorities}"
    );
    let limit = |limit: &str, other: &str| {
        let yaml = format!("{PLAIN}{FAIR}").replace(limit, other);
        error(&yaml)
    };
    for (limit, expected) in [
        (
            limit(", unranked: true", ""),
            "fair_shares: cannot share the limit at line 5: it belongs to one tenant: make it unranked",
        ),
        (
            limit(", algorithm: token_bucket", ""),
            "cannot share the limit at line 4: fair shares need a bucket, and policy service is a fixed_window",
        ),
        (
            limit("quota: 1000/s,", "quota: 1000/s burst 9,"),
            "cannot share the limit at line 4: fair shares need a burst of 10 units or more, and policy service has 9",
        ),
        (
            limit(
                "quota: 1000/s, algorithm: token_bucket",
                "quota: 1000/s burst 2499, algorithm: interval_bucket",
            ),
            "cannot share the limit at line 4: fair shares need a burst of 2500 units or more in an interval bucket, and policy service has 2499",
        ),
        (
            limit("quota: 1000/s, ", "lease: true, quota: 1000/s, "),
            "cannot share the limit at line 4: policy service is leased, and its units have no priority",
        ),
    ] {
        assert!(limit.contains(expected), "{expected}: {limit}");
    }
    let envoy = envoy_refused(&format!(
        "domain: d\n{FAIR}descriptors: [{{key: service, rate_limit: {{unit: second, requests_per_unit: 9}}}}]\n"
    ));
    assert!(
        envoy
            .to_string()
            .contains("field fair_shares is an addition of Tollgate"),
        "{envoy}"
    );
}
