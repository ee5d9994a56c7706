//! The limits of tenants, through a layer.

use std::time::Duration;

use http::{Request, StatusCode};
use tokio::time::Instant;
use tollgate::{
    Limiter, Policy, PolicySet, Quota,
    limiter::Selection,
    tenants::{SourceOutage, TenantLimiters},
};
use tollgate_tower::{
    RateLimitLayer,
    key::{Global, Header},
};

use crate::support::*;

/// An outer layer inserts it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Tenant(&'static str);

/// Tenants that are blocked: by an amount of 0, and by name.
const SUSPENDED: [&str; 2] = ["nothing", "suspended"];

fn request_of(tenant: &'static str) -> Request<()> {
    Request::builder()
        .extension(Tenant(tenant))
        .header("key", tenant)
        .body(())
        .unwrap()
}

/// Stands for a database. Tenant `away` fails, tenant `hangs` does not answer, and tenant `panics`
/// panics.
async fn fetch(Tenant(tenant): Tenant) -> Result<Selection, String> {
    tokio::time::sleep(Duration::from_millis(10)).await;
    match tenant {
        "hourly" => Ok(HOURLY.into()),
        "both" => Ok(PolicySet::from([ONE, HOURLY]).into()),
        "staff" => Ok(Selection::Exempt),
        "suspended" => Ok(Selection::Blocked),
        "nothing" => {
            let quota =
                Quota::try_new(0, Duration::from_secs(3_600)).map_err(|error| error.to_string())?;
            Ok(HOURLY
                .with_quota(quota)
                .map_err(|error| error.to_string())?
                .into())
        }
        "away" => Err("the database is away".to_owned()),
        "hangs" => std::future::pending().await,
        "panics" => panic!("the source panics for a test"),
        _ => Ok(None::<Policy>.into()),
    }
}

fn tenants(outage: SourceOutage) -> TenantLimiters<Tenant> {
    TenantLimiters::builder(Limiter::new(still(), TWO), fetch)
        .on_outage(outage)
        .build()
}

async fn policy_of(layer: &RateLimitLayer<Header>, request: Request<()>) -> (u16, Option<String>) {
    let response = send(layer, request).await;
    (
        response.status().as_u16(),
        header(&response, "ratelimit-policy").map(str::to_owned),
    )
}

