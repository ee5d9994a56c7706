//! Allowed and denied networks.

use std::net::{IpAddr, SocketAddr};

use http::{Request, StatusCode};
use tollgate::Limiter;
use tollgate_tower::{
    RateLimitLayer,
    key::{Global, KeyError, Networks, PeerIp},
};

use crate::support::*;

fn address(parts: &http::request::Parts) -> Result<IpAddr, KeyError> {
    PeerIp.address(parts)
}

fn from(address: &str) -> Request<()> {
    let peer: SocketAddr = SocketAddr::new(address.parse().unwrap(), 443);
    Request::builder().extension(peer).body(()).unwrap()
}

fn lists() -> Networks {
    Networks::parse("10.0.0.0/8\n192.0.2.7", "192.0.2.0/24\n2001:db8::/32").unwrap()
}

#[tokio::test]
async fn a_denied_network_gets_403_and_spends_nothing() {
    let limiter = Limiter::new(still(), TWO);
    let layer = RateLimitLayer::builder(limiter.clone(), Global)
        .networks(lists(), address)
        .build();
    for address in ["192.0.2.8", "::ffff:192.0.2.8", "2001:db8::1"] {
        let response = send(&layer, from(address)).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{address}");
        assert_eq!(
            header(&response, "content-type"),
            Some("application/problem+json")
        );
        for absent in ["retry-after", "ratelimit", "ratelimit-policy"] {
            assert_eq!(header(&response, absent), None, "{absent}");
        }
        assert_eq!(response.body(), r#"{"title":"Forbidden","status":403}"#);
    }
    for _ in 0..5 {
        assert_eq!(
            send(&layer, from("192.0.2.7")).await.status(),
            StatusCode::OK
        );
    }
    assert_eq!(remaining(&limiter, "all", "two").await, 2);
    let statuses = [
        send(&layer, from("203.0.113.5")).await,
        send(&layer, from("203.0.113.5")).await,
    ];
    assert!(
        statuses
            .iter()
            .all(|response| response.status() == StatusCode::OK)
    );
    assert_eq!(
        send(&layer, from("203.0.113.5")).await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn in_shadow_mode_a_denied_network_passes_and_is_limited_as_others_are() {
    let limiter = Limiter::new(still(), TWO);
    let layer = RateLimitLayer::builder(limiter.clone(), Global)
        .networks(lists(), address)
        .shadow(true)
        .build();
    for _ in 0..3 {
        assert_eq!(
            send(&layer, from("192.0.2.8")).await.status(),
            StatusCode::OK
        );
    }
    assert_eq!(remaining(&limiter, "all", "two").await, 0);
}

#[tokio::test]
async fn a_request_without_an_address_is_a_wrong_set_up() {
    let layer = RateLimitLayer::builder(Limiter::new(still(), TWO), Global)
        .networks(lists(), address)
        .build();
    assert_eq!(
        send(&layer, request()).await.status(),
        StatusCode::INTERNAL_SERVER_ERROR
    );
    let exempt =
        RateLimitLayer::builder(Limiter::new(still(), TWO), Global).networks(lists(), address);
    assert_eq!(
        send(&exempt.exempt(|_| true).build(), request())
            .await
            .status(),
        StatusCode::OK
    );
}
