use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use http::HeaderMap;
use tollgate::{Cost, ErrorKind, Limiter, MemoryStore, Policy, PolicySet, Quota, store::Clock};
use tonic::Code;
use tonic_types::{RetryInfo, StatusExt};

use super::*;

/// Encoded by hand from the definitions of `google.rpc`.
const RETRY_ONLY: &str = "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIAhCAyrXuAQ";
const RETRY_QUOTA_ERROR: &str = "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaNgoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIKCggIAhCAyrXuARpxCit0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuUXVvdGFGYWlsdXJlEkIKQAoNa2V5OnRlbmFudC00MhIXcGVyLXRlbmFudDogMTAwIHBlciA2MHMiCHJlcXVlc3RzKgpwZXItdGVuYW50OGQaZAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLkVycm9ySW5mbxI4ChNSQVRFX0xJTUlUX0VYQ0VFREVEEgtleGFtcGxlLmNvbRoUCgZwb2xpY3kSCnBlci10ZW5hbnQ";

/// Returns the headers that carry a status.
fn headers(status: &Status) -> HeaderMap {
    let mut headers = HeaderMap::new();
    status.add_header(&mut headers).unwrap();
    headers
}

/// Returns a limiter whose clock stands at a whole minute, and that clock.
fn limiter(policies: impl Into<PolicySet>) -> (Limiter, Clock) {
    let clock = Clock::manual(1_800_000_000_000_000);
    (
        Limiter::new(
            MemoryStore::builder().clock(clock.clone()).build(),
            policies,
        ),
        clock,
    )
}

/// Returns the denial of a key that has used up its burst.
async fn denied(policies: impl Into<PolicySet>) -> Decision {
    let (limiter, _) = limiter(policies);
    let burst = limiter
        .policies()
        .iter()
        .map(|policy| policy.quota().burst())
        .min()
        .unwrap();
    let spend = async || limiter.check("acme").cost(burst).await.unwrap();
    assert!(spend().await.is_allowed());
    spend().await
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().unwrap().reason
}

fn retry_delay(status: &Status) -> Option<Duration> {
    status.get_details_retry_info().unwrap().retry_delay
}

#[test]
fn retry_info_is_encoded_as_in_the_vector() {
    let details = [RetryInfo::new(Some(Duration::from_millis(2500))).into()];
    let status =
        Status::with_error_details_vec(Code::ResourceExhausted, "rate limit exceeded", details);
    assert_eq!(status.details().len(), 79);
    assert_eq!(headers(&status)["grpc-status-details-bin"], RETRY_ONLY);
}

#[tokio::test]
async fn a_denial_is_encoded_as_in_the_vector() {
    let (limiter, clock) = limiter(Policy::fixed_window("per-tenant", Quota::per_minute(100)));
    assert!(
        limiter
            .check("tenant-42")
            .cost(Cost::new(100))
            .await
            .unwrap()
            .is_allowed()
    );
    clock.advance(Duration::from_millis(57_500));
    let decision = limiter.check("tenant-42").await.unwrap();
    let status = GrpcStatus::new()
        .domain("example.com")
        .subject("key:tenant-42")
        .status(&decision);
    assert_eq!(status.details().len(), 296);
    let headers = headers(&status);
    assert_eq!(headers["grpc-status"], "8");
    assert_eq!(headers["grpc-message"], "rate%20limit%20exceeded");
    assert_eq!(headers["grpc-status-details-bin"], RETRY_QUOTA_ERROR);
    assert_eq!(headers.len(), 3, "{headers:?}");
}

