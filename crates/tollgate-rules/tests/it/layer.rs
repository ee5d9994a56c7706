//! Rules in a layer, over HTTP and over gRPC.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response, StatusCode};
use tollgate::{Limiter, Policy, Quota, Store};
use tollgate_rules::{Actions, Format, RequestRules, RuleLimiter, RuleSet, Rules};
use tollgate_tower::{
    HeaderFormat, LimiterSource, RateLimitLayer,
    key::{Global, Header},
};
use tonic::{Code, Status, body::Body};
use tonic_types::StatusExt;
use tower::{Layer, ServiceExt, service_fn};

use super::{rules, still};

const RULES: &str = "
domain: d
rate_limits:
- actions: [{request_headers: {header_name: x-tenant, descriptor_key: tenant}}]
- actions: [{request_headers: {header_name: x-route, descriptor_key: route}}]
descriptors:
- {key: tenant, rate_limit: {name: tenants, quota: 3/h}}
- {key: route, rate_limit: {name: routes, quota: 1/min}}
- {key: route, value: never, rate_limit: {unit: hour, requests_per_unit: 0}}
- {key: route, value: shadow, shadow_mode: true, rate_limit: {name: tried, quota: 1/h}}
- {key: route, value: free}
";

fn on(store: impl Store, yaml: &str) -> RequestRules {
    RuleLimiter::new(Rules::new(rules(yaml)), store).for_requests("d")
}

fn request(headers: &[(&str, &str)]) -> Request<()> {
    let request = Request::get("/");
    headers
        .iter()
        .fold(request, |request, (name, value)| {
            request.header(*name, *value)
        })
        .body(())
        .unwrap()
}

/// Sends a request through a layer around a service that answers 200.
async fn send<K, R>(layer: &RateLimitLayer<K, R>, request: Request<()>) -> Response<String>
where
    K: tollgate_tower::KeyExtractor,
    R: tollgate_tower::Respond<String>,
{
    let service =
        service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    layer.layer(service).oneshot(request).await.unwrap()
}

/// Sends a gRPC call through a layer around a service that ends every call at once.
async fn call<K, R>(layer: &RateLimitLayer<K, R>, headers: &[(&str, &str)]) -> Option<Status>
where
    K: tollgate_tower::KeyExtractor,
    R: tollgate_tower::Respond<Body>,
{
    let service = service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::default()))
    });
    let mut request =
        Request::post("/helloworld.Greeter/SayHello").header("content-type", "application/grpc");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = layer
        .layer(service)
        .oneshot(request.body(Body::default()).unwrap())
        .await
        .unwrap();
    Status::from_header_map(response.headers())
}

fn header<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    response
        .headers()
        .get(name)
        .map(|value| value.to_str().unwrap())
}

/// Returns the states of the policies of a response.
fn states<B>(response: &Response<B>) -> &str {
    header(response, "ratelimit").unwrap()
}

/// Returns the quotas of the policies of a response.
fn quotas<B>(response: &Response<B>) -> &str {
    header(response, "ratelimit-policy").unwrap()
}

#[tokio::test]
async fn one_file_governs_http_and_grpc() {
    let limits = on(still(), RULES);
    let http = RateLimitLayer::new(limits.clone(), Global);
    let grpc = tollgate_tonic::layer(limits, Global);
    let acme = [("x-tenant", "acme")];

    let allowed = send(&http, request(&acme)).await;
    assert_eq!(allowed.status(), StatusCode::OK);
    assert_eq!(states(&allowed), r#""tenants";r=2;t=2600"#);
    assert!(call(&grpc, &acme).await.is_none());
    assert_eq!(send(&http, request(&acme)).await.status(), StatusCode::OK);

    let denied = send(&http, request(&acme)).await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&denied, "retry-after"), Some("2600"));
    assert_eq!(
        header(&denied, "content-type"),
        Some("application/problem+json")
    );
    let document: serde_json::Value = serde_json::from_str(denied.body()).unwrap();
    assert_eq!(
        document["violated-policies"],
        serde_json::json!(["tenants"])
    );

    let status = call(&grpc, &acme).await.unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(
        status.get_details_retry_info().unwrap().retry_delay,
        Some(Duration::from_secs(2_600))
    );
    assert_eq!(
        status.get_details_quota_failure().unwrap().violations[0].quota_id,
        "tenants"
    );
    assert_eq!(
        status.get_details_error_info().unwrap().reason,
        "RATE_LIMIT_EXCEEDED"
    );
    // Another tenant has a counter of its own.
    assert!(call(&grpc, &[("x-tenant", "other")]).await.is_none());
}

