//! Outgoing requests. The clock of tokio is paused.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use http::{Request, Response, StatusCode};
use proptest::prelude::*;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::time::{Instant, sleep, timeout};
use tollgate::{Limiter, Policy, Quota};
use tollgate_outgoing::RetryAfterLayer;
use tollgate_tower::{HeaderFormat, RateLimitLayer, key::Global};
use tower::{Layer, Service, ServiceExt, service_fn, util::BoxCloneService};

use crate::support::{hello, in_one_tenth, request, second, still};

/// A remote server with prepared responses, which records when it was called.
struct Server {
    calls: Arc<Mutex<Vec<Duration>>>,
    service: BoxCloneService<Request<()>, Response<String>, Infallible>,
}

fn server(layer: RetryAfterLayer, responses: &'static [(u16, &'static str)]) -> Server {
    late_server(layer, responses, Duration::ZERO)
}

fn late_server(
    layer: RetryAfterLayer,
    responses: &'static [(u16, &'static str)],
    latency: Duration,
) -> Server {
    let start = Instant::now();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let log = calls.clone();
    let service = layer.layer(service_fn(move |_: Request<()>| {
        let mut log = log.lock().unwrap();
        log.push(start.elapsed());
        let (status, retry_after) = responses.get(log.len() - 1).copied().unwrap_or((200, ""));
        let mut response = Response::builder().status(status);
        if !retry_after.is_empty() {
            response = response.header("retry-after", retry_after);
        }
        async move {
            if !latency.is_zero() {
                sleep(latency).await;
            }
            Ok(response.body(String::new()).unwrap())
        }
    }));
    Server {
        calls,
        service: BoxCloneService::new(service),
    }
}

impl Server {
    async fn call(&self) -> StatusCode {
        let Ok(response) = self.service.clone().oneshot(request()).await;
        response.status()
    }

    fn seconds(&self) -> Vec<u64> {
        self.calls
            .lock()
            .unwrap()
            .iter()
            .map(Duration::as_secs)
            .collect()
    }
}

const EXACT: RetryAfterLayer = RetryAfterLayer::new().jitter(0.0);

#[tokio::test(start_paused = true)]
async fn requests_are_delayed_until_the_server_accepts_them() {
    let api = server(EXACT, &[(200, ""), (429, "7"), (503, "2")]);
    let statuses = [
        api.call().await,
        api.call().await,
        api.call().await,
        api.call().await,
    ];
    assert_eq!(statuses.map(|it| it.as_u16()), [200, 429, 503, 200]);
    assert_eq!(api.seconds(), [0, 0, 7, 9]);
}

