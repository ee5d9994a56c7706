//! Decisions in the span of a request, which a layer records when it is asked to.

use http::StatusCode;
use tollgate::{Limiter, MemoryStore, Outage};
use tollgate_tests::Log;
use tollgate_tower::{RateLimitBuilder, RateLimitLayer, key::Global};
use tracing::{Instrument, Span, field::Empty, info_span};

use crate::support::*;

fn span() -> Span {
    info_span!(
        "request",
        "rate_limit.decision" = Empty,
        "rate_limit.policy" = Empty,
        "rate_limit.decided_by" = Empty
    )
}

/// Sends a request within a span, and returns the status and what the span has.
async fn traced(log: &Log, builder: RateLimitBuilder<Global>) -> (StatusCode, String) {
    let (span, layer) = (span(), builder.build());
    let response = send(&layer, request()).instrument(span.clone()).await;
    span.in_scope(|| tracing::info!("sent"));
    let text = log.text();
    let line = text.lines().rfind(|line| line.contains("sent")).unwrap();
    let (_, fields) = line.split_once("request").unwrap();
    (
        response.status(),
        fields.split("}:").next().unwrap().replace('{', ""),
    )
}

fn builder(limiter: Limiter) -> RateLimitBuilder<Global> {
    RateLimitLayer::builder(limiter, Global).record_spans(true)
}

#[tokio::test]
async fn a_span_has_the_decision_the_policy_and_who_decided() {
    let (log, _guard) = Log::of_this_thread();
    let limiter = Limiter::new(MemoryStore::new(), ONE);
    let of = |decision: &str, by: &str| {
        format!(
            r#"rate_limit.decision="{decision}" rate_limit.policy="one" rate_limit.decided_by="{by}""#
        )
    };
    for (shadow, status, decision) in [
        (false, StatusCode::OK, "allowed"),
        (false, StatusCode::TOO_MANY_REQUESTS, "denied"),
        (true, StatusCode::OK, "shadowed"),
    ] {
        let traced = traced(&log, builder(limiter.clone()).shadow(shadow)).await;
        assert_eq!(traced, (status, of(decision, "store")));
    }
    // The outage rule decides by the share of this replica, or refuses.
    let local = builder(unavailable(Outage::local(1)));
    let (status, fields) = traced(&log, local).await;
    assert_eq!(status, StatusCode::OK);
    assert!(
        fields.contains(r#"rate_limit.decided_by="outage""#),
        "{fields}"
    );
    let (status, fields) = traced(&log, builder(unavailable(Outage::Closed))).await;
    let refused = (
        StatusCode::SERVICE_UNAVAILABLE,
        r#"rate_limit.decision="unavailable""#,
    );
    assert_eq!((status, &*fields), refused);
}

#[tokio::test]
async fn without_the_option_a_span_stays_as_it_is() {
    let (log, _guard) = Log::of_this_thread();
    let limiter = Limiter::new(MemoryStore::new(), ONE);
    let off = RateLimitLayer::builder(limiter, Global);
    let (status, fields) = traced(&log, off).await;
    assert_eq!(status, StatusCode::OK);
    assert!(!fields.contains("rate_limit."), "{fields}");
}