#[tokio::test]
async fn the_answers_are_those_of_a_layer_with_a_fixed_limiter() {
    const TENANTS: &str = "
        domain: d
        rate_limits: [{actions: [{request_headers: {header_name: x-tenant, descriptor_key: tenant}}]}]
        descriptors: [{key: tenant, rate_limit: {name: tenants, quota: 3/h}}]
        ";
    // Each format joins the decisions of several limits as stacked layers do, which `tollgate-tower` tests.
    for format in [
        HeaderFormat::Ietf08,
        HeaderFormat::Envoy03,
        HeaderFormat::OpenAi,
    ] {
        let fixed = Limiter::new(still(), Policy::fixed_window("tenants", Quota::per_hour(3)));
        let fixed = RateLimitLayer::builder(fixed, Header::new("x-tenant"))
            .header_format(format)
            .expose_headers(true)
            .build();
        let of_rules = RateLimitLayer::builder(on(still(), TENANTS), Global)
            .header_format(format)
            .expose_headers(true)
            .build();
        for _ in 0..4 {
            let acme = || request(&[("x-tenant", "acme")]);
            let (expected, found) = (send(&fixed, acme()).await, send(&of_rules, acme()).await);
            assert_eq!(found.status(), expected.status());
            assert_eq!(found.headers(), expected.headers(), "{format:?}");
            assert_eq!(found.body(), expected.body());
        }
    }
}

