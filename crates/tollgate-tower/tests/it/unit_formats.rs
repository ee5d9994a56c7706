//! The formats of language-model services, alone and beside the default format.

use std::{ops::RangeInclusive, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tollgate::{Cost, Limiter, Outage, Policy, Quota};
use tollgate_tower::{HeaderFormat, QuotaUnit, RateLimitLayer, key::Global};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::*;

const REQUESTS: Policy = Policy::token_bucket("requests", Quota::per_minute(60));
const TOKENS: Policy =
    Policy::token_bucket("tokens", Quota::per_minute(25_000).with_burst(150_000));
const INPUT: Policy = Policy::window_from_first_hit("input", Quota::per_minute(80_000));
const OUTPUT: Policy = Policy::window_from_first_hit("output", Quota::per_minute(16_000));

const UNITS: [(&str, QuotaUnit); 5] = [
    ("tokens", QuotaUnit::TOKENS),
    ("tokens-day", QuotaUnit::TOKENS),
    ("input", QuotaUnit::INPUT_TOKENS),
    ("output", QuotaUnit::OUTPUT_TOKENS),
    ("streams", QuotaUnit::CONCURRENT_REQUESTS),
];

type Formats = &'static [HeaderFormat];

fn layer(limiter: &Limiter, formats: Formats) -> RateLimitLayer<Global> {
    let builder =
        RateLimitLayer::builder(limiter.clone(), Global).header_formats(formats.iter().copied());
    builder.cost(|_| Cost::ZERO).quota_units(UNITS).build()
}

/// Returns the sorted headers of the formats.
fn lines(headers: &HeaderMap) -> Vec<String> {
    let is_own = |name: &str| name.contains("ratelimit") || name.starts_with("retry-after");
    let lines = headers.iter().filter(|(name, _)| is_own(name.as_str()));
    let mut lines: Vec<_> = lines
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    lines
}

/// Replaces the instant of a header line by the seconds from the response, which was written in
/// these seconds, until then.
fn with_seconds(line: String, written: &RangeInclusive<u64>) -> String {
    let Some((name, instant)) = line.split_once("-reset: ") else {
        return line;
    };
    let instant = OffsetDateTime::parse(instant, &Rfc3339).unwrap();
    assert_eq!(instant.nanosecond(), 0, "{line}");
    let instant = instant.unix_timestamp() as u64;
    let found = [0, 60].into_iter().find(|seconds| {
        // The instant is rounded up.
        (written.start() + seconds..=written.end() + seconds + 1).contains(&instant)
    });
    match found {
        Some(seconds) => format!("{name}-reset: {seconds}"),
        None => line,
    }
}

#[tokio::test]
async fn openai_writes_three_headers_for_requests_and_three_for_tokens() {
    let limiter = Limiter::new(still(), [REQUESTS, TOKENS, INPUT]);
    let layer = layer(&limiter, &[HeaderFormat::OpenAi]);
    let _ = limiter
        .check("all")
        .cost([("requests", 1), ("tokens", 150_000), ("input", 5)])
        .await
        .unwrap();
    let response = send(&layer, request()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let expected = [
        "x-ratelimit-limit-requests: 60",
        "x-ratelimit-limit-tokens: 150000",
        "x-ratelimit-remaining-requests: 59",
        "x-ratelimit-remaining-tokens: 0",
        "x-ratelimit-reset-requests: 1s",
        "x-ratelimit-reset-tokens: 6m0s",
    ];
    assert_eq!(lines(response.headers()), expected);
}

#[tokio::test]
async fn anthropic_writes_three_headers_for_each_unit() {
    let limiter = Limiter::new(still(), [REQUESTS, TOKENS, INPUT, OUTPUT]);
    let layer = layer(&limiter, &[HeaderFormat::Anthropic]);
    let _ = limiter
        .check("all")
        .cost([
            ("requests", 60),
            ("tokens", 25_000),
            ("input", 1000),
            ("output", 0),
        ])
        .await
        .unwrap();
    let sent = second();
    let response = send(&layer, request()).await;
    let written = sent..=second();
    let found: Vec<_> = lines(response.headers())
        .into_iter()
        .map(|line| with_seconds(line, &written))
        .collect();
    let expected = [
        "anthropic-ratelimit-input-tokens-limit: 80000",
        "anthropic-ratelimit-input-tokens-remaining: 79000",
        "anthropic-ratelimit-input-tokens-reset: 60",
        "anthropic-ratelimit-output-tokens-limit: 16000",
        "anthropic-ratelimit-output-tokens-remaining: 16000",
        "anthropic-ratelimit-output-tokens-reset: 0",
        "anthropic-ratelimit-requests-limit: 60",
        "anthropic-ratelimit-requests-remaining: 0",
        "anthropic-ratelimit-requests-reset: 60",
        "anthropic-ratelimit-tokens-limit: 150000",
        "anthropic-ratelimit-tokens-remaining: 125000",
        "anthropic-ratelimit-tokens-reset: 60",
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn of_several_policies_with_one_unit_the_most_restrictive_one_appears() {
    const DAY: Policy = Policy::window_from_first_hit("tokens-day", Quota::per_day(1_000_000));
    for (day, minute, expected) in [
        // The fewest remaining units.
        (0, 10, ["150000", "149990", "24ms"]),
        (900_000, 10, ["1000000", "100000", "24h0m0s"]),
        // The longest wait.
        (1_000_000, 150_000, ["1000000", "0", "24h0m0s"]),
    ] {
        for policies in [[TOKENS, DAY], [DAY, TOKENS]] {
            let limiter = Limiter::new(still(), policies);
            let layer = layer(&limiter, &[HeaderFormat::OpenAi]);
            let _ = limiter
                .check("all")
                .cost([("tokens", minute), ("tokens-day", day)])
                .await
                .unwrap();
            let response = send(&layer, request()).await;
            let names =
                ["limit", "remaining", "reset"].map(|name| format!("x-ratelimit-{name}-tokens"));
            let found = names
                .each_ref()
                .map(|name| header(&response, name).unwrap());
            assert_eq!(found, expected, "{day} {minute}");
        }
    }
}

#[tokio::test]
async fn a_denial_of_openai_has_the_wait_in_milliseconds_too() {
    let limiter = Limiter::new(still(), [REQUESTS, TOKENS]);
    let _ = limiter
        .check("all")
        .cost([("requests", 60), ("tokens", 0)])
        .await
        .unwrap();
    for (formats, millis) in [
        (&[HeaderFormat::OpenAi][..], Some("1000")),
        (&[HeaderFormat::Ietf08, HeaderFormat::OpenAi], Some("1000")),
        (&[HeaderFormat::Anthropic], None),
        (&[HeaderFormat::Ietf08], None),
    ] {
        let builder = RateLimitLayer::builder(limiter.clone(), Global)
            .header_formats(formats.iter().copied());
        let response = send(&builder.quota_units(UNITS).build(), request()).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(header(&response, "retry-after"), Some("1"));
        assert_eq!(header(&response, "retry-after-ms"), millis);
    }
    let fast = Limiter::new(
        still(),
        Policy::token_bucket("fast", Quota::new(1, Duration::from_micros(12_345))),
    );
    let _ = fast.check("all").await;
    let response = send(
        &RateLimitLayer::builder(fast, Global)
            .header_format(HeaderFormat::OpenAi)
            .build(),
        request(),
    )
    .await;
    assert_eq!(header(&response, "retry-after"), Some("1"));
    assert_eq!(header(&response, "retry-after-ms"), Some("13"));
    assert_eq!(
        header(&response, "x-ratelimit-reset-requests"),
        Some("13ms")
    );
}

#[tokio::test]
async fn formats_without_a_common_header_stand_beside_each_other() {
    let limiter = Limiter::new(still(), [REQUESTS, TOKENS]);
    let _ = limiter
        .check("all")
        .cost([("requests", 1), ("tokens", 850)])
        .await
        .unwrap();
    let mut alone = Vec::new();
    let all: Formats = &[
        HeaderFormat::Ietf08,
        HeaderFormat::RetryAfter,
        HeaderFormat::OpenAi,
    ];
    for format in [&all[..1], &all[1..2], &all[2..]] {
        alone.extend(lines(
            send(&layer(&limiter, format), request()).await.headers(),
        ));
    }
    alone.sort();
    assert_eq!(
        lines(send(&layer(&limiter, all), request()).await.headers()),
        alone
    );
    assert_eq!(alone.len(), 2 + 2 + 6);
    // The default format does not depend on its place.
    let last: Formats = &[
        HeaderFormat::OpenAi,
        HeaderFormat::RetryAfter,
        HeaderFormat::Ietf08,
    ];
    assert_eq!(
        lines(send(&layer(&limiter, last), request()).await.headers()),
        alone
    );
}

#[tokio::test]
async fn the_default_format_shows_the_unit_of_each_policy() {
    const STREAMS: Policy = Policy::token_bucket("streams", Quota::per_minute(2));
    let limiter = Limiter::new(still(), [REQUESTS, TOKENS, STREAMS]);
    let _ = limiter
        .check("all")
        .cost([("requests", 1), ("tokens", 850), ("streams", 1)])
        .await
        .unwrap();
    let response = send(&layer(&limiter, &[HeaderFormat::Ietf08]), request()).await;
    let policies = r#""requests";q=60;w=60, "tokens";q=150000;qu="tokens";w=360, "streams";q=2;qu="concurrent-requests""#;
    assert_eq!(header(&response, "ratelimit-policy"), Some(policies));
    // Units of concurrent requests have no window, and nobody knows when they come back.
    assert_eq!(
        header(&response, "ratelimit"),
        Some(r#""requests";r=59;t=1, "tokens";r=149150;t=1, "streams";r=1"#)
    );
}

#[tokio::test]
async fn scripts_in_browsers_may_read_the_headers_of_all_formats() {
    let limiter = Limiter::new(still(), [REQUESTS, TOKENS]);
    let formats = [HeaderFormat::Ietf08, HeaderFormat::OpenAi];
    let layer = RateLimitLayer::builder(limiter, Global)
        .header_formats(formats)
        .expose_headers(true)
        .build();
    let response = send(&layer, request()).await;
    let exposed: Vec<_> = response
        .headers()
        .get_all("access-control-expose-headers")
        .iter()
        .collect();
    assert_eq!(exposed.len(), 2);
    let exposed = exposed
        .iter()
        .flat_map(|line| line.to_str().unwrap().split(", "))
        .collect::<Vec<_>>();
    for name in response
        .headers()
        .keys()
        .filter(|name| name.as_str().contains("ratelimit"))
    {
        assert!(exposed.contains(&name.as_str()), "{name}");
    }
    assert!(exposed.contains(&"retry-after-ms"));
}

#[tokio::test]
async fn without_a_decision_no_format_writes_or_exposes_a_header() {
    let formats = [
        HeaderFormat::Ietf08,
        HeaderFormat::OpenAi,
        HeaderFormat::Anthropic,
    ];
    let layer = RateLimitLayer::builder(unavailable(Outage::Open), Global).header_formats(formats);
    assert!(
        send(&layer.expose_headers(true).build(), request())
            .await
            .headers()
            .is_empty()
    );
}

/// Returns a service that responds with these headers.
fn upstream(
    headers: &[(&'static str, &'static str)],
) -> impl Service<
    Request<()>,
    Response = Response<String>,
    Error = std::convert::Infallible,
    Future: Send,
> + Clone {
    let headers = headers.iter().map(|(name, value)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    });
    let headers = HeaderMap::from_iter(headers);
    service_fn(move |_: Request<()>| {
        let mut response = Response::new(String::new());
        *response.headers_mut() = headers.clone();
        async { Ok(response) }
    })
}

#[tokio::test]
async fn the_stricter_state_of_each_unit_stays_as_a_whole() {
    let limiter = Limiter::new(still(), [REQUESTS, TOKENS]);
    let layer = layer(&limiter, &[HeaderFormat::OpenAi]);
    let ours = ["60", "60", "0s", "150000", "150000", "0s"];
    for (requests, tokens, expected) in [
        (
            ["9", "8", "1ms"],
            ["7", "6", "20ms"],
            ["9", "8", "1ms", "7", "6", "20ms"],
        ),
        (
            ["9999", "9998", "1ms"],
            ["7", "0", "20ms"],
            ["60", "60", "0s", "7", "0", "20ms"],
        ),
        (
            ["9999", "9998", "1ms"],
            ["900000", "800000", "1h0m0s"],
            ours,
        ),
        // What cannot be parsed is replaced.
        (["9", "-1", "1ms"], ["7", "", "20ms"], ours),
    ] {
        let inside = [
            ("x-ratelimit-limit-requests", requests[0]),
            ("x-ratelimit-remaining-requests", requests[1]),
            ("x-ratelimit-reset-requests", requests[2]),
            ("x-ratelimit-limit-tokens", tokens[0]),
            ("x-ratelimit-remaining-tokens", tokens[1]),
            ("x-ratelimit-reset-tokens", tokens[2]),
        ];
        let Ok(response) = layer.layer(upstream(&inside)).oneshot(request()).await;
        let found = inside.map(|(name, _)| header(&response, name).unwrap());
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn the_milliseconds_of_an_inner_denial_are_raised_with_its_seconds() {
    let outer = Limiter::new(
        still(),
        Policy::window_from_first_hit("outer", Quota::per_minute(1)),
    );
    for (inside, millis) in [
        ("500", "60000"),
        ("59999.5", "60000"),
        ("60000", "60000"),
        ("70000", "70000"),
        ("soon", "60000"),
    ] {
        let _ = outer.reset("all").await;
        let inside = [("retry-after-ms", inside), ("retry-after", "1")];
        let service = upstream(&inside);
        let Ok(response) = RateLimitLayer::new(outer.clone(), Global)
            .layer(service)
            .oneshot(request())
            .await;
        assert_eq!(header(&response, "retry-after"), Some("60"));
        assert_eq!(
            header(&response, "retry-after-ms"),
            Some(millis),
            "{inside:?}"
        );
    }
}
