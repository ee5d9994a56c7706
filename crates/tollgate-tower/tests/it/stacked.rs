//! Headers of stacked layers, and headers that the service has set before.

use std::{
    convert::Infallible,
    time::{Duration, SystemTime},
};

use http::{HeaderMap, Request, Response, StatusCode};
use sfv::Parser;
use tollgate::{Cost, Limiter, Policy, Quota};
use tollgate_tower::{
    HeaderFormat, RateLimitLayer, ResetFormat,
    key::{Global, Header},
};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::*;

const EPOCH: HeaderFormat = HeaderFormat::Legacy {
    reset: ResetFormat::Epoch,
};

/// Waits for one hour when it is spent.
const SLOW: Policy = Policy::window_from_first_hit("slow", Quota::per_hour(2));
/// Waits for 60 s when it is spent.
const FAST: Policy = Policy::window_from_first_hit("fast", Quota::per_minute(3));

fn layer(
    policy: Policy,
    format: HeaderFormat,
    spent: u64,
) -> impl Future<Output = RateLimitLayer<Global>> {
    let limiter = Limiter::new(still(), policy);
    async move {
        spend(&limiter, "all", spent).await;
        RateLimitLayer::builder(limiter, Global)
            .header_format(format)
            .build()
    }
}

async fn call<S>(service: S, accept: &str) -> Response<String>
where
    S: Service<Request<()>, Response = Response<String>, Error = Infallible>,
{
    let Ok(response) = service.oneshot(request_with("accept", accept)).await;
    response
}

/// Returns all times that the headers report for the moment when more units are available, in
/// seconds from now.
fn times(headers: &HeaderMap) -> Vec<(String, u64)> {
    let now = second();
    let mut times = Vec::new();
    for (name, value) in headers {
        let value = value.to_str().unwrap();
        let seconds = match name.as_str() {
            "retry-after"
            | "ratelimit-reset"
            | "x-ratelimit-reset"
            | "x-ratelimit-retry-after"
            | "x-ratelimit-after" => value.parse::<u64>().ok(),
            "ratelimit" if value.contains("slow") => {
                value.split_once("\"slow\";r=0;t=").map(|(_, rest)| {
                    let digits = rest
                        .split(|letter: char| !letter.is_ascii_digit())
                        .next()
                        .unwrap();
                    digits.parse().unwrap()
                })
            }
            "ratelimit" => value
                .split_once("reset=")
                .map(|(_, rest)| rest.parse().unwrap()),
            _ => None,
        };
        if let Some(seconds) = seconds {
            // A reset since the epoch may be one second later, because the clock goes on.
            let seconds = if seconds > now {
                (seconds - now).clamp(3600, 3601) / 3600 * 3600
            } else {
                seconds
            };
            times.push((name.to_string(), seconds));
        }
    }
    times
}

/// Asserts that a response reports the values of [`SLOW`], and no time of [`FAST`].
fn assert_slow(response: &Response<String>, format: HeaderFormat) {
    for (name, seconds) in times(response.headers()) {
        assert_eq!(
            seconds,
            3600,
            "{format:?}: {name} of {:?}",
            response.headers()
        );
    }
    let expected: &[(&str, &str)] = match format {
        HeaderFormat::Ietf07 => &[("ratelimit", "limit=2, remaining=0, reset=3600")],
        HeaderFormat::Ietf06 => &[
            ("ratelimit-limit", "2"),
            ("ratelimit-remaining", "0"),
            ("ratelimit-reset", "3600"),
        ],
        HeaderFormat::Envoy03 => &[
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "3600"),
        ],
        HeaderFormat::Spring => &[
            ("x-ratelimit-burst-capacity", "2"),
            ("x-ratelimit-remaining", "0"),
        ],
        HeaderFormat::GitHub => &[("x-ratelimit-used", "2"), ("x-ratelimit-resource", "slow")],
        HeaderFormat::RetryAfter | HeaderFormat::TowerGovernor | HeaderFormat::Legacy { .. } => {
            &[("x-ratelimit-limit", "2"), ("x-ratelimit-remaining", "0")]
        }
        _ => &[],
    };
    for (name, value) in expected {
        assert_eq!(header(response, name), Some(*value), "{format:?}: {name}");
    }
}