#[tokio::test(start_paused = true)]
async fn each_tenant_has_its_limits_and_their_headers() {
    let layer = RateLimitLayer::new(tenants(SourceOutage::Default), Header::new("key"));
    let two = Some(r#""two";q=2;w=60"#.to_owned());
    for _ in 0..2 {
        assert_eq!(
            policy_of(&layer, request_of("hourly")).await,
            (200, Some(r#""hourly";q=3;w=3600"#.to_owned()))
        );
        assert_eq!(
            policy_of(&layer, request_of("unknown")).await,
            (200, two.clone())
        );
        assert_eq!(policy_of(&layer, request_of("staff")).await, (200, None));
        // A request without a tenant has the default limiter.
        assert_eq!(
            policy_of(&layer, request_with("key", "anonymous")).await,
            (200, two.clone())
        );
    }
    assert_eq!(policy_of(&layer, request_of("unknown")).await, (429, two));
    let both = Some(r#""one";q=1;w=60, "hourly";q=3;w=3600"#.to_owned());
    assert_eq!(
        policy_of(&layer, request_of("both")).await,
        (200, both.clone())
    );
    assert_eq!(policy_of(&layer, request_of("both")).await, (429, both));
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_suspended_is_denied_without_a_wait() {
    let layer = RateLimitLayer::new(tenants(SourceOutage::Default), Header::new("key"));
    for tenant in SUSPENDED {
        let response = send(&layer, request_of(tenant)).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "{tenant}");
        assert!(
            !response.headers().contains_key("retry-after"),
            "{tenant}: {:?}",
            response.headers()
        );
        assert_eq!(
            header(&response, "cache-control"),
            Some("no-store"),
            "{tenant}"
        );
        assert!(
            !response.body().contains("try again"),
            "{tenant}: {}",
            response.body()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_gets_the_stated_answer_in_bounded_time() {
    for tenant in ["away", "hangs", "panics"] {
        let answers = [
            (
                SourceOutage::Default,
                (200, Some(r#""two";q=2;w=60"#.to_owned())),
            ),
            (SourceOutage::Open, (200, None)),
            (SourceOutage::Closed, (503, None)),
        ];
        for (outage, expected) in answers {
            let start = Instant::now();
            let layer = RateLimitLayer::new(tenants(outage), Header::new("key"));
            assert_eq!(
                policy_of(&layer, request_of(tenant)).await,
                expected,
                "{tenant}, {outage:?}"
            );
            assert!(
                start.elapsed() <= Duration::from_millis(1_002),
                "{tenant}: {:?}",
                start.elapsed()
            );
        }
        // Shadow mode rejects nothing.
        let layer = RateLimitLayer::builder(tenants(SourceOutage::Closed), Header::new("key"))
            .shadow(true)
            .build();
        assert_eq!(policy_of(&layer, request_of(tenant)).await, (200, None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejection_without_limits_tells_the_client_nothing_of_the_source() {
    let layer = RateLimitLayer::new(tenants(SourceOutage::Closed), Header::new("key"));
    let response = send(&layer, request_of("away")).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        response.body(),
        r#"{"title":"Service Unavailable","status":503}"#
    );
    assert!(!response.headers().contains_key("retry-after"));
}

#[cfg(feature = "metrics")]
mod metrics {
    use tollgate::Algorithm;
    use tollgate_tower::{LimiterSource, MetricLabels};

    use super::*;
    use tollgate_tests::Series;

    #[test]
    fn decisions_are_counted_by_the_policies_that_were_looked_up() {
        let series = Series::of(async {
            tokio::time::pause();
            let labels = MetricLabels::new(["path"], [["/a"]], |parts| {
                (parts.uri.path() == "/a").then_some(0)
            });
            let layer = RateLimitLayer::builder(tenants(SourceOutage::Closed), Header::new("key"))
                .metric_labels(labels)
                .build();
            for _ in 0..2 {
                for tenant in ["hourly", "both", "unknown", "away"] {
                    send(&layer, request_of(tenant)).await;
                }
            }
        });
        let decisions = |policy: &str, outcome: &str| {
            series.count(&format!(
                "tollgate_decisions_total policy={policy} outcome={outcome} path=other"
            ))
        };
        assert_eq!(
            (
                decisions("hourly", "allowed"),
                decisions("hourly", "denied")
            ),
            (2 + 1, 0)
        );
        assert_eq!(
            (decisions("one", "allowed"), decisions("one", "denied")),
            (1, 1)
        );
        assert_eq!(decisions("two", "allowed"), 2);
        assert_eq!(
            series.count("tollgate_rejections_total reason=unavailable path=other"),
            2
        );
    }

    #[test]
    fn the_names_of_policies_that_are_looked_up_are_bounded() {
        let series = Series::of(async {
            let source = LimiterSource::from_fn(Limiter::new(still(), TWO), |parts| {
                let name = parts.headers.get("key")?.to_str().ok()?;
                Policy::try_new(name, Algorithm::FixedWindow, Quota::per_day(1)).ok()
            });
            let layer = RateLimitLayer::new(source, Global);
            for at in 0..200 {
                for _ in 0..2 {
                    send(&layer, request_with("key", &format!("policy-{at}"))).await;
                }
            }
        });
        let count = |policy: &str, outcome: &str| {
            series.count(&format!(
                "tollgate_decisions_total policy={policy} outcome={outcome}"
            ))
        };
        assert_eq!(
            (count("policy-0", "allowed"), count("policy-63", "denied")),
            (1, 1)
        );
        assert_eq!(
            (count("other", "allowed"), count("other", "denied")),
            (200 - 64, 200 - 64)
        );
        let decisions = series
            .0
            .keys()
            .filter(|name| name.starts_with("tollgate_decisions_total"));
        assert_eq!(decisions.count(), 3 * 65);
    }
}
