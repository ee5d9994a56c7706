//! Policies that are enforced and stand in no response.

use axum::body::Body;
use http::{Request, StatusCode};
use tollgate::{Cost, Limiter, MemoryStore, Policy, PolicySet, Quota, store::Clock};
use tollgate_tower::{
    KeyExtractor, QuotaUnit, RateLimitBuilder, RateLimitLayer,
    key::{BoxedKey, Global, Header},
};
use tower::{Layer, ServiceExt};

use crate::{state::state, support::*};

const SHOWN: Policy = Policy::fixed_window("shown", Quota::per_day(50_000));

/// Denies the fourth request for 1111 seconds. No other number of the tests has these digits.
const FLOOD: Policy = Policy::window_from_first_hit(
    "flood",
    Quota::new(3, std::time::Duration::from_secs(1_111)),
);

fn limiter(policies: impl Into<PolicySet>) -> Limiter {
    let store = MemoryStore::builder()
        .clock(Clock::manual(86_400_000_000))
        .build();
    Limiter::new(store, policies)
}

fn builder(policies: impl Into<PolicySet>) -> RateLimitBuilder<BoxedKey> {
    RateLimitLayer::builder(limiter(policies), Global.boxed())
        .quota_units([("flood", QuotaUnit::TOKENS)])
}

/// Returns the names and values of all header fields but `Retry-After`, and the body.
fn shown(response: &http::Response<String>) -> String {
    let fields = response.headers().iter();
    let fields = fields.filter(|(name, _)| !name.as_str().contains("after"));
    format!("{:?}\n{}", fields.collect::<Vec<_>>(), response.body())
}

#[tokio::test]
async fn a_hidden_policy_denies_and_no_format_shows_it() {
    for format in HEADER_FORMATS {
        for accept in ["*/*", "text/html"] {
            let layer = builder([SHOWN, FLOOD.hidden()])
                .header_format(format)
                .build();
            for _ in 0..3 {
                let response = send(&layer, request_with("accept", accept)).await;
                assert_eq!(response.status(), StatusCode::OK);
                let text = shown(&response);
                assert!(
                    !text.contains("flood") && !text.contains("1111"),
                    "{format:?}: {text}"
                );
            }
            let denied = send(&layer, request_with("accept", accept)).await;
            assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(header(&denied, "retry-after"), Some("1111"), "{format:?}");
            let text = shown(&denied);
            assert!(
                !text.contains("flood") && !text.contains("violated"),
                "{format:?}: {text}"
            );
            assert!(text.contains("ry again in 1111 s."), "{format:?}: {text}");
        }
    }
}

#[tokio::test]
async fn the_policies_beside_a_hidden_one_are_shown_and_denied_as_before() {
    for policies in [[SHOWN, FLOOD.hidden()], [FLOOD.hidden(), SHOWN]] {
        let layer = builder(policies).build();
        let response = send(&layer, request()).await;
        assert_eq!(
            header(&response, "ratelimit-policy"),
            Some(r#""shown";q=50000;w=86400"#)
        );
        assert_eq!(
            header(&response, "ratelimit"),
            Some(r#""shown";r=49999;t=86400"#)
        );
    }
    // The same without hiding it.
    let layer = builder([SHOWN, FLOOD]).build();
    assert!(shown(&send(&layer, request()).await).contains("flood"));
    // A policy that is shown denies: the document names it alone.
    let day = Policy::fixed_window("day", Quota::per_day(3));
    let layer = builder([day, FLOOD.hidden()]).build();
    assert_eq!(statuses(&layer, 3).await, [StatusCode::OK; 3]);
    let denied = send(&layer, request()).await;
    assert!(
        denied.body().ends_with(r#""violated-policies":["day"]}"#),
        "{}",
        denied.body()
    );
}

#[tokio::test]
async fn a_layer_that_hides_all_of_its_policies_writes_no_rate_limit_fields() {
    for format in HEADER_FORMATS {
        let layer = builder(FLOOD.hidden())
            .header_format(format)
            .expose_headers(true)
            .build();
        let response = send(&layer, request()).await;
        assert!(response.headers().is_empty(), "{format:?}: {response:?}");
        let layer = builder(FLOOD.hidden()).header_format(format).build();
        assert_eq!(statuses(&layer, 3).await, [StatusCode::OK; 3]);
        let denied = send(&layer, request()).await;
        let mut names: Vec<_> = denied.headers().keys().map(|name| name.as_str()).collect();
        names.retain(|name| *name != "retry-after-ms");
        names.sort_unstable();
        assert_eq!(
            names,
            ["cache-control", "content-type", "retry-after"],
            "{format:?}"
        );
    }
}

#[tokio::test]
async fn a_cost_that_never_fits_a_hidden_policy_does_not_say_how_much_does() {
    let layer = |flood: Policy| builder([SHOWN, flood]).cost(|_| Cost::new(4)).build();
    let refused = send(&layer(FLOOD.hidden()), request()).await;
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let text = shown(&refused);
    assert!(
        text.contains("cost 4 exceeds what one request may spend"),
        "{text}"
    );
    assert!(!text.contains("flood") && text.contains("shown"), "{text}");
    let text = shown(&send(&layer(FLOOD), request()).await);
    assert!(
        text.contains("cost 4 exceeds the burst 3 of policy flood"),
        "{text}"
    );
}

#[tokio::test]
async fn callers_find_no_hidden_policy_in_their_state() {
    let limiter = limiter([SHOWN, FLOOD.hidden()]);
    let layer = RateLimitLayer::new(limiter, Header::new("x-api-key"));
    let (_, document) = state(&layer.state_service::<Body>(), "acme").await;
    let names: Vec<_> = document["resources"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["shown"]);
    assert_eq!(document["rate"]["limit"], 50_000);
}

#[tokio::test]
async fn an_inner_denial_waits_for_a_hidden_outer_policy_without_naming_it() {
    let inner = Policy::window_from_first_hit("inner", Quota::per_second(2));
    for (outer, detail) in [
        (FLOOD, "Policy flood: try again in 1111 s."),
        (FLOOD.hidden(), "\"Try again in 1111 s."),
    ] {
        let (outer, inner) = (builder(outer).build(), builder(inner.clone()).build());
        let service = outer.layer(inner.layer(hello()));
        for _ in 0..2 {
            let response = service.clone().oneshot(Request::new(())).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
        }
        let denied = service.oneshot(Request::new(())).await.unwrap();
        assert_eq!(header(&denied, "retry-after"), Some("1111"));
        assert!(denied.body().contains(detail), "{}", denied.body());
    }
}
