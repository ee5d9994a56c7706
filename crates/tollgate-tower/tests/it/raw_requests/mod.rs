//! What strangers send over a real connection, byte for byte, and what becomes of it.
//!
//! Every key has a quota of one request. So two requests that are answered 200 and 429 had one key, and two that are
//! answered 200 had two.

mod raw;
mod rows;

use std::net::{Ipv4Addr, SocketAddr};

use axum::{
    Router,
    routing::{any, get},
};
use tokio::net::{TcpListener, UnixListener};
use tollgate::{Cost, Limiter, Policy, Quota};
use tollgate_tower::{
    KeyExtractor, RateLimitLayer,
    key::{ForwardedIp, Global, Header, MatchedPath, Method, Network, Path, PeerIp, TrustedProxies},
};

use crate::support::still;
use rows::{Row, SECRET};

const ONE: Policy = Policy::token_bucket("one", Quota::per_hour(1));
const FIVE: Policy = Policy::token_bucket("five", Quota::per_hour(5));

fn one<K: KeyExtractor>(key: K) -> RateLimitLayer<K> {
    RateLimitLayer::new(Limiter::new(still(), ONE), key)
}

/// A route for each way to a key.
fn router() -> Router {
    let trusted =
        || TrustedProxies::networks(["127.0.0.0/8", "10.0.0.0/8"].map(|network| network.parse::<Network>().unwrap()));
    let hello = || any(|| async { "hello" });
    let cost = RateLimitLayer::builder(Limiter::new(still(), FIVE), Global)
        .cost(|parts| {
            let cost = parts.headers.get("x-cost").and_then(|cost| cost.to_str().ok()?.parse().ok());
            Cost::new(cost.unwrap_or(1))
        })
        .build();
    Router::new()
        .route("/header", hello().layer(one(Header::new("x-api-key"))))
        .route("/pair", hello().layer(one((Header::new("a"), Header::new("b")))))
        .route("/or", hello().layer(one(Header::new("x-api-key").or(PeerIp::new()))))
        .route("/exempt", hello().layer(one(Header::new("x-api-key").or_exempt())))
        .route("/peer", hello().layer(one(PeerIp::new())))
        .route("/forwarded-for", hello().layer(one(ForwardedIp::x_forwarded_for(trusted()))))
        .route("/forwarded", hello().layer(one(ForwardedIp::forwarded(trusted()))))
        .route("/untrusted", hello().layer(one(ForwardedIp::x_forwarded_for(TrustedProxies::networks([])))))
        .route("/cost", hello().layer(cost))
        .route("/method", hello().layer(one(Method)))
        .route("/matched/{id}", hello().layer(one(MatchedPath)))
        .route("/path/{*rest}", hello().layer(one(Path)))
        // Where no route matches there is no template.
        .fallback_service(get(|| async { "elsewhere" }).layer(one(MatchedPath)))
}

async fn serve() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = router().into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

async fn try_row(row: &Row) -> Result<(), String> {
    let address = serve().await;
    let mut statuses = Vec::new();
    for request in &row.requests {
        let answer = raw::send(tokio::net::TcpStream::connect(address).await.unwrap(), request).await;
        statuses.push(raw::status(&answer));
        if String::from_utf8_lossy(&answer).contains(SECRET) {
            return Err(format!("{}: the answer tells what was sent", row.input));
        }
    }
    if statuses == row.expected {
        Ok(())
    } else {
        Err(format!("{}: {statuses:?} where {:?} belongs", row.input, row.expected))
    }
}

#[tokio::test]
async fn every_input_has_the_status_that_the_catalogue_says() {
    let rows = rows::all();
    let mut wrong = Vec::new();
    for row in &rows {
        wrong.extend(try_row(row).await.err());
    }
    println!("{} rows", rows.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[tokio::test]
async fn the_service_answers_others_after_every_row() {
    let address = serve().await;
    for row in rows::all() {
        for request in &row.requests {
            raw::send(tokio::net::TcpStream::connect(address).await.unwrap(), request).await;
        }
    }
    let request = raw::get("/header", &[("x-api-key", "somebody else")]);
    let answer = raw::send(tokio::net::TcpStream::connect(address).await.unwrap(), &request).await;
    assert_eq!(raw::status(&answer), 200);
}

#[tokio::test]
async fn the_peer_of_a_unix_socket_and_one_that_nobody_tells_are_a_mistake_of_the_setup() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move { axum::serve(listener, router().into_make_service()).await });
    for (target, status) in
        [("/peer", 500), ("/forwarded-for", 500), ("/forwarded", 500), ("/header", 400), ("/method", 200)]
    {
        let stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        let answer = raw::send(stream, &raw::get(target, &[("x-forwarded-for", "203.0.113.7")])).await;
        assert_eq!(raw::status(&answer), status, "{target}");
    }
}