#[tokio::test]
async fn a_denial_reports_the_wait_of_the_strictest_layer_in_every_format() {
    for format in HEADER_FORMATS.into_iter().chain([EPOCH]) {
        for is_slow_outside in [true, false] {
            for (accept, text) in [
                ("*/*", r#""detail":"Policy slow: try again in 3600 s.""#),
                ("text/html", "slow: try again in 3600 s."),
            ] {
                // The outer layer admits the request, which leaves no unit. The inner layer denies
                // it.
                let service = if is_slow_outside {
                    let outer = layer(SLOW, format, 1).await;
                    outer.layer(BoxedService::new(
                        layer(FAST, format, 3).await.layer(hello()),
                    ))
                } else {
                    let outer = layer(FAST, format, 2).await;
                    outer.layer(BoxedService::new(
                        layer(SLOW, format, 2).await.layer(hello()),
                    ))
                };
                let response = call(service, accept).await;
                assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
                assert_eq!(header(&response, "retry-after"), Some("3600"), "{format:?}");
                assert_slow(&response, format);
                assert!(
                    response.body().contains(text),
                    "{format:?} {is_slow_outside}: {}",
                    response.body()
                );
                let violated = if is_slow_outside {
                    r#"["fast"]"#
                } else {
                    r#"["slow"]"#
                };
                assert!(
                    accept == "text/html" || response.body().contains(violated),
                    "{}",
                    response.body()
                );
            }
        }
    }
}

#[tokio::test]
async fn an_inner_denial_reports_the_longest_wait_of_the_spent_policies_outside() {
    let fast = Policy::window_from_first_hit("fast", Quota::per_minute(2));
    for policies in [[SLOW, fast.clone()], [fast, SLOW]] {
        for is_spent_twice in [false, true] {
            // With a third layer outside, the inner one finds the longest of three waits.
            let outer = RateLimitLayer::builder(Limiter::new(still(), policies.clone()), Global)
                .cost(|_| Cost::new(2));
            let inner = layer(ONE, HeaderFormat::Ietf08, 1).await.layer(hello());
            let service = outer.build().layer(inner);
            let response = if is_spent_twice {
                let outermost = layer(FAST, HeaderFormat::Ietf08, 2).await;
                let outermost = RateLimitLayer::builder(Limiter::new(still(), HOURLY), Global)
                    .build()
                    .layer(outermost.layer(service));
                call(BoxedService::new(outermost), "*/*").await
            } else {
                call(service, "*/*").await
            };
            assert_eq!(header(&response, "retry-after"), Some("3600"));
            let document = response.body();
            assert!(
                document.contains("Policy slow: try again in 3600 s."),
                "{document}"
            );
        }
    }
}

#[tokio::test]
async fn of_two_spent_layers_the_longer_wait_is_reported() {
    for format in HEADER_FORMATS.into_iter().chain([EPOCH]) {
        for is_slow_outside in [true, false] {
            let slow = layer(SLOW, format, 1).await;
            let fast = layer(FAST, format, 2).await;
            let service = if is_slow_outside {
                BoxedService::new(slow.layer(fast.layer(hello())))
            } else {
                BoxedService::new(fast.layer(slow.layer(hello())))
            };
            let response = call(service, "*/*").await;
            assert_eq!(response.status(), StatusCode::OK);
            // These formats report no time with an admitted request, so they may report either
            // layer.
            if !matches!(
                format,
                HeaderFormat::Spring | HeaderFormat::RetryAfter | HeaderFormat::TowerGovernor
            ) {
                assert_slow(&response, format);
            }
        }
    }
}

#[tokio::test]
async fn of_two_spent_policies_the_longer_wait_is_reported() {
    // Two units of each policy: both are spent by one request.
    let fast = Policy::window_from_first_hit("fast", Quota::per_minute(2));
    for policies in [[SLOW, fast.clone()], [fast, SLOW]] {
        for format in HEADER_FORMATS.into_iter().chain([EPOCH]) {
            let limiter = Limiter::new(still(), policies.clone());
            let layer = RateLimitLayer::builder(limiter, Global)
                .header_format(format)
                .cost(|_| Cost::new(2))
                .build();
            let response = send(&layer, request()).await;
            assert_eq!(response.status(), StatusCode::OK);
            assert_slow(&response, format);
        }
    }
}

#[tokio::test]
async fn envoy_03_lists_the_policies_of_all_layers() {
    for is_slow_outside in [true, false] {
        let slow = layer(SLOW, HeaderFormat::Envoy03, 1).await;
        let fast = layer(FAST, HeaderFormat::Envoy03, 0).await;
        let (service, limit) = if is_slow_outside {
            let limit = r#"2, 3;w=60;name="fast", 2;w=3600;name="slow""#;
            (BoxedService::new(slow.layer(fast.layer(hello()))), limit)
        } else {
            let limit = r#"2, 2;w=3600;name="slow", 3;w=60;name="fast""#;
            (BoxedService::new(fast.layer(slow.layer(hello()))), limit)
        };
        let response = call(service, "*/*").await;
        assert_eq!(header(&response, "x-ratelimit-limit"), Some(limit));
    }
}

/// Responds with these headers.
fn service_with(headers: &'static [(&str, &str)]) -> BoxedService {
    BoxedService::new(service_fn(move |_: Request<()>| async move {
        let mut response = Response::builder();
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        Ok::<_, Infallible>(response.body(String::new()).unwrap())
    }))
}

#[tokio::test]
async fn retry_after_of_the_service_as_a_date_is_raised_to_a_longer_wait() {
    let date = |seconds| httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(seconds));
    let later = date(7200);
    for (retry, expected) in [
        (date(1800), "3600".to_owned()),
        (
            "Sun, 06 Nov 1994 08:49:37 GMT".to_owned(),
            "3600".to_owned(),
        ),
        (later.clone(), later),
        ("7200".to_owned(), "7200".to_owned()),
        ("3600".to_owned(), "3600".to_owned()),
        ("3599".to_owned(), "3600".to_owned()),
        // Clients ignore these.
        ("soon".to_owned(), "3600".to_owned()),
        ("-1".to_owned(), "3600".to_owned()),
        ("+7200".to_owned(), "3600".to_owned()),
    ] {
        let name: &'static str = retry.clone().leak();
        let headers: &'static [(&str, &str)] = Vec::leak(vec![("retry-after", name)]);
        let service = layer(SLOW, HeaderFormat::Ietf08, 1)
            .await
            .layer(service_with(headers));
        assert_eq!(
            header(&call(service, "*/*").await, "retry-after"),
            Some(expected.as_str()),
            "{retry}"
        );
    }
}

