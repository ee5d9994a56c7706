//! Calls that go out, to somebody who lets us call 5 times a second.
//!
//! ```text
//! cargo run --example outgoing_calls
//! ```
//!
//! It plays both sides. The other side listens on `LISTEN` and denies what is above 5 per second. The client calls it 20
//! times as fast as it is let: a limit of its own makes it wait for its turn, so that it is never denied, and it is told
//! so after about four seconds. With the same `REDIS_URL` two instances of it keep the limit together: start the second
//! with another `LISTEN`, and both take twice as long.
//!
//! Then it calls without the limit: `RetryAfterLayer` obeys what the other side says, that nothing is left for now, so
//! that the call after it waits a second and passes. Had it been denied, it would obey `Retry-After`.

use std::time::{Duration, Instant};

use axum::{Router, body::Body, http::Request, routing::get};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tollgate::{Limiter, MemoryStore, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{RateLimitLayer, RetryAfterLayer, key::Global, key::PeerIp};
use tower::{ServiceBuilder, ServiceExt};

const THEIRS: Policy = Policy::token_bucket("theirs", Quota::per_second(5));
const OURS: Policy = Policy::leaky_bucket("ours", Quota::per_second(5).with_burst(1000));

async fn call_them(url: String, limiter: Limiter) -> Result<(), Failure> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    // The answers of hyper have a body that only hyper makes; the limit has to be able to make one too.
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

    println!("Now without the limit:");
    let obedient = ServiceBuilder::new().layer(RetryAfterLayer::new()).service(client);
    let start = Instant::now();
    for number in 1..=8 {
        let response = obedient.clone().oneshot(get()?).await?;
        println!("{:>5} ms  call {number:>2}: {}", start.elapsed().as_millis(), response.status());
    }
    println!("Ctrl-C ends the other side.");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let ours = Limiter::new(store()?, OURS);
    // The other side counts for itself.
    let theirs = RateLimitLayer::new(Limiter::new(MemoryStore::new(), THEIRS), PeerIp::new());
    let router = Router::new().route("/", get(|| async { "hello\n" }).layer(theirs));

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("The other side listens on {url}, limited to 5 per second and address.");
    println!("Try it yourself: curl -i {url}/");
    let calls = tokio::spawn(call_them(format!("{url}/"), ours));
    serve(listener, router).await?;
    calls.abort();
    match calls.await {
        Ok(done) => done,
        // It was still calling when it was told to stop.
        Err(_) => Ok(()),
    }
}