#[tokio::test]
async fn each_policy_that_denies_is_a_violation_and_the_retry_delay_is_the_longest_wait() {
    let decision = denied([
        Policy::token_bucket("burst", Quota::per_second(2).with_burst(4)),
        Policy::token_bucket("slow", Quota::per_minute(6)),
        Policy::fixed_window("daily", Quota::per_day(50_000)),
    ])
    .await;
    let status = status(&decision);
    assert_eq!(retry_delay(&status), decision.retry_after());
    let violations = status.get_details_quota_failure().unwrap().violations;
    let found: Vec<_> = violations
        .iter()
        .map(|it| (it.subject.as_str(), it.description.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("policy:burst", "burst: 2 per 1s, 4 at once"),
            ("policy:slow", "slow: 6 per 60s")
        ]
    );
    assert_eq!(
        status.get_details_error_info().unwrap().metadata["policy"],
        "slow"
    );
}

#[tokio::test]
async fn a_hidden_policy_denies_and_no_detail_names_it() {
    let slow = || Policy::token_bucket("slow", Quota::per_minute(6));
    let burst = || Policy::token_bucket("burst", Quota::per_second(6));
    let shown = status(&denied([burst(), slow()]).await);
    let decision = denied([burst(), slow().hidden()]).await;
    let partly = status(&decision);
    assert_eq!(
        (partly.code(), retry_delay(&partly)),
        (Code::ResourceExhausted, retry_delay(&shown))
    );
    let violations = partly.get_details_quota_failure().unwrap().violations;
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert_eq!(violations[0].quota_id, "burst");
    assert!(partly.get_details_error_info().unwrap().metadata.is_empty());

    let hidden = status(&denied(slow().hidden()).await);
    assert_eq!(
        (hidden.code(), retry_delay(&hidden)),
        (Code::ResourceExhausted, retry_delay(&shown))
    );
    assert!(hidden.get_details_quota_failure().is_none());
    assert_eq!(reason(&hidden), "RATE_LIMIT_EXCEEDED");
    assert!(!String::from_utf8_lossy(hidden.details()).contains("slow"));
}

#[test]
fn a_missing_key_has_the_code_of_its_status() {
    use http::{Request, StatusCode};
    use tollgate_tower::{KeyExtractor, key::Bearer};

    use super::grpc_status::key_error_status;

    let (none, ()) = Request::new(()).into_parts();
    let code = |key: &dyn KeyExtractor| key_error_status(&key.extract(&none).unwrap_err()).code();
    let token = || Bearer::new(tollgate::KeySecret::new("secret"));
    assert_eq!(code(&token()), Code::Unauthenticated);
    assert_eq!(
        code(&token().or_status(StatusCode::FORBIDDEN)),
        Code::PermissionDenied
    );
    assert_eq!(
        code(&token().or_status(StatusCode::NOT_FOUND)),
        Code::NotFound
    );
    assert_eq!(
        code(&token().or_status(StatusCode::BAD_REQUEST)),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn a_burst_below_the_amount_is_described_too() {
    let status = status(
        &denied(Policy::token_bucket(
            "smooth",
            Quota::per_minute(60).with_burst(2),
        ))
        .await,
    );
    let violation = &status.get_details_quota_failure().unwrap().violations[0];
    assert_eq!(violation.description, "smooth: 60 per 60s, 2 at once");
    assert_eq!(
        (violation.quota_metric.as_str(), violation.quota_value),
        ("requests", 60)
    );
}

#[tokio::test]
async fn a_status_does_not_contain_the_key() {
    let decision = denied(Policy::token_bucket("burst", Quota::per_second(2))).await;
    let status = status(&decision);
    assert!(!String::from_utf8_lossy(status.details()).contains("acme"));
    assert!(!format!("{status:?}").contains("acme"));
}

#[tokio::test]
async fn the_largest_set_of_policies_fits_a_header_list() {
    let largest = Quota::per_day(10_000_000).with_burst(90_000_000);
    let policy = |at: usize| {
        Policy::try_new(
            format!("{at:a<64}"),
            tollgate::Algorithm::TokenBucket,
            largest,
        )
        .unwrap()
    };
    let sets = (1..)
        .map(|count| PolicySet::try_new((0..count).map(policy)))
        .take_while(Result::is_ok);
    let set = sets.last().unwrap().unwrap();
    assert_eq!(set.len(), 8);
    let status = status(&denied(set).await);
    assert_eq!(
        status.get_details_quota_failure().unwrap().violations.len(),
        8
    );
    assert!(headers(&status)["grpc-status-details-bin"].len() < 6 * 1024);
}

#[tokio::test]
async fn a_pushback_is_sent_only_when_it_is_turned_on() {
    let decision = denied(Policy::token_bucket("burst", Quota::per_second(3))).await;
    let pushback = |responder: GrpcStatus| {
        headers(&responder.status(&decision)).remove("grpc-retry-pushback-ms")
    };
    assert_eq!(pushback(GrpcStatus::new()), None);
    assert_eq!(pushback(GrpcStatus::new().pushback(true)).unwrap(), "1000");
    let (limiter, _) = limiter(Policy::token_bucket("burst", Quota::per_second(3)));
    let error = limiter.check("acme").cost(Cost::new(4)).await.unwrap_err();
    let never_fits = headers(&GrpcStatus::new().pushback(true).error_status(&error));
    assert_eq!(never_fits["grpc-retry-pushback-ms"], "-1");
}

#[test]
fn an_outage_is_unavailable_and_hides_the_error_text() {
    let status = error_status(&Error::new(
        ErrorKind::Unavailable,
        "redis at 10.0.0.7 does not answer",
    ));
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "rate limiter unavailable")
    );
    assert_eq!(reason(&status), "LIMITER_UNAVAILABLE");
}