#[tokio::test]
async fn a_response_lists_the_policies_of_all_descriptors_and_a_denial_those_that_deny() {
    let layer = RateLimitLayer::new(on(still(), RULES), Global);
    let both = || request(&[("x-tenant", "acme"), ("x-route", "/export")]);
    let allowed = send(&layer, both()).await;
    assert_eq!(
        quotas(&allowed),
        r#""tenants";q=3;w=3600, "routes";q=1;w=60"#
    );
    assert_eq!(
        states(&allowed),
        r#""tenants";r=2;t=2600, "routes";r=0;t=20"#
    );
    for _ in 0..3 {
        let denied = send(&layer, both()).await;
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(header(&denied, "retry-after"), Some("20"));
        assert_eq!(states(&denied), r#""routes";r=0;t=20"#);
    }
    // The denials were free for the tenant.
    let tenant = send(&layer, request(&[("x-tenant", "acme")])).await;
    assert_eq!(states(&tenant), r#""tenants";r=1;t=2600"#);
    send(&layer, request(&[("x-tenant", "acme")])).await;
    // Both deny now: the longest wait is told, and both are listed.
    let denied = send(&layer, both()).await;
    assert_eq!(header(&denied, "retry-after"), Some("2600"));
    let states: Vec<_> = denied
        .headers()
        .get_all("ratelimit")
        .iter()
        .map(|line| line.to_str().unwrap())
        .collect();
    assert_eq!(
        states.join(", "),
        r#""tenants";r=0;t=2600, "routes";r=0;t=20"#
    );
    assert!(
        denied
            .body()
            .contains(r#"Policy tenants: try again in 2600 s."#),
        "{}",
        denied.body()
    );
    assert!(
        denied
            .body()
            .contains(r#""violated-policies":["tenants","routes"]"#),
        "{}",
        denied.body()
    );

    let grpc = tollgate_tonic::layer(on(still(), RULES), Global);
    let both = [("x-tenant", "acme"), ("x-route", "/export")];
    for _ in 0..3 {
        let _ = call(&grpc, &both[..1]).await;
    }
    let _ = call(&grpc, &both[1..]).await;
    let violations = call(&grpc, &both)
        .await
        .unwrap()
        .get_details_quota_failure()
        .unwrap()
        .violations;
    let violated: Vec<_> = violations
        .iter()
        .map(|violation| violation.quota_id.as_str())
        .collect();
    assert_eq!(violated, ["tenants", "routes"]);
}

#[tokio::test]
async fn a_reload_is_in_force_with_the_next_request_and_a_broken_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    std::fs::write(&path, RULES).unwrap();
    let rules = Rules::load(&path).unwrap();
    let layer = RateLimitLayer::new(
        RuleLimiter::new(rules.clone(), still()).for_requests("d"),
        Global,
    );
    let acme = || request(&[("x-tenant", "acme"), ("x-user", "ann")]);
    assert_eq!(
        states(&send(&layer, acme()).await),
        r#""tenants";r=2;t=2600"#
    );

    std::fs::write(&path, RULES.replace("3/h", "3/fortnight")).unwrap();
    rules.reload().unwrap_err();
    assert_eq!(
        states(&send(&layer, acme()).await),
        r#""tenants";r=1;t=2600"#
    );

    // The amount and the descriptors of a request change together, and the counter continues.
    let changed = RULES
        .replace("3/h", "10/h")
        .replace("x-route", "x-user")
        .replace("1/min", "5/h");
    std::fs::write(&path, changed).unwrap();
    rules.reload().unwrap();
    let response = send(&layer, acme()).await;
    assert_eq!(
        quotas(&response),
        r#""tenants";q=10;w=3600, "routes";q=5;w=3600"#
    );
    assert_eq!(
        states(&response),
        r#""tenants";r=7;t=2600, "routes";r=4;t=2600"#
    );
}

#[tokio::test]
async fn clients_are_not_told_of_rules_in_shadow_mode() {
    let layer = RateLimitLayer::new(on(still(), RULES), Global);
    for _ in 0..3 {
        let response = send(
            &layer,
            request(&[("x-route", "shadow"), ("x-tenant", "acme")]),
        )
        .await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(quotas(&response), r#""tenants";q=3;w=3600"#);
    }
    // The tenant is denied, and the shadow rule has no part in it.
    let denied = send(
        &layer,
        request(&[("x-route", "shadow"), ("x-tenant", "acme")]),
    )
    .await;
    assert_eq!(quotas(&denied), r#""tenants";q=3;w=3600"#);
    assert!(
        denied.body().contains(r#""violated-policies":["tenants"]"#),
        "{}",
        denied.body()
    );
}

#[tokio::test]
async fn a_hidden_limit_denies_and_no_client_sees_it() {
    const HIDDEN: &str = "
domain: d
rate_limits:
- actions: [{request_headers: {header_name: x-tenant, descriptor_key: tenant}}]
- actions: [{request_headers: {header_name: x-route, descriptor_key: route}}]
descriptors:
- {key: tenant, rate_limit: {limits: [{name: flood, quota: 17/min, hidden: true}, {name: tenants, quota: 900/h}]}}
- {key: route, rate_limit: {name: flood, quota: 17/min, hidden: true}}
";
    for (name, tenants) in [("x-tenant", Some("\"tenants\"")), ("x-route", None)] {
        let layer = RateLimitLayer::new(on(still(), HIDDEN), Global);
        for count in 1..=18 {
            let response = send(&layer, request(&[(name, "a")])).await;
            let is_denied = response.status() == StatusCode::TOO_MANY_REQUESTS;
            assert_eq!(is_denied, count == 18, "{count}");
            assert_eq!(header(&response, "retry-after").is_some(), is_denied);
            for field in ["ratelimit", "ratelimit-policy"] {
                let shown = header(&response, field).map(|value| value.split(';').next().unwrap());
                assert_eq!(shown, tenants, "{field}");
            }
            let whole = format!("{:?} {}", response.headers(), response.body());
            assert!(!whole.contains("flood") && !whole.contains("17"), "{whole}");
        }
    }
}

#[tokio::test]
async fn a_rule_of_no_requests_denies_without_a_wait() {
    let limits = on(still(), RULES);
    let layer = RateLimitLayer::new(limits.clone(), Global);
    let denied = send(
        &layer,
        request(&[("x-tenant", "acme"), ("x-route", "never")]),
    )
    .await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        (
            header(&denied, "retry-after"),
            header(&denied, "cache-control")
        ),
        (None, Some("no-store"))
    );
    let document: serde_json::Value = serde_json::from_str(denied.body()).unwrap();
    assert_eq!(
        (&document["status"], &document["title"]),
        (&429.into(), &"Quota exceeded".into())
    );
    // The tenant was refunded.
    let tenant = send(&layer, request(&[("x-tenant", "acme")])).await;
    assert_eq!(states(&tenant), r#""tenants";r=2;t=2600"#);

    // No wait helps either when another limit denies too.
    for _ in 0..2 {
        send(&layer, request(&[("x-tenant", "acme")])).await;
    }
    assert_eq!(
        header(
            &send(&layer, request(&[("x-tenant", "acme")])).await,
            "retry-after"
        ),
        Some("2600")
    );
    let denied = send(
        &layer,
        request(&[("x-tenant", "acme"), ("x-route", "never")]),
    )
    .await;
    assert_eq!(
        (denied.status(), header(&denied, "retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, None)
    );

    let status = call(
        &tollgate_tonic::layer(limits, Global),
        &[("x-route", "never")],
    )
    .await
    .unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.get_details_retry_info().is_none());
}

#[tokio::test]
async fn a_caller_sees_what_is_left_of_every_rule_beside_one_that_is_spent() {
    let layer = RateLimitLayer::new(on(still(), RULES), Global);
    let (tenant, spent, never) = (
        ("x-tenant", "acme"),
        ("x-route", "/export"),
        ("x-route", "never"),
    );
    let response = send(&layer, request(&[tenant, spent])).await;
    assert_eq!(response.status(), StatusCode::OK);
    // A rule of 0 requests has no policy.
    for (headers, routes) in [([tenant, spent], Some(0)), ([tenant, never], None)] {
        let Ok(response) = layer
            .state_service::<String>()
            .oneshot(request(&headers))
            .await;
        let document: serde_json::Value = serde_json::from_str(response.body()).unwrap();
        let left = |name: &str| document["resources"][name]["remaining"].as_u64();
        assert_eq!(
            (left("tenants"), left("routes")),
            (Some(2), routes),
            "{document}"
        );
    }
    // Nothing was charged, and a denied request still lists the limits that deny it alone.
    let denied = send(&layer, request(&[tenant, spent])).await;
    assert_eq!(states(&denied), r#""routes";r=0;t=20"#);
    let tenant = send(&layer, request(&[tenant])).await;
    assert_eq!(states(&tenant), r#""tenants";r=1;t=2600"#);
}

#[tokio::test]
async fn requests_without_a_limit_pass_without_header_fields() {
    let layer = RateLimitLayer::new(on(still(), RULES), Global);
    for headers in [&[][..], &[("x-route", "free")], &[("x-other", "1")]] {
        let response = send(&layer, request(headers)).await;
        assert_eq!(
            (response.status(), response.headers().len()),
            (StatusCode::OK, 0)
        );
    }
}

#[tokio::test]
async fn a_domain_that_makes_no_descriptors_is_an_error_of_the_service_unless_the_code_makes_them()
{
    let bare = "{domain: d, descriptors: [{key: tenant, rate_limit: {quota: 1/h}}]}";
    let limits = on(still(), bare);
    let layer = RateLimitLayer::new(limits.clone(), Global);
    assert_eq!(
        send(&layer, request(&[])).await.status(),
        StatusCode::INTERNAL_SERVER_ERROR
    );
    let layer = RateLimitLayer::new(
        limits.descriptors(Actions::new().header("x-tenant", "tenant")),
        Global,
    );
    let acme = || request(&[("x-tenant", "acme")]);
    assert_eq!(send(&layer, acme()).await.status(), StatusCode::OK);
    assert_eq!(
        send(&layer, acme()).await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn the_cost_of_the_layer_is_spent_by_every_descriptor() {
    let cost = |parts: &http::request::Parts| {
        let units = parts
            .headers
            .get("x-cost")
            .map_or(1, |value| value.to_str().unwrap().parse().unwrap());
        tollgate::Cost::new(units)
    };
    let layer = RateLimitLayer::builder(on(still(), RULES), Global)
        .cost(cost)
        .build();
    let of = |cost| request(&[("x-tenant", "acme"), ("x-cost", cost)]);
    assert_eq!(
        header(&send(&layer, of("2")).await, "ratelimit"),
        Some(r#""tenants";r=1;t=2600"#)
    );
    assert_eq!(
        send(&layer, of("2")).await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
    assert_eq!(
        send(&layer, of("4")).await.status(),
        StatusCode::PAYLOAD_TOO_LARGE
    );
    assert_eq!(send(&layer, of("0")).await.status(), StatusCode::OK);
    assert_eq!(send(&layer, of("1")).await.status(), StatusCode::OK);
    let tested = send(&layer, of("0")).await;
    assert_eq!(tested.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&tested, "retry-after"), Some("2600"));
}

#[tokio::test]
async fn rules_are_one_of_several_tiers() {
    let set = RuleSet::parse(RULES, Format::Yaml).unwrap();
    let limits = RuleLimiter::new(Rules::new(set), still()).for_requests("d");
    let default = Limiter::new(still(), Policy::fixed_window("default", Quota::per_hour(9)));
    let tiers = tollgate_tower::TieredLimiters::new(default).tier(7_u8, limits);
    let layer = RateLimitLayer::new(LimiterSource::from(tiers), Global);
    let mut tiered = request(&[("x-tenant", "acme")]);
    tiered.extensions_mut().insert(7_u8);
    assert_eq!(
        quotas(&send(&layer, tiered).await),
        r#""tenants";q=3;w=3600"#
    );
    let untiered = send(&layer, request(&[("x-tenant", "acme")])).await;
    assert_eq!(quotas(&untiered), r#""default";q=9;w=3600"#);
}

#[tokio::test]
async fn a_span_has_the_rule_that_denies_and_no_value_of_a_request() {
    use tollgate_tests::Log;
    use tracing::{Instrument, field::Empty};

    let (log, _guard) = Log::of_this_thread();
    let layer = RateLimitLayer::builder(on(tollgate::MemoryStore::new(), RULES), Global)
        .record_spans(true)
        .build();
    let mut spans = Vec::new();
    for route in ["a", "a", "never", "shadow"] {
        let span = tracing::info_span!(
            "request",
            "rate_limit.decision" = Empty,
            "rate_limit.rule" = Empty
        );
        let sent = send(&layer, request(&[("x-tenant", "acme"), ("x-route", route)]));
        let _ = sent.instrument(span.clone()).await;
        span.in_scope(|| tracing::info!("sent"));
        let text = log.text();
        let line = text.lines().rfind(|line| line.contains("sent")).unwrap();
        let (_, fields) = line.split_once("request{").unwrap();
        spans.push(fields.split("}:").next().unwrap().to_owned());
    }
    let of = |rule: &str, decision: &str| {
        format!(r#"rate_limit.rule="{rule}" rate_limit.decision="{decision}""#)
    };
    assert_eq!(
        spans,
        [
            of("d.tenant", "allowed"),
            of("d.route", "denied"),
            of("d.route_never", "blocked"),
            of("d.tenant", "allowed"),
        ]
    );
    assert!(!log.text().contains("acme"), "{}", log.text());
}