#[tokio::test]
async fn a_service_without_retry_after_keeps_having_none() {
    let service = layer(SLOW, HeaderFormat::Ietf08, 1).await.layer(hello());
    assert_eq!(header(&call(service, "*/*").await, "retry-after"), None);
}

#[tokio::test]
async fn retry_after_of_the_service_stays_while_units_are_left() {
    let service = service_with(&[("retry-after", "soon"), ("retry-after-ms", "soon")]);
    let response = call(
        layer(SLOW, HeaderFormat::Ietf08, 0).await.layer(service),
        "*/*",
    )
    .await;
    assert_eq!(header(&response, "retry-after"), Some("soon"));
    assert_eq!(header(&response, "retry-after-ms"), Some("soon"));
}

#[tokio::test]
async fn lists_of_another_format_from_inside_are_replaced() {
    let foreign: [&'static [(&str, &str)]; 10] = [
        &[
            ("ratelimit", r#""theirs";t=1"#),
            ("ratelimit-policy", r#""theirs";q=1"#),
        ],
        &[
            ("ratelimit", r#""theirs";r=1"#),
            ("ratelimit-policy", r#""theirs";w=1"#),
        ],
        &[
            ("ratelimit", "limit=1, remaining=0, reset=3"),
            ("ratelimit-policy", "1;w=3"),
        ],
        &[("ratelimit", "limit=1, remaining=0, reset=3")],
        &[("ratelimit-policy", "1;w=3")],
        &[
            ("ratelimit", r#""theirs;r=1"#),
            ("ratelimit-policy", r#""theirs";q=1"#),
        ],
        &[
            ("ratelimit", r#""theirs";r=1"#),
            ("ratelimit-policy", r#""theirs";q=1,"#),
        ],
        &[("ratelimit", r#"("theirs");r=1"#)],
        &[("ratelimit", "")],
        &[
            ("ratelimit", "theirs;r=1"),
            ("ratelimit-policy", "theirs;q=1"),
        ],
    ];
    for headers in foreign {
        let service = layer(SLOW, HeaderFormat::Ietf08, 0)
            .await
            .layer(service_with(headers));
        let response = call(service, "*/*").await;
        assert_eq!(
            header(&response, "ratelimit"),
            Some(r#""slow";r=1;t=3600"#),
            "{headers:?}"
        );
        assert_eq!(
            header(&response, "ratelimit-policy"),
            Some(r#""slow";q=2;w=3600"#),
            "{headers:?}"
        );
    }
}

#[tokio::test]
async fn lists_of_the_same_format_from_inside_are_joined() {
    let headers: &[(&str, &str)] = &[
        ("ratelimit-policy", r#""a";q=1;w=3;pk=:AAAA:;x="1, \"2""#),
        ("ratelimit-policy", r#""b";q=1;w=4"#),
        ("ratelimit", r#""a";r=1;t=3, "b";r=2"#),
    ];
    let service = layer(SLOW, HeaderFormat::Ietf08, 0)
        .await
        .layer(service_with(headers));
    let response = call(service, "*/*").await;
    assert_eq!(
        header(&response, "ratelimit"),
        Some(r#""a";r=1;t=3, "b";r=2, "slow";r=1;t=3600"#)
    );
    let policies = r#""a";q=1;w=3;pk=:AAAA:;x="1, \"2", "b";q=1;w=4, "slow";q=2;w=3600"#;
    assert_eq!(header(&response, "ratelimit-policy"), Some(policies));
}

#[tokio::test]
async fn single_values_from_inside_stay_or_go_as_a_whole() {
    let legacy = HeaderFormat::Legacy {
        reset: ResetFormat::Seconds,
    };
    // Two units are left of the quota outside, so values from inside that are as strict stay,
    // although one is missing.
    for (format, headers) in [
        (
            legacy,
            &[("x-ratelimit-limit", "9"), ("x-ratelimit-remaining", "0")][..],
        ),
        (legacy, &[("x-ratelimit-remaining", "1")][..]),
        (HeaderFormat::Ietf06, &[("ratelimit-remaining", "1")][..]),
        (
            HeaderFormat::Ietf07,
            &[("ratelimit", "limit=9, remaining=1")][..],
        ),
        (
            HeaderFormat::Envoy03,
            &[("x-ratelimit-limit", "9"), ("x-ratelimit-remaining", "1")][..],
        ),
        (
            HeaderFormat::RetryAfter,
            &[("x-ratelimit-limit", "9"), ("x-ratelimit-remaining", "2")][..],
        ),
    ] {
        let service = layer(FAST, format, 0).await.layer(service_with(headers));
        let response = call(service, "*/*").await;
        let mut found: Vec<_> = response
            .headers()
            .iter()
            .filter(|(name, _)| *name != "ratelimit-policy")
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        found.sort_unstable();
        assert_eq!(found, headers, "{format:?}");
    }
    // These are less strict, or report no remaining units. They are replaced, and none of them is
    // left.
    for headers in [
        &[
            ("x-ratelimit-limit", "9"),
            ("x-ratelimit-remaining", "8"),
            ("x-ratelimit-reset", "7"),
        ][..],
        &[("x-ratelimit-limit", "9"), ("x-ratelimit-reset", "7")][..],
        &[
            ("x-ratelimit-limit", "9"),
            ("x-ratelimit-remaining", "many"),
            ("x-ratelimit-burst-capacity", "7"),
        ][..],
    ] {
        let service = layer(FAST, HeaderFormat::RetryAfter, 0)
            .await
            .layer(service_with(headers));
        let response = call(service, "*/*").await;
        assert_eq!(header(&response, "x-ratelimit-limit"), Some("3"));
        assert_eq!(header(&response, "x-ratelimit-remaining"), Some("2"));
        assert_eq!(response.headers().len(), 2, "{:?}", response.headers());
    }
}

#[tokio::test]
async fn a_policy_list_of_another_format_is_replaced() {
    for format in [HeaderFormat::Ietf07, HeaderFormat::Ietf06] {
        for headers in [
            &[
                ("ratelimit", r#""a";r=1;t=3"#),
                ("ratelimit-policy", r#""a";q=1;w=3"#),
            ][..],
            &[("ratelimit-policy", "1;w=3,")][..],
            &[("ratelimit-policy", "limit=1")][..],
        ] {
            let service = layer(SLOW, format, 0).await.layer(service_with(headers));
            let response = call(service, "*/*").await;
            assert_eq!(
                header(&response, "ratelimit-policy"),
                Some("2;w=3600"),
                "{format:?} {headers:?}"
            );
        }
        let service = layer(SLOW, format, 0)
            .await
            .layer(service_with(&[("ratelimit-policy", "1;w=3")]));
        let response = call(service, "*/*").await;
        assert_eq!(
            header(&response, "ratelimit-policy"),
            Some("1;w=3, 2;w=3600"),
            "{format:?}"
        );
    }
}

/// One policy for two keys on one path.
async fn twice(outer_spent: u64, inner_spent: u64) -> BoxedService {
    let store = still();
    let limiter = || Limiter::new(store.clone(), FAST);
    for (key, spent) in [("all", outer_spent), ("acme", inner_spent)] {
        spend(&limiter(), key, spent).await;
    }
    let inner = RateLimitLayer::new(limiter(), Header::new("x-api-key"));
    BoxedService::new(RateLimitLayer::new(limiter(), Global).layer(inner.layer(hello())))
}

#[tokio::test]
async fn a_policy_name_stands_once_in_a_list_and_the_stricter_state_stays() {
    for (outer, inner, state) in [
        (0, 1, "r=1"),
        (1, 0, "r=1"),
        (0, 0, "r=2"),
        (2, 0, "r=0"),
        (0, 3, "r=0"),
    ] {
        let Ok(response) = twice(outer, inner)
            .await
            .oneshot(request_with("x-api-key", "acme"))
            .await;
        for (name, value) in [
            ("ratelimit", format!(r#""fast";{state};t=60"#)),
            ("ratelimit-policy", r#""fast";q=3;w=60"#.to_owned()),
        ] {
            let list = header(&response, name).unwrap();
            assert_eq!(
                Parser::new(list).parse::<sfv::List>().unwrap().len(),
                1,
                "{list}"
            );
            assert_eq!(list, value, "{outer} {inner}");
        }
    }
}

#[tokio::test]
async fn a_policy_of_two_layers_stands_once_in_the_limits_of_envoy() {
    for (outer, inner, limit) in [(0, 0, "3"), (2, 0, "3"), (0, 2, "3")] {
        let inner = layer(FAST, HeaderFormat::Envoy03, inner).await;
        let service = layer(FAST, HeaderFormat::Envoy03, outer)
            .await
            .layer(inner.layer(hello()));
        let response = call(service, "*/*").await;
        let expected = format!(r#"{limit}, 3;w=60;name="fast""#);
        assert_eq!(
            header(&response, "x-ratelimit-limit"),
            Some(&*expected),
            "{outer}"
        );
    }
}

#[tokio::test]
async fn of_two_states_of_one_name_the_longer_wait_stays() {
    for (theirs, expected) in [
        (
            r#""slow";r=0;t=3601, "b";r=5"#,
            r#""slow";r=0;t=3601, "b";r=5"#,
        ),
        (
            r#""slow";r=0;t=3599, "b";r=5"#,
            r#""b";r=5, "slow";r=0;t=3600"#,
        ),
        (r#""slow";r=4;t=9000"#, r#""slow";r=0;t=3600"#),
    ] {
        let headers: &'static [(&str, &str)] = Vec::leak(vec![
            ("ratelimit", theirs),
            ("ratelimit-policy", r#""slow";q=7;w=7200, "b";q=5"#),
        ]);
        let service = layer(SLOW, HeaderFormat::Ietf08, 1)
            .await
            .layer(service_with(headers));
        let response = call(service, "*/*").await;
        assert_eq!(header(&response, "ratelimit"), Some(expected));
        let policies = header(&response, "ratelimit-policy").unwrap();
        let ours = !expected.contains("3601");
        assert_eq!(
            policies.contains(r#""slow";q=2;w=3600"#),
            ours,
            "{policies}"
        );
        assert_eq!(
            policies.contains(r#""slow";q=7;w=7200"#),
            !ours,
            "{policies}"
        );
    }
}

#[tokio::test]
async fn one_policy_for_two_keys_on_one_path_is_logged_once() {
    let service = twice(0, 0).await;
    let lines = logged("TOLLGATE-SAME-NAME", async {
        for _ in 0..3 {
            let Ok(_) = service
                .clone()
                .oneshot(request_with("x-api-key", "acme"))
                .await;
        }
    });
    let lines = lines.await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].starts_with("WARN") && lines[0].contains(r#"policy="fast""#),
        "{lines:?}"
    );
}

#[tokio::test]
async fn the_wait_of_a_layer_that_refunds_the_denial_is_not_reported() {
    let day = Policy::window_from_first_hit("day", Quota::per_day(1));
    for (charges_denials, expected) in [(false, "60"), (true, "86400")] {
        for format in [
            HeaderFormat::Ietf08,
            HeaderFormat::RetryAfter,
            HeaderFormat::None,
        ] {
            let outer = RateLimitLayer::builder(Limiter::new(still(), day.clone()), Global)
                .header_format(format);
            let outer = outer.charge_on(move |status| {
                if status == StatusCode::TOO_MANY_REQUESTS {
                    charges_denials
                } else {
                    status == StatusCode::UNAUTHORIZED
                }
            });
            let inner = layer(FAST, format, 3).await;
            let response = call(outer.build().layer(inner.layer(hello())), "*/*").await;
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
            if format != HeaderFormat::None || !charges_denials {
                assert_eq!(
                    header(&response, "retry-after"),
                    Some(expected),
                    "{format:?}"
                );
            }
            assert!(
                response.body().contains("Policy fast: try again in 60 s."),
                "{}",
                response.body()
            );
        }
    }
}