#[tokio::test]
async fn the_code_of_a_denial_can_be_set_and_the_details_repeat_it() {
    let decision = denied(Policy::token_bucket("burst", Quota::per_second(3))).await;
    let status = GrpcStatus::new().code(Code::Unavailable).status(&decision);
    assert_eq!(status.code(), Code::Unavailable);
    let (limiter, _) = limiter(Policy::token_bucket("burst", Quota::per_second(3)));
    let never_fits = limiter.check("acme").cost(Cost::new(4)).await.unwrap_err();
    assert_eq!(
        GrpcStatus::new()
            .code(Code::Unavailable)
            .error_status(&never_fits)
            .code(),
        Code::Unavailable
    );
    let encoded = STANDARD_NO_PAD
        .decode(&headers(&status)["grpc-status-details-bin"])
        .unwrap();
    assert_eq!(encoded[..2], [0x08, 14]);
}

#[tokio::test]
async fn an_allowed_decision_is_ok() {
    let (limiter, _) = limiter(Policy::token_bucket("burst", Quota::per_second(3)));
    assert_eq!(
        status(&limiter.check("acme").await.unwrap()).code(),
        Code::Ok
    );
}

#[tokio::test]
async fn retry_info_is_the_wait_of_the_strictest_layer_with_its_jitter() {
    use http::{Request, Response};
    use tollgate_tower::{RateLimitLayer, key::Global};
    use tonic::body::Body;
    use tower::{Layer, ServiceExt, service_fn};

    let (outer, _) = limiter(Policy::window_from_first_hit("outer", Quota::per_hour(2)));
    let (inner, _) = limiter(Policy::window_from_first_hit("inner", Quota::per_minute(1)));
    for limiter in [&outer, &inner] {
        assert!(limiter.check("all").await.unwrap().is_allowed());
    }
    let outer = RateLimitLayer::builder(outer, Global).respond_with(GrpcStatus::new());
    let outer = outer.retry_jitter(Duration::from_secs(1000)).build();
    let inner = RateLimitLayer::builder(inner, Global)
        .respond_with(GrpcStatus::new())
        .build();
    let service = service_fn(|_: Request<Body>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Body::default()))
    });
    let call = Request::builder()
        .header("content-type", "application/grpc")
        .body(Body::default())
        .unwrap();
    let Ok(response) = outer.layer(inner.layer(service)).oneshot(call).await;
    let status = Status::from_header_map(response.headers()).unwrap();
    let delay = status
        .get_details_retry_info()
        .unwrap()
        .retry_delay
        .unwrap();
    assert!(
        (3600.0..=4600.0).contains(&delay.as_secs_f64()),
        "{delay:?}"
    );
    // The header of the outer layer has the same number.
    let lists = response.headers()["ratelimit"].to_str().unwrap();
    assert!(
        lists.contains(&format!(r#""outer";r=0;t={}"#, delay.as_secs_f64().ceil())),
        "{lists} {delay:?}"
    );
}

#[tokio::test]
async fn a_call_that_is_shed_is_unavailable_and_says_when_to_come_back() {
    use http::{Request, Response};
    use tollgate_overload::{AdaptiveLayer, AdaptiveLimiter, Class, Gradient};
    use tonic::body::Body;
    use tower::{Layer, ServiceExt, service_fn};

    let limiter = AdaptiveLimiter::builder(Gradient::new())
        .limits(1..=1)
        .build();
    let service = service_fn(|_: Request<Body>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Body::default()))
    });
    let layer = AdaptiveLayer::builder(limiter.clone())
        .retry_jitter(Duration::ZERO)
        .respond_with(GrpcStatus::new().pushback(true))
        .build();
    let _slot = limiter.try_acquire(Class::CRITICAL).unwrap();
    let call =
        Request::post("/helloworld.Greeter/SayHello").header("content-type", "application/grpc");
    let response = layer
        .layer(service)
        .oneshot(call.body(Body::default()).unwrap())
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert!(!response.headers().contains_key("retry-after"));
    let status = Status::from_header_map(response.headers()).unwrap();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "service overloaded")
    );
    assert_eq!(retry_delay(&status), Some(Duration::from_millis(100)));
    assert_eq!(reason(&status), "SERVICE_OVERLOADED");
    assert_eq!(
        status.metadata().get("grpc-retry-pushback-ms").unwrap(),
        "100"
    );
}

