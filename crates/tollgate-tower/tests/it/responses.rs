//! The responses that clients receive.

use crate::support::*;
use http::{Method, Request, Response, StatusCode, header};
use tollgate::{Cost, Key, Limiter, MemoryStore, Outage, Policy, Quota, store::Clock};
use tollgate_tower::{
    HeaderFormat, RateLimitLayer,
    key::{BoxedKey, EXEMPT, Global, Header, KeyError, KeyExtractor, PeerIp},
    key_fn,
    rejection::{Empty, Problem, Reason},
    respond_fn,
};
use tower::{Layer, ServiceExt};

#[tokio::test]
async fn every_response_carries_the_policies_and_the_remaining_units() {
    let layer = RateLimitLayer::new(Limiter::new(still(), [TWO, HOURLY]), Global);
    let response = send(&layer, request()).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(
        header(&response, "ratelimit-policy"),
        Some(r#""two";q=2;w=60, "hourly";q=3;w=3600"#)
    );
    assert_eq!(
        header(&response, "ratelimit"),
        Some(r#""two";r=1;t=30, "hourly";r=2;t=3600"#)
    );
    assert_eq!(header(&response, "retry-after"), None);
    assert_eq!(header(&response, "cache-control"), None);
}

#[tokio::test]
async fn a_denial_is_429_with_retry_after() {
    let layer = RateLimitLayer::new(Limiter::new(still(), [TWO, HOURLY]), Global);
    statuses(&layer, 2).await;
    let response = send(&layer, request()).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(&response, "retry-after"), Some("30"));
    assert_eq!(header(&response, "cache-control"), Some("no-store"));
    assert_eq!(
        header(&response, "content-type"),
        Some("application/problem+json")
    );
    assert_eq!(
        header(&response, "ratelimit-policy"),
        Some(r#""two";q=2;w=60, "hourly";q=3;w=3600"#)
    );
    assert_eq!(
        header(&response, "ratelimit"),
        Some(r#""two";r=0;t=30, "hourly";r=1;t=3600"#)
    );
    assert!(
        response.body().contains(r#""violated-policies":["two"]"#),
        "{}",
        response.body()
    );
}

#[tokio::test]
async fn retry_after_is_rounded_up_and_never_zero() {
    let clock = Clock::manual(1_000_000_000);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let layer = RateLimitLayer::new(
        Limiter::new(
            store,
            Policy::token_bucket("one", Quota::new(1, std::time::Duration::from_millis(1500))),
        ),
        Global,
    );
    let retry = async || header(&send(&layer, request()).await, "retry-after").map(str::to_owned);
    assert_eq!(retry().await, None);
    assert_eq!(retry().await.as_deref(), Some("2"));
    clock.advance(std::time::Duration::from_micros(1_499_999));
    assert_eq!(retry().await.as_deref(), Some("1"));
    clock.advance(std::time::Duration::from_micros(1));
    assert_eq!(retry().await, None);
}

#[tokio::test]
async fn a_period_below_one_second_is_written_as_one_second() {
    let quota = Quota::new(20, std::time::Duration::from_millis(200));
    let layer = RateLimitLayer::new(
        Limiter::new(still(), Policy::token_bucket("fast", quota)),
        Global,
    );
    assert_eq!(
        header(&send(&layer, request()).await, "ratelimit-policy"),
        Some(r#""fast";q=20;w=1"#)
    );
}

#[tokio::test]
async fn a_cost_that_never_fits_is_413_without_retry_after() {
    let limiter = Limiter::new(still(), TWO);
    assert!(limiter.check("k").cost(Cost::new(3)).await.is_err());
    let layer = RateLimitLayer::builder(limiter, Global)
        .cost(|_| Cost::new(3))
        .build();
    let response = send(&layer, request()).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(header(&response, "retry-after"), None);
    assert_eq!(header(&response, "ratelimit"), None);
    assert_eq!(
        header(&response, "ratelimit-policy"),
        Some(r#""two";q=2;w=60"#)
    );
    assert!(
        response
            .body()
            .contains("cost 3 exceeds the burst 2 of policy two"),
        "{}",
        response.body()
    );
}

#[tokio::test]
async fn a_missing_key_is_400() {
    let limiter = Limiter::new(still(), TWO);
    let layer = RateLimitLayer::new(limiter, Header::new("x-api-key"));
    let response = send(&layer, request()).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(header(&response, "retry-after"), None);
    assert_eq!(
        response.body(),
        r#"{"title":"Bad Request","status":400,"detail":"header x-api-key is missing"}"#
    );
}

#[tokio::test]
async fn a_misconfigured_service_is_500_without_details() {
    let layer = RateLimitLayer::new(Limiter::new(still(), TWO), PeerIp);
    let response = send(&layer, request()).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(
        response.body(),
        r#"{"title":"Internal Server Error","status":500}"#
    );
}

#[tokio::test]
async fn an_outage_of_a_closed_limiter_is_503() {
    let response = send(
        &RateLimitLayer::new(unavailable(Outage::Closed), Global),
        request(),
    )
    .await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(header(&response, "retry-after"), None);
    assert_eq!(header(&response, "ratelimit"), None);
}

#[tokio::test]
async fn an_outage_of_an_open_limiter_adds_no_rate_limit_headers() {
    let response = send(
        &RateLimitLayer::new(unavailable(Outage::Open), Global),
        request(),
    )
    .await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(header(&response, "ratelimit"), None);
    assert_eq!(header(&response, "ratelimit-policy"), None);
}

#[tokio::test]
async fn during_an_outage_the_headers_show_the_share_of_the_replica() {
    let outage = Outage::local(2);
    for (format, limit, remaining) in [
        (
            HeaderFormat::Ietf08,
            "ratelimit-policy: \"two\";q=1;w=60",
            "ratelimit: \"two\";r=0;t=60",
        ),
        (
            HeaderFormat::Ietf07,
            "ratelimit-policy: 1;w=60",
            "ratelimit: limit=1, remaining=0, reset=60",
        ),
        (
            HeaderFormat::Ietf06,
            "ratelimit-limit: 1",
            "ratelimit-remaining: 0",
        ),
        (
            HeaderFormat::Envoy03,
            "x-ratelimit-limit: 1, 1;w=60;name=\"two\"",
            "x-ratelimit-remaining: 0",
        ),
        (
            HeaderFormat::RetryAfter,
            "x-ratelimit-limit: 1",
            "x-ratelimit-remaining: 0",
        ),
    ] {
        let layer = RateLimitLayer::builder(unavailable(outage), Global)
            .header_format(format)
            .build();
        for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
            let response = send(&layer, request()).await;
            assert_eq!(response.status(), status);
            for line in [limit, remaining] {
                let (name, value) = line.split_once(": ").unwrap();
                assert_eq!(header(&response, name), Some(value), "{format:?}");
            }
            let is_denied = status == StatusCode::TOO_MANY_REQUESTS;
            assert_eq!(header(&response, "retry-after"), is_denied.then_some("60"));
        }
    }
}

#[tokio::test]
async fn an_exempt_request_passes_without_rate_limit_headers() {
    let limiter = Limiter::new(still(), TWO);
    let layer = RateLimitLayer::new(limiter.clone(), key_fn(|_| EXEMPT));
    assert_eq!(statuses(&layer, 5).await, [StatusCode::OK; 5]);
    assert_eq!(header(&send(&layer, request()).await, "ratelimit"), None);
}

#[tokio::test]
async fn a_closure_that_finds_no_key_lifts_no_limit() {
    let none = key_fn(|_| None::<Key>);
    let answers = async |layer: RateLimitLayer<BoxedKey>| statuses(&layer, 3).await;
    let limited = || Limiter::new(still(), TWO);
    assert_eq!(
        answers(RateLimitLayer::new(limited(), none.boxed())).await,
        [StatusCode::BAD_REQUEST; 3]
    );
    let by_another = [
        StatusCode::OK,
        StatusCode::OK,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    assert_eq!(
        answers(RateLimitLayer::new(limited(), none.or(Global).boxed())).await,
        by_another
    );
    assert_eq!(
        answers(RateLimitLayer::new(limited(), none.or_exempt().boxed())).await,
        [StatusCode::OK; 3]
    );
}

#[tokio::test]
async fn a_browser_receives_a_line_of_text() {
    let layer = RateLimitLayer::new(Limiter::new(still(), TWO), Global);
    statuses(&layer, 2).await;
    let response = send(
        &layer,
        Request::builder()
            .header("accept", "text/html,*/*;q=0.8")
            .body(())
            .unwrap(),
    )
    .await;
    assert_eq!(
        header(&response, "content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(
        response.body(),
        "Quota exceeded. Policy two: try again in 30 s.\n"
    );
}

#[tokio::test]
async fn the_body_has_the_format_that_the_client_prefers() {
    const JSON: Option<&str> = Some("application/problem+json");
    const TEXT: Option<&str> = Some("text/plain; charset=utf-8");
    let layer = RateLimitLayer::new(Limiter::new(still(), TWO), Header::new("x-api-key"));
    let found = async |method: Method, accept: &[&str]| {
        let mut request = Request::builder().method(method);
        for line in accept {
            request = request.header("accept", *line);
        }
        let response = send(&layer, request.body(()).unwrap()).await;
        header(&response, "content-type").map(str::to_owned)
    };
    for (accept, expected) in [
        (&[][..], JSON),
        (&["*/*"], JSON),
        (&["application/json"], JSON),
        (&["application/problem+json"], JSON),
        (&["Application/Json; charset=utf-8"], JSON),
        (&["text/html, application/json"], JSON),
        (&["text/html;q=0.5, application/json;q=0.4"], TEXT),
        // A browser.
        (
            &["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"],
            TEXT,
        ),
        (&["text/*"], TEXT),
        (&["text/plain;q=0"], None),
        (&["application/json;q=0, */*"], TEXT),
        (&["application/json;q=nonsense"], None),
        (&["image/avif,image/webp"], None),
        (&["*/*;q=0"], None),
        (&[""], None),
        (&[";;,=;q"], None),
        // Several lines are one list.
        (&["image/png", "text/plain"], TEXT),
    ] {
        assert_eq!(
            found(Method::GET, accept).await.as_deref(),
            expected,
            "{accept:?}"
        );
    }
    assert_eq!(found(Method::CONNECT, &[]).await, None);
}

#[tokio::test]
async fn a_problem_document_may_have_types_of_the_user() {
    let layer = RateLimitLayer::builder(Limiter::new(still(), [TWO, HOURLY]), Global)
        .respond_with(Problem::types_at("https://example.com/problems"))
        .build();
    statuses(&layer, 2).await;
    let body: serde_json::Value =
        serde_json::from_str(send(&layer, request()).await.body()).unwrap();
    let expected = serde_json::json!({
        "type": "https://example.com/problems#quota-exceeded",
        "title": "Quota exceeded",
        "status": 429,
        "detail": "Policy two: try again in 30 s.",
        "violated-policies": ["two"],
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn a_rejected_head_request_has_an_empty_body() {
    let layer = RateLimitLayer::new(
        Limiter::new(still(), TWO),
        key_fn(|_| Err::<Key, _>(KeyError::missing("no"))),
    );
    for accept in ["*/*", "text/html", "image/png"] {
        let request = |method| {
            Request::builder()
                .method(method)
                .header("accept", accept)
                .body(())
                .unwrap()
        };
        let (get, head) = (
            send(&layer, request(Method::GET)).await,
            send(&layer, request(Method::HEAD)).await,
        );
        assert_eq!(
            (head.status(), head.body().as_str()),
            (StatusCode::BAD_REQUEST, "")
        );
        // The server writes the length of a GET response.
        assert_eq!(
            header(&head, "content-length"),
            Some(get.body().len().to_string().as_str())
        );
        assert_eq!(header(&head, "content-type"), header(&get, "content-type"));
    }
}

#[tokio::test]
async fn the_middleware_adds_retry_after_to_any_responder() {
    let layer = RateLimitLayer::builder(Limiter::new(still(), TWO), Global)
        .respond_with(respond_fn(|rejection| {
            assert!(matches!(rejection.reason(), Reason::Denied(_)));
            let mut response = Response::new("teapot".to_owned());
            *response.status_mut() = StatusCode::IM_A_TEAPOT;
            response
        }))
        .build();
    statuses(&layer, 2).await;
    let response = send(&layer, request()).await;
    assert_eq!(
        (response.status(), response.body().as_str()),
        (StatusCode::IM_A_TEAPOT, "teapot")
    );
    assert_eq!(header(&response, "retry-after"), Some("30"));
    assert_eq!(header(&response, "ratelimit"), Some(r#""two";r=0;t=30"#));
    assert_eq!(header(&response, "cache-control"), Some("no-store"));
}

#[tokio::test]
async fn the_middleware_keeps_the_headers_of_a_responder() {
    let layer = RateLimitLayer::builder(Limiter::new(still(), TWO), Global)
        .respond_with(respond_fn(|_| {
            Response::builder()
                .header("retry-after", "99")
                .header("ratelimit", r#""mine";r=0"#)
                .header("cache-control", "private")
                .body(String::new())
                .unwrap()
        }))
        .build();
    statuses(&layer, 2).await;
    let response = send(&layer, request()).await;
    assert_eq!(header(&response, "retry-after"), Some("99"));
    assert_eq!(header(&response, "ratelimit"), Some(r#""mine";r=0"#));
    assert_eq!(header(&response, "cache-control"), Some("private"));
}

#[tokio::test]
async fn an_empty_rejection_has_all_headers() {
    let layer = RateLimitLayer::builder(Limiter::new(still(), TWO), Global)
        .respond_with(Empty)
        .build();
    statuses(&layer, 2).await;
    let response = send(&layer, request()).await;
    assert_eq!(
        (response.status(), response.body().as_str()),
        (StatusCode::TOO_MANY_REQUESTS, "")
    );
    let mut headers: Vec<_> = response
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    headers.sort_unstable();
    let expected = [
        ("cache-control", "no-store"),
        ("ratelimit", r#""two";r=0;t=30"#),
        ("ratelimit-policy", r#""two";q=2;w=60"#),
        ("retry-after", "30"),
    ];
    assert_eq!(headers, expected);
}

#[tokio::test]
async fn stacked_layers_append_to_the_rate_limit_headers() {
    let store = still();
    let outer = RateLimitLayer::new(Limiter::new(store.clone(), HOURLY), Global);
    let inner = RateLimitLayer::new(Limiter::new(store, TWO), Header::new("x-api-key"));
    let service = outer.layer(inner.layer(hello()));
    let request = || {
        Request::builder()
            .header("x-api-key", "acme")
            .body(())
            .unwrap()
    };
    for (status, ratelimit) in [
        (StatusCode::OK, r#""two";r=1;t=30, "hourly";r=2;t=3600"#),
        (StatusCode::OK, r#""two";r=0;t=30, "hourly";r=1;t=3600"#),
        (
            StatusCode::TOO_MANY_REQUESTS,
            r#""two";r=0;t=30, "hourly";r=0;t=3600"#,
        ),
    ] {
        let Ok(response) = service.clone().oneshot(request()).await;
        assert_eq!(response.status(), status);
        assert_eq!(header(&response, "ratelimit"), Some(ratelimit));
        assert_eq!(
            header(&response, "ratelimit-policy"),
            Some(r#""two";q=2;w=60, "hourly";q=3;w=3600"#)
        );
        if status != StatusCode::OK {
            // The inner layer writes 30. The outer layer denies until the hour is over.
            assert_eq!(header(&response, "retry-after"), Some("3600"));
        }
    }
}

#[tokio::test]
async fn retry_after_of_the_service_is_raised_but_never_lowered() {
    let service = |retry: &'static str| {
        tower::service_fn(move |_: Request<()>| async move {
            Ok::<_, std::convert::Infallible>(
                Response::builder()
                    .header(header::RETRY_AFTER, retry)
                    .body(String::new())
                    .unwrap(),
            )
        })
    };
    for (retry, expected) in [
        ("1", "60"),
        ("61", "61"),
        (
            "Fri, 31 Dec 2027 23:59:59 GMT",
            "Fri, 31 Dec 2027 23:59:59 GMT",
        ),
    ] {
        let one = Policy::token_bucket("one", Quota::per_minute(1));
        let layer = RateLimitLayer::new(Limiter::new(still(), one), Global);
        let Ok(response) = layer.layer(service(retry)).oneshot(request()).await;
        assert_eq!(header(&response, "retry-after"), Some(expected));
    }
}

#[tokio::test]
async fn a_key_with_too_few_levels_is_500_because_the_service_is_set_up_wrongly() {
    let layer = RateLimitLayer::new(Limiter::new(still(), TWO.at_level(2)), Global);
    let response = send(&layer, request()).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!response.body().contains("level"), "{}", response.body());
}
