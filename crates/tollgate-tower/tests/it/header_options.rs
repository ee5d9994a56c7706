//! The options for headers: unit, partition key, jitter, and the mark of degraded responses.

use std::{collections::HashSet, time::Duration};

use http::{Response, StatusCode};
use sfv::{BareItem, List, ListEntry, Parser, key_ref};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tollgate::{KeySecret, Limiter, Outage, Policy, Quota, limiter::Selection};
use tollgate_tower::{
    HeaderFormat, LimiterSource, QuotaUnit, RateLimitLayer,
    key::{Global, Header},
};
use tower::{Layer, ServiceExt};

use crate::support::*;

/// Returns the partition keys of a list.
fn partition_keys(response: &Response<String>, name: &str) -> Vec<Vec<u8>> {
    let list = Parser::new(header(response, name).unwrap())
        .parse::<List>()
        .unwrap();
    let keys = list.iter().map(|entry| match entry {
        ListEntry::Item(item) => match item.params.get(key_ref("pk")) {
            Some(BareItem::ByteSequence(key)) => key.clone(),
            other => panic!("{other:?}"),
        },
        ListEntry::InnerList(_) => panic!("an inner list"),
    });
    keys.collect()
}

#[tokio::test]
async fn the_partition_key_is_a_keyed_digest_and_the_same_in_all_responses_to_a_key() {
    let layer = |limiter: Limiter, secret: &str| {
        RateLimitLayer::builder(limiter, Header::new("user"))
            .partition_key(KeySecret::new(secret))
            .build()
    };
    let one = layer(Limiter::new(still(), [TWO, HOURLY]), "secret");
    let keys = async |layer: &RateLimitLayer<Header>, user| {
        let response = send(layer, request_with("user", user)).await;
        let keys = partition_keys(&response, "ratelimit");
        assert_eq!(partition_keys(&response, "ratelimit-policy"), keys);
        assert_eq!(keys.len(), 2);
        assert_eq!(keys[0], keys[1]);
        (response.status().as_u16(), keys[0].clone())
    };
    let (status, ann) = keys(&one, "ann").await;
    assert_eq!((status, ann.len()), (200, 9));
    assert_eq!(keys(&one, "ann").await, (200, ann.clone()));
    assert_eq!(keys(&one, "ann").await, (429, ann.clone()));
    assert_ne!(keys(&one, "bob").await.1, ann);
    assert_ne!(
        keys(&layer(Limiter::new(still(), [TWO, HOURLY]), "other"), "ann")
            .await
            .1,
        ann
    );
    // The digest that the store holds for a secret key is another one.
    let stored = tollgate::Key::secret("ann", &KeySecret::new("secret"));
    let hex: String = ann.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(!stored.encoded().contains(&hex));
}

#[tokio::test]
async fn stacked_layers_with_partition_keys_are_one_list() {
    let layer = |policy| {
        let builder = RateLimitLayer::builder(Limiter::new(still(), policy), Global);
        builder
            .partition_key(KeySecret::new("secret"))
            .quota_unit(QuotaUnit::CONTENT_BYTES)
            .build()
    };
    let Ok(response) = layer(TWO)
        .layer(layer(HOURLY).layer(hello()))
        .oneshot(request())
        .await;
    let keys = partition_keys(&response, "ratelimit");
    assert_eq!((keys.len(), &keys[0]), (2, &keys[1]));
    assert_eq!(partition_keys(&response, "ratelimit-policy"), keys);
}

