//! Shows the metrics of rules and limiters to Prometheus, and the keys that are denied most.
//!
//! ```text
//! cargo run --example prometheus
//! for i in $(seq 12); do curl -s -o /dev/null -w '%{http_code} ' -H 'X-Tenant: acme' http://127.0.0.1:3000/; done
//! for i in $(seq 4); do curl -s -o /dev/null -w '%{http_code} ' -X POST http://127.0.0.1:3000/login; done
//! curl http://127.0.0.1:3000/metrics
//! curl http://127.0.0.1:3000/denied
//! ```
//!
//! The rules allow each tenant 10 requests a minute, so the last two of twelve get 429. `trial-…`
//! tenants have a lower limit in shadow mode: their requests pass, and
//! `tollgate_rule_units_shadow_total` shows what the limit would deny. `/login` has a limit in
//! code. `/denied` lists the keys that are denied most. They are digests with a random secret,
//! because tenants may be people: with `SECRET` set, the digest of a tenant is the same in all
//! instances.
//!
//! Let Prometheus read `/metrics`, and import `docs/grafana/tollgate.json` into Grafana.
//! `examples/grafana` starts both in containers. `tollgate top` shows the figures on a terminal:
//!
//! ```text
//! tollgate top --redis $REDIS_URL --metrics http://127.0.0.1:3000/metrics --denied http://127.0.0.1:3000/denied
//! ```
//!
//! In a real service, serve both pages at an address of their own that clients cannot reach.
//!
//! Features: `metrics` of `tollgate-tower` and of `tollgate-rules`, beside the defaults.

use std::{env, fmt::Write, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tollgate::{KeySecret, Limiter, Policy, Quota, limiter::DeniedKeys};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_rules::{Descriptor, Format, RuleLimiter, RuleSet, Rules};
use tollgate_tower::{RateLimitLayer, key::PeerIp};

/// A real service has them in a file: `Rules::load("rules.yaml")`.
const RULES: &str = "
domain: shop
descriptors:
  - key: tenant
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: tenant
    value: trial-*
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 3}
";

const LOGIN: Policy = Policy::token_bucket("login", Quota::per_minute(3));

/// The bounds of the histograms, in seconds. A check is near 0.2 ms in a data center, and never
/// longer than its deadline.
const BUCKETS: [f64; 9] = [
    0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
];

/// Limits a request by the rule of its tenant.
async fn limit_tenant(
    State(limiter): State<RuleLimiter>,
    request: Request,
    next: Next,
) -> Response {
    let tenant = request
        .headers()
        .get("x-tenant")
        .and_then(|value| value.to_str().ok())
        .unwrap_or("nobody");
    let descriptors = [Descriptor::from([("tenant", tenant.to_owned())])];
    let decision = match limiter.check("shop", &descriptors, 1).await {
        Ok(decision) => decision,
        Err(_) => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
    };
    if decision.is_allowed() {
        return next.run(request).await;
    }
    let seconds = decision.retry_after().map_or(1, |wait| wait.as_secs() + 1);
    (
        StatusCode::TOO_MANY_REQUESTS,
        [(RETRY_AFTER, HeaderValue::from(seconds))],
    )
        .into_response()
}

/// Lists the keys that are denied most.
async fn denied(State(denied_keys): State<DeniedKeys>) -> String {
    let mut text = format!("{} denials\n", denied_keys.total());
    for key in denied_keys.top(20) {
        // Writing to memory cannot fail.
        let _ = writeln!(text, "{:>8}  {}", key.denials(), key.name());
    }
    text
}

/// Installs the recorder. Limiters register their metrics with it when they are first used.
fn install_recorder() -> Result<PrometheusHandle, Failure> {
    let builder = PrometheusBuilder::new();
    let builder = builder
        .set_buckets_for_metric(Matcher::Suffix("_duration_seconds".to_owned()), &BUCKETS)?;
    let handle = builder.install_recorder()?;
    let upkeep = handle.clone();
    tokio::spawn(async move {
        // Without it, durations that nobody reads would use more and more memory.
        let mut seconds = tokio::time::interval(Duration::from_secs(5));
        loop {
            seconds.tick().await;
            upkeep.run_upkeep();
        }
    });
    Ok(handle)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let prometheus = install_recorder()?;
    let store = store()?;
    let denied_keys = match env::var("SECRET") {
        Ok(secret) => DeniedKeys::with_secret(1_000, KeySecret::new(secret)),
        Err(_) => DeniedKeys::new(1_000),
    };

    let rules = Rules::new(RuleSet::parse(RULES, Format::Yaml)?);
    let by_tenant = RuleLimiter::builder(rules, store.clone())
        .denied_keys(denied_keys.clone())
        .build();
    let login = Limiter::builder(store)
        .policies(LOGIN)
        .denied_keys(denied_keys.clone())
        .build();

    let router = Router::new()
        .route(
            "/",
            get(|| async { "hello\n" })
                .layer(middleware::from_fn_with_state(by_tenant, limit_tenant)),
        )
        .route(
            "/login",
            post(|| async { "welcome\n" }).layer(RateLimitLayer::new(login, PeerIp)),
        )
        .route("/metrics", get(|| async move { prometheus.render() }))
        .route("/denied", get(denied))
        .with_state(denied_keys);

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!(
        "Listening on {url}: 10 requests a minute for each tenant, 3 log-ins a minute for each address."
    );
    println!("Try:");
    println!(
        "  for i in $(seq 12); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'X-Tenant: acme' {url}/; done"
    );
    println!("  curl {url}/metrics; curl {url}/denied");
    serve(listener, router).await
}