#[tokio::test]
async fn a_call_without_a_permit_says_when_to_come_back_and_whose_limit_it_is() {
    use http::{Request, Response};
    use tollgate::permits::{Concurrency, ConcurrencyLimiter};
    use tollgate_tower::{concurrency::ConcurrencyLayer, key::Global};
    use tonic::body::Body;
    use tower::{Layer, ServiceExt, service_fn};

    let limiter = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("streams", 1));
    let _permit = limiter.acquire("all").await.unwrap();
    let service = service_fn(|_: Request<Body>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Body::default()))
    });
    let call = || {
        let call = Request::post("/helloworld.Greeter/SayHello")
            .header("content-type", "application/grpc");
        call.body(Body::default()).unwrap()
    };
    let builder = || {
        ConcurrencyLayer::builder(limiter.clone(), Global)
            .respond_with(GrpcStatus::new().pushback(true))
    };

    let response = builder()
        .build()
        .layer(service)
        .oneshot(call())
        .await
        .unwrap();
    assert_eq!(
        (
            response.status(),
            response.headers().contains_key("retry-after")
        ),
        (200.try_into().unwrap(), false)
    );
    let status = Status::from_header_map(response.headers()).unwrap();
    assert_eq!(
        (status.code(), status.message()),
        (Code::ResourceExhausted, "concurrency limit exceeded")
    );
    assert_eq!(retry_delay(&status), Some(Duration::from_secs(1)));
    assert_eq!(reason(&status), "CONCURRENCY_LIMIT_EXCEEDED");
    let violation = status
        .get_details_quota_failure()
        .unwrap()
        .violations
        .remove(0);
    assert_eq!(
        (violation.quota_id.as_str(), violation.quota_value),
        ("streams", 1)
    );
    assert_eq!(violation.quota_metric, "concurrent-requests");
    assert_eq!(
        status.metadata().get("grpc-retry-pushback-ms").unwrap(),
        "1000"
    );

    let response = builder()
        .service_unavailable()
        .build()
        .layer(service)
        .oneshot(call())
        .await
        .unwrap();
    let status = Status::from_header_map(response.headers()).unwrap();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(reason(&status), "SERVICE_OVERLOADED");
}
