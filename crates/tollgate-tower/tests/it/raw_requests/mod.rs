//! Hostile and unusual requests, byte for byte over a real connection, with the expected statuses.
//!
//! Every key has a quota of one request. So two requests with the statuses 200 and 429 had the same
//! key, and two requests with the status 200 had different keys.

mod raw;
mod rows;

use axum::{
    Router,
    routing::{any, get},
};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tollgate::{Cost, Limiter, Policy, Quota};
use tollgate_tower::{
    KeyExtractor, RateLimitLayer,
    key::{
        ForwardedIp, Global, Header, MatchedRoute, Network, PeerIp, RequestMethod, RequestPath,
        TrustedProxies,
    },
};

use crate::support::{serve, still};
use rows::{Row, SECRET};

const ONE: Policy = Policy::token_bucket("one", Quota::per_hour(1));
const FIVE: Policy = Policy::token_bucket("five", Quota::per_hour(5));

fn one<K: KeyExtractor>(key: K) -> RateLimitLayer<K> {
    RateLimitLayer::new(Limiter::new(still(), ONE), key)
}

/// Creates a router with one route for each extractor.
fn router() -> Router {
    let trusted = || {
        TrustedProxies::networks(
            ["127.0.0.0/8", "10.0.0.0/8"].map(|network| network.parse::<Network>().unwrap()),
        )
    };
    let hello = || any(|| async { "hello" });
    let cost = RateLimitLayer::builder(Limiter::new(still(), FIVE), Global)
        .cost(|parts| {
            let cost = parts
                .headers
                .get("x-cost")
                .and_then(|cost| cost.to_str().ok()?.parse().ok());
            Cost::new(cost.unwrap_or(1))
        })
        .build();
    Router::new()
        .route("/header", hello().layer(one(Header::new("x-api-key"))))
        .route(
            "/pair",
            hello().layer(one((Header::new("a"), Header::new("b")))),
        )
        .route(
            "/or",
            hello().layer(one(Header::new("x-api-key").or(PeerIp))),
        )
        .route(
            "/exempt",
            hello().layer(one(Header::new("x-api-key").or_exempt())),
        )
        .route("/peer", hello().layer(one(PeerIp)))
        .route(
            "/forwarded-for",
            hello().layer(one(ForwardedIp::x_forwarded_for(trusted()))),
        )
        .route(
            "/forwarded",
            hello().layer(one(ForwardedIp::forwarded(trusted()))),
        )
        .route(
            "/untrusted",
            hello().layer(one(ForwardedIp::x_forwarded_for(TrustedProxies::networks(
                [],
            )))),
        )
        .route("/cost", hello().layer(cost))
        .route("/method", hello().layer(one(RequestMethod)))
        .route("/matched/{id}", hello().layer(one(MatchedRoute)))
        .route("/path/{*rest}", hello().layer(one(RequestPath)))
        .fallback_service(get(|| async { "elsewhere" }).layer(one(MatchedRoute)))
}

/// Sends the requests of a row to a new server, and compares the statuses.
async fn try_row(row: &Row) -> Result<(), String> {
    let address = serve(router()).await;
    let mut statuses = Vec::new();
    for request in &row.requests {
        let response = raw::send(TcpStream::connect(address).await.unwrap(), request).await;
        statuses.push(raw::status(&response));
        if String::from_utf8_lossy(&response).contains(SECRET) {
            return Err(format!(
                "{}: the response contains the value that was sent",
                row.input
            ));
        }
    }
    if statuses == row.expected {
        Ok(())
    } else {
        Err(format!(
            "{}: got {statuses:?}, expected {:?}",
            row.input, row.expected
        ))
    }
}

#[tokio::test]
async fn every_row_has_the_expected_statuses() {
    let rows = rows::all();
    let mut wrong = Vec::new();
    for row in &rows {
        wrong.extend(try_row(row).await.err());
    }
    println!("{} rows", rows.len());
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
}

#[tokio::test]
async fn the_service_serves_other_clients_after_every_row() {
    let address = serve(router()).await;
    for row in rows::all() {
        for request in &row.requests {
            raw::send(TcpStream::connect(address).await.unwrap(), request).await;
        }
    }
    let request = raw::get("/header", &[("x-api-key", "another client")]);
    let response = raw::send(TcpStream::connect(address).await.unwrap(), &request).await;
    assert_eq!(raw::status(&response), 200);
}

#[tokio::test]
async fn a_unix_socket_and_a_server_without_peer_addresses_are_misconfigurations() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move { axum::serve(listener, router().into_make_service()).await });
    for (target, status) in [
        ("/peer", 500),
        ("/forwarded-for", 500),
        ("/forwarded", 500),
        ("/header", 400),
        ("/method", 200),
    ] {
        let stream = UnixStream::connect(&path).await.unwrap();
        let response = raw::send(
            stream,
            &raw::get(target, &[("x-forwarded-for", "203.0.113.7")]),
        )
        .await;
        assert_eq!(raw::status(&response), status, "{target}");
    }
}
