//! The exact headers of each format.

use std::{panic::catch_unwind, time::Duration};

use http::{HeaderMap, HeaderName, Request, Response};
use sfv::{BareItem, ListEntry, Parser};
use tollgate::{
    Cost, Limiter, Policy, Quota,
    store::{Exception, ExceptionChange},
};
use tollgate_tower::{
    HeaderFormat, RateLimitLayer, ResetFormat,
    key::{Global, Header},
};
use tower::{Layer, ServiceExt};

use crate::support::*;

const BURST: Policy = Policy::token_bucket("burst", Quota::per_second(2).with_burst(4));
const DAY: Policy = Policy::window_from_first_hit("day", Quota::per_day(50_000));

/// Returns the headers of a first response and of a denial.
async fn headers_of(format: HeaderFormat) -> [Vec<String>; 2] {
    let limiter = Limiter::new(still(), [BURST, DAY]);
    let layer = RateLimitLayer::builder(limiter.clone(), Global)
        .header_format(format)
        .build();
    let first = lines(send(&layer, request()).await.headers());
    let _ = limiter.check("all").cost(Cost::new(3)).await.unwrap();
    [first, lines(send(&layer, request()).await.headers())]
}

/// Returns the sorted header lines that belong to the rate limit.
fn lines(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<_> = headers
        .iter()
        .filter(|(name, _)| !["content-type", "cache-control"].contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    lines
}

/// A key with an exception is told the quota that decides, in each format and by each answer; others are
/// told that of the limiter.
#[tokio::test]
async fn a_key_with_an_exception_is_told_its_quota() {
    for (format, policy, excepted) in [
        (HeaderFormat::Ietf08, "q=4;w=2", "q=40;w=2"),
        (HeaderFormat::Ietf07, "2;w=1;burst=4", "20;w=1;burst=40"),
        (
            HeaderFormat::Envoy03,
            "2;w=1;burst=4;name",
            "20;w=1;burst=40;name",
        ),
    ] {
        let limiter = Limiter::builder(still())
            .policies([BURST, DAY])
            .with_exceptions()
            .build();
        let layer = RateLimitLayer::builder(limiter.clone(), Header::new("x-tenant"))
            .header_format(format)
            .build();
        let ten_times = ExceptionChange::Factor(10.0);
        let granted = Exception::new("burst", "acme", ten_times, Duration::from_secs(60));
        let granted = granted.by("ann").because("a test");
        limiter.grant_exception(granted).await.unwrap();
        for (tenant, own, other) in [("acme", excepted, policy), ("other", policy, excepted)] {
            // Admitted, and denied with all units spent.
            for _ in 0..2 {
                let request = Request::get("/")
                    .header("x-tenant", tenant)
                    .body(())
                    .unwrap();
                let text = lines(send(&layer, request).await.headers()).join("\n");
                assert!(
                    text.contains(own) && !text.contains(other),
                    "{tenant}: {text}"
                );
                while limiter.check(tenant).await.unwrap().is_allowed() {}
            }
        }
    }
}

/// The fields that each format writes with an admission and with a denial. `NOW` stands for an
/// instant a second from now.
const FORMATS: [(HeaderFormat, &str, &str); 11] = [
    (
        HeaderFormat::Ietf08,
        r#"ratelimit-policy: "burst";q=4;w=2, "day";q=50000;w=86400
ratelimit: "burst";r=3;t=1, "day";r=49999;t=86400"#,
        r#"ratelimit-policy: "burst";q=4;w=2, "day";q=50000;w=86400
ratelimit: "burst";r=0;t=1, "day";r=49996;t=86400
retry-after: 1"#,
    ),
    (
        HeaderFormat::Ietf07,
        "ratelimit-policy: 2;w=1;burst=4, 50000;w=86400\nratelimit: limit=4, remaining=3, reset=1",
        "ratelimit-policy: 2;w=1;burst=4, 50000;w=86400\nratelimit: limit=4, remaining=0, reset=1\nretry-after: 1",
    ),
    (
        HeaderFormat::Ietf06,
        "ratelimit-limit: 4\nratelimit-policy: 2;w=1;burst=4, 50000;w=86400\nratelimit-remaining: 3\nratelimit-reset: 1",
        "ratelimit-limit: 4\nratelimit-policy: 2;w=1;burst=4, 50000;w=86400\nratelimit-remaining: 0\nratelimit-reset: 1\n\
         retry-after: 1",
    ),
    (
        HeaderFormat::Envoy03,
        r#"x-ratelimit-limit: 4, 2;w=1;burst=4;name="burst", 50000;w=86400;name="day"
x-ratelimit-remaining: 3
x-ratelimit-reset: 1"#,
        r#"retry-after: 1
x-ratelimit-limit: 4, 2;w=1;burst=4;name="burst", 50000;w=86400;name="day"
x-ratelimit-remaining: 0
x-ratelimit-reset: 1"#,
    ),
    (
        HeaderFormat::Legacy {
            reset: ResetFormat::Seconds,
        },
        "x-ratelimit-limit: 4\nx-ratelimit-remaining: 3\nx-ratelimit-reset: 1",
        "retry-after: 1\nx-ratelimit-limit: 4\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1",
    ),
    (
        HeaderFormat::Legacy {
            reset: ResetFormat::Epoch,
        },
        "x-ratelimit-limit: 4\nx-ratelimit-remaining: 3\nx-ratelimit-reset: NOW",
        "retry-after: 1\nx-ratelimit-limit: 4\nx-ratelimit-remaining: 0\nx-ratelimit-reset: NOW",
    ),
    (
        HeaderFormat::GitHub,
        "x-ratelimit-limit: 4\nx-ratelimit-remaining: 3\nx-ratelimit-reset: NOW\nx-ratelimit-resource: burst\n\
         x-ratelimit-used: 1",
        "retry-after: 1\nx-ratelimit-limit: 4\nx-ratelimit-remaining: 0\nx-ratelimit-reset: NOW\n\
         x-ratelimit-resource: burst\nx-ratelimit-used: 4",
    ),
    (
        HeaderFormat::Spring,
        "x-ratelimit-burst-capacity: 4\nx-ratelimit-remaining: 3\nx-ratelimit-replenish-rate: 2\n\
         x-ratelimit-requested-tokens: 1",
        "retry-after: 1\nx-ratelimit-burst-capacity: 4\nx-ratelimit-remaining: 0\nx-ratelimit-replenish-rate: 2\n\
         x-ratelimit-requested-tokens: 1",
    ),
    (
        HeaderFormat::RetryAfter,
        "x-ratelimit-limit: 4\nx-ratelimit-remaining: 3",
        "retry-after: 1\nx-ratelimit-limit: 4\nx-ratelimit-remaining: 0\nx-ratelimit-retry-after: 1",
    ),
    (
        HeaderFormat::TowerGovernor,
        "x-ratelimit-limit: 4\nx-ratelimit-remaining: 3",
        "retry-after: 1\nx-ratelimit-after: 1\nx-ratelimit-limit: 4\nx-ratelimit-remaining: 0",
    ),
    (HeaderFormat::None, "", "retry-after: 1"),
];

#[tokio::test]
async fn every_format_writes_its_headers_of_an_admission_and_of_a_denial() {
    for (format, first, denied) in FORMATS {
        let now = second();
        for (found, expected) in headers_of(format).await.iter().zip([first, denied]) {
            assert_eq!(
                found.len(),
                expected.lines().count(),
                "{format:?}: {found:?}"
            );
            for (line, expected) in found.iter().zip(expected.lines()) {
                match expected.strip_suffix("NOW") {
                    None => assert_eq!(line, expected, "{format:?}"),
                    Some(name) => {
                        let reset: u64 = line.strip_prefix(name).unwrap().parse().unwrap();
                        // A machine may stand still on the way.
                        assert!(
                            (now + 1..second() + 10).contains(&reset),
                            "{format:?}: {reset} at {now}"
                        );
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn every_format_names_the_headers_that_it_writes() {
    for format in HEADER_FORMATS {
        let [_, denied] = headers_of(format).await;
        let mut written: Vec<_> = denied
            .iter()
            .map(|line| line.split(": ").next().unwrap().to_owned())
            .collect();
        let mut named: Vec<_> = format.names().map(|name| name.to_string()).collect();
        if matches!(format, HeaderFormat::OpenAi | HeaderFormat::Anthropic) {
            // The policies count requests. The headers of tokens appear with a policy that counts
            // them.
            named.retain(|name| !name.contains("-tokens"));
        }
        written.sort();
        named.sort();
        assert_eq!(named, written, "{format:?}");
    }
}

fn of_formats(formats: impl IntoIterator<Item = HeaderFormat>) -> RateLimitLayer<Global> {
    RateLimitLayer::builder(Limiter::new(still(), BURST), Global)
        .header_formats(formats)
        .build()
}

#[tokio::test]
async fn every_list_of_formats_without_a_common_header_is_written() {
    for chosen in 0..1_u32 << HEADER_FORMATS.len() {
        let formats = || {
            let is_chosen = |(at, _): &(usize, HeaderFormat)| chosen >> at & 1 == 1;
            let all = HEADER_FORMATS.into_iter().enumerate();
            all.filter(is_chosen).map(|(_, format)| format)
        };
        let Ok(layer) = catch_unwind(|| of_formats(formats())) else {
            continue;
        };
        let response = send(&layer, request()).await;
        for format in formats() {
            let is_own = |name: &HeaderName| !name.as_str().starts_with("retry-after");
            if let Some(name) = format.names().find(is_own) {
                assert!(response.headers().contains_key(&name), "{format:?}: {name}");
            }
        }
    }
}

#[test]
fn formats_with_a_common_header_are_refused() {
    use HeaderFormat::{Envoy03, Ietf06, Ietf07, Ietf08, OpenAi, Spring};
    for (formats, name) in [
        ([Ietf08, Ietf07], "ratelimit"),
        ([Ietf08, Ietf06], "ratelimit-policy"),
        ([Envoy03, Spring], "x-ratelimit-remaining"),
        ([OpenAi, OpenAi], "x-ratelimit-limit-requests"),
    ] {
        let panic = catch_unwind(|| of_formats(formats)).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(
            message.ends_with(&format!("both write {name}")),
            "{message}"
        );
    }
}

#[tokio::test]
async fn expose_headers_names_the_headers_once_for_stacked_layers() {
    let inner = RateLimitLayer::builder(Limiter::new(still(), BURST), Global)
        .expose_headers(true)
        .build();
    let outer = RateLimitLayer::builder(Limiter::new(still(), DAY), Global)
        .expose_headers(true)
        .build();
    for _ in 0..5 {
        let Ok(response) = outer.layer(inner.layer(hello())).oneshot(request()).await;
        let exposed = header(&response, "access-control-expose-headers");
        assert_eq!(
            exposed,
            Some("retry-after, ratelimit, ratelimit-policy"),
            "{}",
            response.status()
        );
    }
}

/// Returns the numbers of a header.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
}

#[tokio::test]
async fn no_format_reports_more_remaining_units_than_its_limit() {
    let wide = Policy::token_bucket("wide", Quota::per_second(2).with_burst(6));
    let narrow = Policy::token_bucket("narrow", Quota::per_minute(600).with_burst(5));
    for policy in [wide, narrow] {
        for (format, limit, remaining) in [
            (HeaderFormat::Ietf07, "ratelimit", "ratelimit"),
            (
                HeaderFormat::Ietf06,
                "ratelimit-limit",
                "ratelimit-remaining",
            ),
            (
                HeaderFormat::Envoy03,
                "x-ratelimit-limit",
                "x-ratelimit-remaining",
            ),
            (
                HeaderFormat::Legacy {
                    reset: ResetFormat::Seconds,
                },
                "x-ratelimit-limit",
                "x-ratelimit-remaining",
            ),
            (
                HeaderFormat::Spring,
                "x-ratelimit-burst-capacity",
                "x-ratelimit-remaining",
            ),
            (
                HeaderFormat::RetryAfter,
                "x-ratelimit-limit",
                "x-ratelimit-remaining",
            ),
        ] {
            let layer = RateLimitLayer::builder(Limiter::new(still(), policy.clone()), Global);
            let response = send(
                &layer.header_format(format).cost(|_| Cost::ZERO).build(),
                request(),
            )
            .await;
            let limit = numbers(header(&response, limit).unwrap()).next().unwrap();
            let remaining = header(&response, remaining).unwrap();
            let remaining = remaining
                .split_once("remaining=")
                .map_or(remaining, |(_, rest)| rest);
            assert_eq!(
                numbers(remaining).next().unwrap(),
                limit,
                "{format:?}: {:?}",
                response.headers()
            );
            assert_eq!(limit, policy.quota().burst());
        }
    }
}

#[tokio::test]
async fn no_unit_of_the_default_format_remains_above_the_quota_whatever_the_burst() {
    let buckets = [
        Policy::token_bucket,
        Policy::leaky_bucket,
        Policy::interval_bucket,
    ];
    for (at, burst) in [1, 4, 5, 6, 10, 12, 1_000].into_iter().enumerate() {
        let policy = buckets[at % 3]("bucket", Quota::per_second(5).with_burst(burst));
        let layer = RateLimitLayer::builder(Limiter::new(still(), policy), Global)
            .cost(|_| Cost::ZERO)
            .build();
        let response = send(&layer, request()).await;
        let number = |field, key: &str| {
            let [(_, parameters)] = &parse(&response, field)[..] else {
                panic!("one policy")
            };
            parameters.iter().find(|(name, _)| name == key).unwrap().1
        };
        let [q, w, r] = [
            ("ratelimit-policy", "q"),
            ("ratelimit-policy", "w"),
            ("ratelimit", "r"),
        ]
        .map(|(a, b)| number(a, b));
        assert!(r <= q, "r={r} beside q={q}");
        assert_eq!(r, burst as i64);
        // At least the rate needs so many seconds, and less than one period more.
        assert!(5 * w >= q && 5 * (w - 1) < q, "q={q};w={w}");
    }
}

/// Parses a list of strings with integer parameters.
fn parse(response: &Response<String>, name: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let list = Parser::new(header(response, name).unwrap())
        .parse::<sfv::List>()
        .unwrap();
    list.into_iter()
        .map(|entry| {
            let ListEntry::Item(item) = entry else {
                panic!("an inner list")
            };
            let BareItem::String(name) = item.bare_item else {
                panic!("not a string")
            };
            let parameters = item.params.into_iter().map(|(key, value)| match value {
                BareItem::Integer(number) => (key.as_str().to_owned(), i64::from(number)),
                other => panic!("{other:?} is not an integer"),
            });
            (name.as_str().to_owned(), parameters.collect())
        })
        .collect()
}

#[tokio::test]
async fn a_parser_of_structured_fields_reads_the_default_format() {
    let name = "x".repeat(64);
    let quota = Quota::new(90_000_000, std::time::Duration::from_secs(3650 * 86_400));
    let longest = Policy::try_new(name.clone(), tollgate::Algorithm::TokenBucket, quota).unwrap();
    let odd = Policy::token_bucket("A-z_0.9/", Quota::per_minute(7));
    let layer = RateLimitLayer::new(Limiter::new(still(), [longest, odd]), Global);
    let response = send(&layer, request()).await;
    let pairs = |pairs: &[(&str, i64)]| {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), *value))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        parse(&response, "ratelimit-policy"),
        [
            (
                name.clone(),
                pairs(&[("q", 90_000_000), ("w", 315_360_000)])
            ),
            ("A-z_0.9/".to_owned(), pairs(&[("q", 7), ("w", 60)]))
        ]
    );
    assert_eq!(
        parse(&response, "ratelimit"),
        [
            (name, pairs(&[("r", 89_999_999), ("t", 4)])),
            ("A-z_0.9/".to_owned(), pairs(&[("r", 6), ("t", 9)]))
        ]
    );
}