#[tokio::test(start_paused = true)]
async fn no_response_causes_a_delay_above_the_cap() {
    let api = server(EXACT.cap(Duration::from_secs(5)), &[(429, "100000000")]);
    api.call().await;
    api.call().await;
    assert_eq!(api.seconds(), [0, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_without_a_cap_is_a_year() {
    let api = server(EXACT.cap(Duration::MAX), &[(429, "99999999999999999999")]);
    api.call().await;
    api.call().await;
    assert_eq!(api.seconds(), [0, 365 * 86_400]);
}

#[tokio::test(start_paused = true)]
async fn a_503_without_retry_after_causes_the_fallback_delay() {
    let api = server(EXACT.fallback(Duration::from_secs(3)), &[(503, "")]);
    api.call().await;
    api.call().await;
    assert_eq!(api.seconds(), [0, 3]);
}

#[tokio::test(start_paused = true)]
async fn jitter_spreads_requests_and_never_shortens_a_delay() {
    let api = server(RetryAfterLayer::new().jitter(0.5), &[(429, "10")]);
    api.call().await;
    futures_util::future::join_all((0..50).map(|_| api.call())).await;
    let calls = api.calls.lock().unwrap();
    let delayed = &calls[1..];
    assert!(
        delayed
            .iter()
            .all(|at| (10_000..=15_002).contains(&at.as_millis())),
        "{delayed:?}"
    );
    let spread = delayed
        .iter()
        .max()
        .unwrap()
        .saturating_sub(*delayed.iter().min().unwrap());
    assert!(spread > Duration::from_secs(1), "{spread:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shorter_delay_does_not_end_a_longer_one() {
    // The longer delay arrives first, and then last.
    for responses in [&[(429, "10"), (429, "3")], &[(429, "3"), (429, "10")]] {
        let api = late_server(EXACT, responses, Duration::from_millis(5));
        // Both requests are sent before the first response, and the responses arrive one after the
        // other.
        let first = tokio::spawn(api.service.clone().oneshot(request()));
        sleep(Duration::from_millis(2)).await;
        let second = tokio::spawn(api.service.clone().oneshot(request()));
        sleep(Duration::from_millis(2)).await;
        assert_eq!(api.seconds(), [0, 0]);
        assert_eq!(
            first.await.unwrap().unwrap().status(),
            StatusCode::TOO_MANY_REQUESTS
        );
        assert!(!second.is_finished());
        assert_eq!(
            second.await.unwrap().unwrap().status(),
            StatusCode::TOO_MANY_REQUESTS
        );
        api.call().await;
        assert_eq!(api.seconds(), [0, 0, 10], "{responses:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_follows_a_new_delay() {
    let api = server(EXACT, &[(429, "2"), (429, "5")]);
    api.call().await;
    let (_, _) = tokio::join!(api.call(), async {
        sleep(Duration::from_micros(1)).await;
        api.call().await
    });
    assert_eq!(api.seconds(), [0, 2, 7]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_cancelled_during_its_delay_is_never_sent() {
    let api = server(EXACT, &[(429, "7")]);
    api.call().await;
    assert!(timeout(Duration::from_secs(1), api.call()).await.is_err());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(api.seconds(), [0]);
}

#[tokio::test(start_paused = true)]
async fn the_service_that_was_ready_is_called_after_the_delay() {
    let (inner, mut handle) = tower_test::mock::pair::<Request<()>, Response<String>>();
    let mut service = EXACT.layer(inner);
    handle.allow(2);
    let rejected = tokio::spawn(service.ready().await.unwrap().call(request()));
    let response = Response::builder()
        .status(429)
        .header("retry-after", "1")
        .body(String::new())
        .unwrap();
    handle
        .next_request()
        .await
        .unwrap()
        .1
        .send_response(response);
    rejected.await.unwrap().unwrap();
    let delayed = tokio::spawn(service.ready().await.unwrap().call(request()));
    handle
        .next_request()
        .await
        .unwrap()
        .1
        .send_response(Response::new("hello".into()));
    assert_eq!(delayed.await.unwrap().unwrap().into_body(), "hello");
}

/// Has a long cap, and a fallback that no header names.
const READING: RetryAfterLayer = EXACT
    .cap(Duration::from_secs(100_000))
    .fallback(Duration::from_secs(999));
const FORBIDDEN: RetryAfterLayer = READING.delay_on_forbidden(true);

type Fields<'a> = &'a [(&'static str, &'a str)];

/// Returns the milliseconds by which a response delays the next request.
async fn millis(layer: RetryAfterLayer, status: u16, fields: Fields<'_>) -> u128 {
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()))
        .collect();
    let service = layer.layer(service_fn(move |_: Request<()>| {
        let response = Response::builder().status(status);
        let response = fields.iter().fold(response, |response, (name, value)| {
            response.header(*name, value)
        });
        std::future::ready(Ok::<_, Infallible>(response.body(()).unwrap()))
    }));
    let Ok(_) = service.clone().oneshot(request()).await;
    let start = Instant::now();
    let Ok(_) = service.oneshot(request()).await;
    start.elapsed().as_millis()
}

async fn seconds(status: u16, fields: Fields<'_>) -> u128 {
    millis(READING, status, fields).await / 1_000
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_that_of_the_first_header_that_says_one() {
    let date = |seconds| httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(seconds));
    let both = [("retry-after", "7"), ("ratelimit", r#""a";r=0;t=50"#)];
    for (status, fields, expected) in [
        (429, &both[..], 7..=7),
        (503, &both, 7..=7),
        (200, &both, 50..=50),
        (301, &both[..1], 0..=0),
        (500, &[], 0..=0),
        (429, &[], 999..=999),
        (429, &[("retry-after", &date(100))], 80..=100),
        (
            429,
            &[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")],
            0..=0,
        ),
        (200, &[("retry-after-ms", "1500")], 0..=0),
        (
            429,
            &[("retry-after", "99999999999999999999")],
            100_000..=100_000,
        ),
        // The headers in a cache belong to another request.
        (200, &[("ratelimit", r#""a";r=0;t=5"#), ("age", "3")], 0..=0),
        (
            429,
            &[
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "5s"),
                ("age", "3"),
            ],
            999..=999,
        ),
        // A reset in the past says nothing after a rejection.
        (
            429,
            &[
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "1372700873"),
            ],
            999..=999,
        ),
        (
            200,
            &[
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "1372700873"),
            ],
            0..=0,
        ),
        (429, &[("ratelimit", r#""a";r=0;t=0"#)], 999..=999),
    ] {
        let found = seconds(status, fields).await;
        assert!(expected.contains(&found), "{status} {fields:?}: {found}");
    }
    for text in ["", "-1", "+5", "1.5", "soon", "5 s"] {
        assert_eq!(
            seconds(429, &[("retry-after", text)]).await,
            999,
            "{text:?}"
        );
    }
    for (text, expected) in [
        ("1500", 1_500),
        (" 1500.75 ", 1_500),
        ("1500.", 7_000),
        (".5", 7_000),
        ("1e3", 7_000),
    ] {
        let found = millis(
            READING,
            429,
            &[("retry-after-ms", text), ("retry-after", "7")],
        )
        .await;
        assert_eq!(found, expected, "{text}");
    }
}

/// The answers of GitHub:
/// <https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api>.
#[tokio::test(start_paused = true)]
async fn a_403_of_github_delays_when_it_is_asked_for() {
    let secondary = [
        ("retry-after", "60"),
        ("x-ratelimit-remaining", "4999"),
        ("x-ratelimit-reset", "1372700873"),
    ];
    assert_eq!(millis(FORBIDDEN, 403, &secondary).await, 60_000);
    assert_eq!(millis(FORBIDDEN, 401, &secondary).await, 0);
    assert_eq!(millis(READING, 403, &secondary).await, 0);
    let reset = (second() + 100).to_string();
    let primary = [
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", reset.as_str()),
    ];
    for layer in [READING, FORBIDDEN] {
        // The token has no right to do this. Waiting does not help.
        assert_eq!(millis(layer, 403, &secondary[1..]).await, 0);
        assert_eq!(millis(layer, 403, &[]).await, 0);
        let found = millis(layer, 403, &primary).await;
        assert!((80_000..=100_000).contains(&found), "{found}");
    }
}

#[tokio::test(start_paused = true)]
async fn headers_without_remaining_units_delay_until_there_are_more() {
    for (fields, expected) in [
        (
            &[("ratelimit", r#""a";r=3;t=9, "b";r=0;t=5, "c";r=0;t=7"#)][..],
            7,
        ),
        (
            &[
                ("ratelimit", r#""a";r=0;t=5"#),
                ("ratelimit", r#""b";r=0;t=6"#),
            ],
            6,
        ),
        (&[("ratelimit", r#""a";r=3;t=9"#)], 0),
        (&[("ratelimit", r#""a";r=0"#)], 0),
        // The parameters of the draft's next revision.
        (&[("ratelimit", r#""a";a=0;w=5;c=1, "b";a=3;w=9"#)], 5),
        (&[("ratelimit", r#""a";a=1;w=5"#)], 0),
        (
            &[("ratelimit", r#""a, \"b";pk=:AA==:;x="y;r=5";r=0; t=5"#)],
            5,
        ),
        (&[("ratelimit-remaining", "0"), ("ratelimit-reset", "8")], 8),
        (&[("ratelimit-remaining", "1"), ("ratelimit-reset", "8")], 0),
        (
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "8")],
            8,
        ),
    ] {
        assert_eq!(seconds(200, fields).await, expected, "{fields:?}");
    }
}

/// Lists values of `RateLimit` that RFC 9651 or the draft rejects.
const MALFORMED: &str = r#"
a;r=0;t=5
0
*a;r=0;t=5
:YQ==:;r=0;t=5
?1;r=0;t=5
1.5;r=0;t=5
@1;r=0;t=5
%"a";r=0;t=5
("a" "b");r=0;t=2
("a";r=0;t=2)
"a";r=x;t=5
"a";r=0;t=5,
"a";r=0;t=5,, "b";r=0;t=5
"a";t=5
"a"
"a";w=5
"a";a=x;w=5
"a";a=0;w="5"
"a;r=0;t=5
'a';r=0;t=5
"a\b";r=0;t=5
"ä";r=0;t=5
"a";r=0;t=5 "b";r=0;t=5
"a" ;r=0;t=2
"a";r= 0;t=2
"a";r=0;t=2;
"a";r=0;t=2;x=
"a";r=;t=2
"a";R=0;t=2
"a";r=-1;t=2
"a";r=0;t=-2
"a";r=+0;t=2
"a";r=0;t=2.5
"a";r=0.0;t=2
"a";r=0;t=1e3
"a";r="0";t=2
"a";r=0;t="2"
"a";r=?0;t=2
"a";r;t=2
"a";r=0;t
"a";r=0;t=1234567890123456
limit=1, remaining=0, reset=3
1, 1;w=3
"a";r=0;t=5, 7
"a";r=0;t=5, b;r=0
"a";r=0;t=5, ("b");r=0
"a";r=0;t=5, "b";r=x
"a";r=0;t=5, "b""#;

#[tokio::test(start_paused = true)]
async fn a_header_that_does_not_parse_is_ignored_as_a_whole() {
    for text in MALFORMED.lines() {
        assert_eq!(seconds(200, &[("ratelimit", text)]).await, 0, "{text}");
        assert_eq!(seconds(429, &[("ratelimit", text)]).await, 999, "{text}");
        if !text.is_empty() {
            // A valid line beside it is a part of the same value.
            assert_eq!(
                seconds(200, &[("ratelimit", r#""b";r=0;t=5"#), ("ratelimit", text)]).await,
                0,
                "{text}"
            );
        }
    }
    for text in [
        r#"  "a";r=0;t=5  "#,
        "\"a\";r=0;t=5 \t,\t \"b\";r=1",
        r#""a"; r=0;   t=5;x;y=?0;z=:YQ==:;u=1.5;v=tok*en;d=@1659578233;s=%"a";k="\"""#,
        r#""a";r=9;r=0;t=1;t=5"#,
        r#""";r=000;t=5"#,
    ] {
        assert_eq!(seconds(200, &[("ratelimit", text)]).await, 5, "{text}");
    }
}

/// The values of the page <https://developers.openai.com/api/docs/guides/rate-limits>.
const OPEN_AI: [(&str, &str); 4] = [
    ("x-ratelimit-remaining-requests", "59"),
    ("x-ratelimit-remaining-tokens", "149984"),
    ("x-ratelimit-reset-requests", "1s"),
    ("x-ratelimit-reset-tokens", "6m0s"),
];

#[tokio::test(start_paused = true)]
async fn the_spent_unit_of_a_language_model_names_the_delay() {
    for (name, value, expected) in [
        ("x-ratelimit-remaining-requests", "0", 1),
        ("x-ratelimit-remaining-tokens", "0", 360),
        // Requests are left, so the request needed more tokens than are left.
        ("x-ratelimit-remaining-requests", "59", 360),
        ("x-ratelimit-remaining-tokens", "-1", 999),
        ("x-ratelimit-reset-tokens", "-6m0s", 999),
        ("x-ratelimit-reset-tokens", "12", 12),
    ] {
        let fields = OPEN_AI.map(|(own, old)| (own, if own == name { value } else { old }));
        assert_eq!(seconds(429, &fields).await, expected, "{name}: {value}");
        assert_eq!(seconds(200, &fields).await, 0, "{name}: {value}");
    }
    let at = |seconds| {
        let at =
            OffsetDateTime::now_utc().replace_nanosecond(0).unwrap() + Duration::from_secs(seconds);
        at.format(&Rfc3339).unwrap()
    };
    let (soon, late) = (at(30), at(90));
    for (requests, input, output, expected) in [
        ("10", "0", "16000", 10..=31),
        ("0", "0", "16000", 70..=91),
        ("10", "80000", "0", 999..=999),
    ] {
        let fields = [
            ("anthropic-ratelimit-requests-remaining", requests),
            ("anthropic-ratelimit-requests-reset", late.as_str()),
            ("anthropic-ratelimit-input-tokens-remaining", input),
            ("anthropic-ratelimit-input-tokens-reset", soon.as_str()),
            ("anthropic-ratelimit-output-tokens-remaining", output),
            (
                "anthropic-ratelimit-output-tokens-reset",
                "2000-01-01T00:00:00Z",
            ),
        ];
        let found = seconds(429, &fields).await;
        assert!(expected.contains(&found), "{fields:?}: {found}");
    }
}

proptest! {
    #[test]
    fn no_text_causes_a_panic(text in r#"["a-c;=,\\ rt0-9:?*-]{0,40}"#) {
        let names = ["ratelimit", "retry-after", "retry-after-ms", "x-ratelimit-remaining", "x-ratelimit-reset"];
        let mut fields = names.map(|name| (name, text.as_str())).to_vec();
        fields.extend([("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", &text)]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            for status in [200, 403, 429] {
                millis(FORBIDDEN, status, &fields).await;
                millis(FORBIDDEN, status, &fields[3..]).await;
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_the_headers_waits_as_long_as_they_say() {
    const MINUTE: Policy = Policy::window_from_first_hit("requests", Quota::per_minute(1));
    for format in [HeaderFormat::OpenAi, HeaderFormat::Anthropic] {
        for kept in ["retry-after-ms", "retry-after", "-reset"] {
            let limiter = Limiter::new(still(), MINUTE);
            let _ = limiter.check("all").await;
            let layer = RateLimitLayer::builder(limiter, Global)
                .header_format(format)
                .build();
            let service =
                layer
                    .layer(hello())
                    .map_response(move |mut response: Response<String>| {
                        let headers = response.headers_mut();
                        for name in ["retry-after-ms", "retry-after"]
                            .into_iter()
                            .filter(|name| *name != kept)
                        {
                            headers.remove(name);
                        }
                        response
                    });
            let client = RetryAfterLayer::new()
                .jitter(0.0)
                .fallback(Duration::from_secs(7))
                .cap(Duration::from_secs(600));
            let waited = in_one_tenth(async || {
                let (client, start) = (client.layer(service.clone()), Instant::now());
                for _ in 0..2 {
                    let Ok(response) = client.clone().oneshot(request()).await;
                    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
                }
                start.elapsed()
            })
            .await;
            let expected = match (kept, format) {
                // This format has no milliseconds, so the reset is read.
                ("-reset" | "retry-after-ms", HeaderFormat::Anthropic) => 59..=61,
                _ => 60..=60,
            };
            assert!(
                expected.contains(&waited.as_secs()),
                "{format:?} {kept}: {waited:?}"
            );
        }
    }
}
