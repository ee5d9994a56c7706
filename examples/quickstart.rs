//! Limits an axum service for each client address.
//!
//! ```text
//! cargo run --example quickstart
//! for i in $(seq 12); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3000/; done
//! curl -i http://127.0.0.1:3000/
//! ```
//!
//! The bucket holds ten units and gains one every 200 ms. The first ten requests get 200. The others get 429, except
//! that one more passes for each 200 ms that the loop takes. After one second of rest five more pass. `curl -i` shows
//! the header fields that report the limit to the client.
//!
//! To share one limit, start a second instance with another `LISTEN`, and set the same `REDIS_URL` for both.

use axum::{Router, routing::get};
use tollgate::{Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{RateLimitLayer, key::PeerIp};

const HOME: Policy = Policy::token_bucket("home", Quota::per_second(5).with_burst(10));

// The policies of one limiter are decided in one step: all are charged, or none.
const REPORT: [Policy; 2] = [
    Policy::token_bucket("report-burst", Quota::per_second(1).with_burst(2)),
    Policy::fixed_window("report-daily", Quota::per_day(100)),
];

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = store()?;
    let home = Limiter::new(store.clone(), HOME);
    let report = Limiter::new(store, REPORT);

    let router = Router::new()
        .route("/", get(|| async { "hello\n" }).layer(RateLimitLayer::new(home, PeerIp::new())))
        .route("/report", get(|| async { "a report\n" }).layer(RateLimitLayer::new(report, PeerIp::new())))
        .route("/healthz", get(|| async { "healthy\n" }));

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("Listening on {url}, limited for each client address:");
    println!("  GET /         5 per second, at most 10 at once");
    println!("  GET /report   1 per second, at most 2 at once, and 100 per day (UTC)");
    println!("  GET /healthz  not limited");
    println!("Try:");
    println!("  for i in $(seq 12); do curl -s -o /dev/null -w '%{{http_code}} ' {url}/; done; curl -i {url}/");
    serve(listener, router).await
}
