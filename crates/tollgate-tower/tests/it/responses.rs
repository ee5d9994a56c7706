//! The responses that clients receive.

use std::time::Duration;

use crate::support::*;
use http::{Method, Request, Response, StatusCode};
use tollgate::{Cost, Key, Limiter, MemoryStore, Outage, Policy, PolicySet, Quota, store::Clock};
use tollgate_tower::{
    RateLimitBuilder, RateLimitLayer, Respond,
    key::{BoxedKey, EXEMPT, Global, Header, KeyError, KeyExtractor, PeerIp},
    key_fn,
    rejection::{Empty, Problem, Reason},
    respond_fn,
};
use tower::{Layer, ServiceExt};

/// Puts a layer around a service that says hello.
fn around<K: KeyExtractor, R: Respond<String>>(builder: RateLimitBuilder<K, R>) -> BoxedService {
    BoxedService::new(builder.build().layer(hello()))
}

fn layer(policies: impl Into<PolicySet>) -> RateLimitBuilder<Global> {
    RateLimitLayer::builder(Limiter::new(still(), policies), Global)
}

/// Returns the fields in the order of their names, a line for each.
fn fields(response: &Response<String>) -> Vec<String> {
    let lines = response.headers().iter();
    let lines = lines.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
    let mut lines: Vec<_> = lines.collect();
    lines.sort_by_key(|line| line.split(':').next().unwrap().to_owned());
    lines
}

const PROBLEM: &str = "content-type: application/problem+json";
const NOT_STORED: &str = "cache-control: no-store";

