//! Limits outgoing calls to an API that allows 5 calls per second.
//!
//! ```text
//! cargo run --example outgoing_calls
//! ```
//!
//! The program contains both sides. The server listens on `LISTEN` and denies more than 5 calls per second. The client
//! makes 20 calls. Its own limiter makes each call wait for its turn, so that the server denies none of them. This
//! takes about four seconds. With the same `REDIS_URL` two instances share the client's limit: start the second one
//! with another `LISTEN`, and both take twice as long.
//!
//! Then the client makes 8 calls without its limiter, through `RetryAfterLayer`. When a response says that nothing is
//! left, the layer delays the next call until the server allows it. It also obeys `Retry-After`.

use std::time::{Duration, Instant};

use axum::{Router, body::Body, http::Request, routing::get};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tollgate::{Limiter, MemoryStore, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{RateLimitLayer, RetryAfterLayer, key::Global, key::PeerIp};
use tower::{ServiceBuilder, ServiceExt};

const SERVER: Policy = Policy::token_bucket("server", Quota::per_second(5));
const CLIENT: Policy = Policy::leaky_bucket("client", Quota::per_second(5).with_burst(1000));

async fn call_server(url: String, limiter: Limiter) -> Result<(), Failure> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    // The limiter must be able to build a response body. Only hyper can build hyper's own body type.
    let client =
        ServiceBuilder::new().map_response(|response: axum::http::Response<_>| response.map(Body::new)).service(client);
    let get = || Request::get(&url).body(Body::empty());

    let limit = RateLimitLayer::builder(limiter, Global).wait(Duration::from_secs(60)).build();
    let limited = ServiceBuilder::new().layer(limit).service(client.clone());
    let start = Instant::now();
    for number in 1..=20 {
        let response = limited.clone().oneshot(get()?).await?;
        println!("{:>5} ms  call {number:>2}: {}", start.elapsed().as_millis(), response.status());
    }

    println!("Now without the limiter:");
    let delayed = ServiceBuilder::new().layer(RetryAfterLayer::new()).service(client);
    let start = Instant::now();
    for number in 1..=8 {
        let response = delayed.clone().oneshot(get()?).await?;
        println!("{:>5} ms  call {number:>2}: {}", start.elapsed().as_millis(), response.status());
    }
    println!("Press Ctrl-C to stop the server.");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let limiter = Limiter::new(store()?, CLIENT);
    // The server has counts of its own.
    let server = RateLimitLayer::new(Limiter::new(MemoryStore::new(), SERVER), PeerIp::new());
    let router = Router::new().route("/", get(|| async { "hello\n" }).layer(server));

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("The server listens on {url}, limited to 5 per second for each client address.");
    println!("Try it yourself: curl -i {url}/");
    let calls = tokio::spawn(call_server(format!("{url}/"), limiter));
    serve(listener, router).await?;
    calls.abort();
    match calls.await {
        Ok(done) => done,
        // The calls were aborted.
        Err(_) => Ok(()),
    }
}