#[tokio::test]
async fn the_unit_stands_with_every_policy_of_the_default_format_only() {
    for format in HEADER_FORMATS {
        let limiter = Limiter::new(still(), [TWO, HOURLY]);
        let layer = RateLimitLayer::builder(limiter, Global).header_format(format);
        let response = send(
            &layer.quota_unit(QuotaUnit::CONTENT_BYTES).build(),
            request(),
        )
        .await;
        if format == HeaderFormat::Ietf08 {
            let policies =
                r#""two";q=2;qu="content-bytes";w=60, "hourly";q=3;qu="content-bytes";w=3600"#;
            assert_eq!(header(&response, "ratelimit-policy"), Some(policies));
            assert_eq!(
                header(&response, "ratelimit"),
                Some(r#""two";r=1;t=30, "hourly";r=2;t=3600"#)
            );
        } else {
            assert!(
                !format!("{:?}", response.headers()).contains("content-bytes"),
                "{format:?}"
            );
        }
    }
}

#[test]
fn a_unit_with_other_characters_is_refused() {
    for name in ["", "a b", "A", "a\"b", "a_b", "\u{e4}"] {
        assert!(
            std::panic::catch_unwind(|| QuotaUnit::new(name)).is_err(),
            "{name:?}"
        );
    }
    assert_eq!(QuotaUnit::new("a-z09").as_str(), "a-z09");
}

/// Returns the seconds that follow a text.
fn seconds_after(text: &str, begin: &str) -> Option<u64> {
    let rest = text.split_once(begin)?.1;
    rest.split(|letter: char| !letter.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// Asserts that the reset of the requests is the wait, in the formats with a group of headers for
/// each unit. The request was sent after the second `sent`.
fn assert_unit_reset(response: &Response<String>, format: HeaderFormat, wait: u64, sent: u64) {
    if format == HeaderFormat::OpenAi {
        let millis: u64 = header(response, "retry-after-ms").unwrap().parse().unwrap();
        assert_eq!(millis.div_ceil(1000), wait);
        let reset = format!("{}m{}s", wait / 60, wait % 60);
        assert_eq!(
            header(response, "x-ratelimit-reset-requests"),
            Some(reset.as_str())
        );
    }
    if format == HeaderFormat::Anthropic {
        let reset = header(response, "anthropic-ratelimit-requests-reset").unwrap();
        let reset = OffsetDateTime::parse(reset, &Rfc3339).unwrap();
        let began = reset.unix_timestamp() as u64 - wait;
        // The wait was rounded up, and so is the instant.
        assert!((sent - 1..=second() + 1).contains(&began), "{began} {sent}");
    }
}

#[tokio::test]
async fn jitter_is_never_negative_and_all_headers_of_a_denial_report_the_same_time() {
    const MINUTE: Policy = Policy::window_from_first_hit("minute", Quota::per_minute(2));
    // The reset of GitHub is an instant.
    for format in HEADER_FORMATS
        .into_iter()
        .filter(|format| *format != HeaderFormat::GitHub)
    {
        let limiter = Limiter::new(
            still(),
            [
                MINUTE,
                Policy::window_from_first_hit("day", Quota::per_day(100)),
            ],
        );
        let layer = RateLimitLayer::builder(limiter, Global).header_format(format);
        let layer = layer.retry_jitter(Duration::from_secs(30)).build();
        let first = send(&layer, request()).await;
        if format == HeaderFormat::Ietf08 {
            // Units are left, so nothing is spread.
            assert_eq!(
                header(&first, "ratelimit"),
                Some(r#""minute";r=1;t=60, "day";r=99;t=86400"#)
            );
        }
        let _ = send(&layer, request()).await;
        let mut waits = HashSet::new();
        for _ in 0..100 {
            let sent = second();
            let response = send(&layer, request()).await;
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
            let wait: u64 = header(&response, "retry-after").unwrap().parse().unwrap();
            assert!((60..=90).contains(&wait), "{wait}");
            waits.insert(wait);
            let headers = format!("{:?}", response.headers());
            let reported: Vec<_> = [
                (response.body().as_str(), "try again in "),
                (&headers, r#"minute\";r=0;t="#),
                (&headers, "reset="),
                (&headers, r#""ratelimit-reset": ""#),
                (&headers, r#""x-ratelimit-reset": ""#),
                (&headers, r#""x-ratelimit-after": ""#),
                (&headers, r#""x-ratelimit-retry-after": ""#),
            ]
            .into_iter()
            .filter_map(|(text, begin)| seconds_after(text, begin))
            .collect();
            assert_unit_reset(&response, format, wait, sent);
            let expected = match format {
                HeaderFormat::Spring
                | HeaderFormat::OpenAi
                | HeaderFormat::Anthropic
                | HeaderFormat::None => 1,
                _ => 2,
            };
            assert_eq!(reported, vec![wait; expected], "{format:?}: {headers}");
        }
        assert!(waits.len() > 5, "{waits:?}");
    }
}

#[tokio::test]
async fn an_inner_denial_reports_the_jitter_of_the_outer_layer() {
    let outer = Limiter::new(
        still(),
        Policy::window_from_first_hit("outer", Quota::per_hour(3)),
    );
    let inner = Limiter::new(
        still(),
        Policy::window_from_first_hit("inner", Quota::per_minute(1)),
    );
    let _ = (
        outer.check("all").await,
        outer.check("all").await,
        inner.check("all").await,
    );
    let outer = RateLimitLayer::builder(outer, Global)
        .retry_jitter(Duration::from_secs(1000))
        .build();
    let Ok(response) = outer
        .layer(RateLimitLayer::new(inner, Global).layer(hello()))
        .oneshot(request())
        .await;
    let wait: u64 = header(&response, "retry-after").unwrap().parse().unwrap();
    assert!((3600..=4600).contains(&wait), "{wait}");
    assert_eq!(
        seconds_after(response.body(), "Policy outer: try again in "),
        Some(wait)
    );
    assert_eq!(
        seconds_after(header(&response, "ratelimit").unwrap(), r#""outer";r=0;t="#),
        Some(wait)
    );
}

#[tokio::test]
async fn degraded_responses_are_marked_when_it_is_asked_for() {
    let local = Outage::local(2);
    for format in HEADER_FORMATS {
        for (outage, statuses) in [
            (Outage::Open, [200, 200]),
            (local, [200, 429]),
            (Outage::Closed, [503, 503]),
        ] {
            let builder =
                || RateLimitLayer::builder(unavailable(outage), Global).header_format(format);
            let (marked, silent) = (builder().mark_degraded(true).build(), builder().build());
            for status in statuses {
                let response = send(&marked, request()).await;
                assert_eq!(response.status().as_u16(), status);
                assert_eq!(
                    header(&response, "tollgate-degraded"),
                    Some("unavailable"),
                    "{format:?} {outage:?}"
                );
                assert_eq!(
                    header(&send(&silent, request()).await, "tollgate-degraded"),
                    None
                );
            }
        }
        let healthy = RateLimitLayer::builder(Limiter::new(still(), TWO), Global);
        let healthy = healthy.header_format(format).mark_degraded(true).build();
        for _ in 0..3 {
            assert_eq!(
                header(&send(&healthy, request()).await, "tollgate-degraded"),
                None
            );
        }
    }
}

#[tokio::test]
async fn the_mark_of_an_inner_layer_stays_and_browsers_may_read_it() {
    let layer = |limiter| {
        RateLimitLayer::builder(limiter, Global)
            .mark_degraded(true)
            .expose_headers(true)
            .build()
    };
    let inner = layer(unavailable(Outage::Open)).layer(hello());
    let Ok(response) = layer(Limiter::new(still(), TWO))
        .layer(inner)
        .oneshot(request())
        .await;
    assert_eq!(header(&response, "tollgate-degraded"), Some("unavailable"));
    let exposed: Vec<_> = response
        .headers()
        .get_all("access-control-expose-headers")
        .iter()
        .collect();
    assert_eq!(
        exposed,
        [
            "tollgate-degraded",
            "retry-after, ratelimit, ratelimit-policy"
        ]
    );
    let both =
        layer(unavailable(Outage::Open)).layer(layer(unavailable(Outage::Open)).layer(hello()));
    let Ok(response) = both.oneshot(request()).await;
    assert_eq!(header(&response, "tollgate-degraded"), Some("unavailable"));
    assert_eq!(
        header(&response, "access-control-expose-headers"),
        Some("tollgate-degraded")
    );
}

#[tokio::test]
async fn scripts_may_read_the_wait_of_a_denial_in_every_format() {
    for format in HEADER_FORMATS {
        let layer =
            RateLimitLayer::builder(Limiter::new(still(), ONE), Global).header_format(format);
        let layer = layer.expose_headers(true).build();
        let exposed = |response: &Response<String>| {
            let lines = response.headers().get_all("access-control-expose-headers");
            lines.iter().any(|line| {
                line.to_str()
                    .unwrap()
                    .split(", ")
                    .any(|name| name == "retry-after")
            })
        };
        let admitted = send(&layer, request()).await;
        // Without header fields, an admitted request does not show that there is a limit.
        assert_eq!(
            exposed(&admitted),
            format != HeaderFormat::None,
            "{format:?}"
        );
        let denied = send(&layer, request()).await;
        assert!(
            denied.headers().contains_key("retry-after") && exposed(&denied),
            "{format:?}: {denied:?}"
        );
        // A layer outside of a denial, which raises the wait, exposes it too.
        let silent = RateLimitLayer::builder(Limiter::new(still(), ONE), Global)
            .header_format(format)
            .build();
        let _ = send(&silent, request()).await;
        let outer =
            RateLimitLayer::builder(Limiter::new(still(), HOURLY), Global).header_format(format);
        let outer = outer.expose_headers(true).build();
        let Ok(denied) = outer.layer(silent.layer(hello())).oneshot(request()).await;
        assert!(
            denied.headers().contains_key("retry-after") && exposed(&denied),
            "{format:?}: {denied:?}"
        );
    }
}

#[tokio::test]
async fn a_unit_for_a_policy_that_nothing_has_is_logged_once() {
    let units = |names: [&'static str; 2]| names.map(|name| (name, QuotaUnit::TOKENS));
    let limited = |names| {
        let builder = RateLimitLayer::builder(Limiter::new(still(), [TWO, HOURLY]), Global);
        builder.quota_units(units(names)).build()
    };
    let lines = logged("quota_units", async {
        let layer = limited(["two", "tokens"]);
        statuses(&layer, 3).await;
    });
    let lines = lines.await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].starts_with("WARN") && lines[0].contains("tokens"),
        "{lines:?}"
    );

    let known = logged("quota_units", async {
        statuses(&limited(["two", "hourly"]), 2).await;
        // The limiter of a handler has the policy, or the limits of a tenant may have it.
        let layer = limited(["two", "one"]);
        let _handler = layer.handler_limiter::<String>(Limiter::new(still(), ONE));
        statuses(&layer, 2).await;
        let source = LimiterSource::from_fn(Limiter::new(still(), TWO), |_| Selection::Default);
        let layer = RateLimitLayer::builder(source, Global)
            .quota_units(units(["two", "tokens"]))
            .build();
        statuses(&layer, 2).await;
    });
    assert_eq!(known.await, [""; 0]);
}