#[tokio::test]
async fn a_client_receives_exactly_these_fields_and_this_body() {
    let fast = Quota::new(20, Duration::from_millis(200));
    let limiter = || Limiter::new(still(), TWO);
    let both = [r#"ratelimit-policy: "two";q=2;w=60, "hourly";q=3;w=3600"#];
    let both_left = r#"ratelimit: "two";r=1;t=30, "hourly";r=2;t=3600"#;
    let both_spent = r#"ratelimit: "two";r=0;t=30, "hourly";r=1;t=3600"#;
    let (two, spent) = (
        r#"ratelimit-policy: "two";q=2;w=60"#,
        r#"ratelimit: "two";r=0;t=30"#,
    );
    let text = "content-type: text/plain; charset=utf-8";
    let away = |outage| around(RateLimitLayer::builder(unavailable(outage), Global));
    let teapot = respond_fn(|rejection| {
        assert!(matches!(rejection.reason(), Reason::Denied(_)));
        let response = Response::builder().status(StatusCode::IM_A_TEAPOT);
        response.body("teapot".to_owned()).unwrap()
    });
    let own = respond_fn(|_| {
        let response = Response::builder().header("retry-after", "99");
        let response = response.header("ratelimit", r#""mine";r=0"#);
        let response = response.header("cache-control", "private");
        response.body("mine".to_owned()).unwrap()
    });
    const DENIED: &str = r##"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"Policy two: try again in 30 s.","violated-policies":["two"]}"##;
    const OWN_TYPE: &str = r##"{"type":"https://example.com/problems#quota-exceeded","title":"Quota exceeded","status":429,"detail":"Policy two: try again in 30 s.","violated-policies":["two"]}"##;
    let denied_for_60_s = DENIED.replace("30 s.", "60 s.");
    // The service, the requests before, the value of `accept`, and what is received.
    let rows = [
        (
            "admitted",
            around(layer([TWO, HOURLY])),
            0,
            "*/*",
            200,
            &[both_left, both[0]][..],
            "hello",
        ),
        (
            "denied",
            around(layer([TWO, HOURLY])),
            2,
            "*/*",
            429,
            &[NOT_STORED, PROBLEM, both_spent, both[0], "retry-after: 30"],
            DENIED,
        ),
        (
            "denied, in a browser",
            around(layer(TWO)),
            2,
            "text/html,*/*;q=0.8",
            429,
            &[NOT_STORED, text, spent, two, "retry-after: 30"],
            "Quota exceeded. Policy two: try again in 30 s.\n",
        ),
        (
            "types of the user",
            around(layer(TWO).respond_with(Problem::types_at("https://example.com/problems"))),
            2,
            "*/*",
            429,
            &[NOT_STORED, PROBLEM, spent, two, "retry-after: 30"],
            OWN_TYPE,
        ),
        (
            "without a body",
            around(layer(TWO).respond_with(Empty)),
            2,
            "*/*",
            429,
            &[NOT_STORED, spent, two, "retry-after: 30"],
            "",
        ),
        (
            "a responder",
            around(layer(TWO).respond_with(teapot)),
            2,
            "*/*",
            418,
            &[NOT_STORED, spent, two, "retry-after: 30"],
            "teapot",
        ),
        (
            "a responder with fields of its own",
            around(layer(TWO).respond_with(own)),
            2,
            "*/*",
            200,
            &[
                "cache-control: private",
                r#"ratelimit: "mine";r=0"#,
                two,
                "retry-after: 99",
            ],
            "mine",
        ),
        (
            "a period below one second",
            around(layer(Policy::token_bucket("fast", fast))),
            0,
            "*/*",
            200,
            &[
                r#"ratelimit: "fast";r=19;t=1"#,
                r#"ratelimit-policy: "fast";q=20;w=1"#,
            ],
            "hello",
        ),
        (
            "a cost that never fits",
            around(layer(TWO).cost(|_| Cost::new(3))),
            0,
            "*/*",
            413,
            &[PROBLEM, two],
            r#"{"title":"Payload Too Large","status":413,"detail":"cost 3 exceeds the burst 2 of policy two"}"#,
        ),
        (
            "no key",
            around(RateLimitLayer::builder(limiter(), Header::new("x-api-key"))),
            0,
            "*/*",
            400,
            &[PROBLEM],
            r#"{"title":"Bad Request","status":400,"detail":"header x-api-key is missing"}"#,
        ),
        // The service is set up wrongly, and its clients learn no details.
        (
            "no peer",
            around(RateLimitLayer::builder(limiter(), PeerIp)),
            0,
            "*/*",
            500,
            &[PROBLEM],
            r#"{"title":"Internal Server Error","status":500}"#,
        ),
        (
            "too few levels",
            around(layer(TWO.at_level(2))),
            0,
            "*/*",
            500,
            &[PROBLEM],
            r#"{"title":"Internal Server Error","status":500}"#,
        ),
        (
            "closed in an outage",
            away(Outage::Closed),
            0,
            "*/*",
            503,
            &[PROBLEM],
            r#"{"title":"Service Unavailable","status":503}"#,
        ),
        (
            "open in an outage",
            away(Outage::Open),
            9,
            "*/*",
            200,
            &[],
            "hello",
        ),
        (
            "the share of a replica in an outage",
            away(Outage::local(2)),
            1,
            "*/*",
            429,
            &[
                NOT_STORED,
                PROBLEM,
                r#"ratelimit: "two";r=0;t=60"#,
                r#"ratelimit-policy: "two";q=1;w=60"#,
                "retry-after: 60",
            ],
            &denied_for_60_s,
        ),
        (
            "exempt",
            around(RateLimitLayer::builder(limiter(), key_fn(|_| EXEMPT))),
            9,
            "*/*",
            200,
            &[],
            "hello",
        ),
        (
            "a cost of nothing",
            around(layer(TWO).cost(|_| Cost::ZERO)),
            9,
            "*/*",
            200,
            &[r#"ratelimit: "two";r=2"#, two],
            "hello",
        ),
    ];
    for (row, service, before, accept, status, expected, body) in rows {
        for _ in 0..before {
            let Ok(response) = service.clone().oneshot(request()).await;
            assert_eq!(response.status(), StatusCode::OK, "{row}");
        }
        let Ok(response) = service.oneshot(request_with("accept", accept)).await;
        let found = (
            response.status().as_u16(),
            fields(&response),
            response.body().as_str(),
        );
        assert_eq!(
            found,
            (
                status,
                expected.iter().map(|line| (*line).to_owned()).collect(),
                body
            ),
            "{row}"
        );
    }
}

#[tokio::test]
async fn retry_after_is_rounded_up_and_never_zero() {
    let clock = Clock::manual(1_000_000_000);
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let layer = RateLimitLayer::new(
        Limiter::new(
            store,
            Policy::token_bucket("one", Quota::new(1, Duration::from_millis(1500))),
        ),
        Global,
    );
    let retry = async || header(&send(&layer, request()).await, "retry-after").map(str::to_owned);
    assert_eq!(retry().await, None);
    assert_eq!(retry().await.as_deref(), Some("2"));
    clock.advance(Duration::from_micros(1_499_999));
    assert_eq!(retry().await.as_deref(), Some("1"));
    clock.advance(Duration::from_micros(1));
    assert_eq!(retry().await, None);
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
