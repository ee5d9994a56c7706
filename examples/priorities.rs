//! Leaves a share of one limit to the requests that matter most, over all replicas.
//!
//! ```text
//! cargo run --example priorities
//! for i in $(seq 7); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3000/reports; done
//! for i in $(seq 5); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3000/orders; done
//! ```
//!
//! The whole service admits 10 requests a minute. Six reports pass, and the seventh gets 429. Four
//! orders still pass, whatever the reports do, because an order may spend the whole burst. The
//! fifth order gets 429.
//!
//! Each customer (`-H 'x-api-key: acme'`) has 100 requests a day beside that, reports included.
//! That limit is unranked: a rank would take a part of what the customer has paid for.
//!
//! The route has the priority. A header that the client sends would be a wish, and no priority.

use axum::{Router, routing::get};
use http::request::Parts;
use tollgate::{Limiter, Policy, Priority, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{
    RateLimitLayer,
    key::{Global, Header, KeyExtractor},
};

const SERVICE: Policy = Policy::token_bucket("service", Quota::per_minute(10));

/// Meters the second branch of the key.
const PLAN: Policy = Policy::fixed_window("plan", Quota::per_day(100))
    .unranked()
    .at_branch(2);

fn priority(request: &Parts) -> Priority {
    match request.uri.path() {
        "/orders" => Priority::CRITICAL,
        "/search" => Priority::NORMAL,
        _ => Priority::BACKGROUND,
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let key = Global.with_branch(Header::new("x-api-key").or(Global));
    let layer = RateLimitLayer::builder(Limiter::new(store()?, [SERVICE, PLAN]), key)
        .priority(priority)
        .build();
    let router = Router::new()
        .route("/orders", get(|| async { "orders\n" }))
        .route("/search", get(|| async { "found\n" }))
        .route("/reports", get(|| async { "reports\n" }))
        .layer(layer);

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!(
        "Listening on {url}: 10 requests a minute, of which /reports may spend 6, /search 9 and /orders all."
    );
    println!("Try:");
    for path in ["reports", "orders"] {
        println!(
            "  for i in $(seq 7); do curl -s -o /dev/null -w '%{{http_code}} ' {url}/{path}; done"
        );
    }
    serve(listener, router).await
}
