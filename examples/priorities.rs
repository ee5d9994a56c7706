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
//! All customers share the exports. Each gets the same share of them: one that has taken much lately
//! gets 429, and others still pass.
//!
//! ```text
//! for i in $(seq 20); do curl -s -o /dev/null -w '%{http_code} ' -H 'x-api-key: heavy' http://127.0.0.1:3000/exports; done
//! curl -i -H 'x-api-key: light' http://127.0.0.1:3000/exports
//! ```
//!
//! Each customer (`-H 'x-api-key: acme'`) has 100 requests a day beside that, reports included.
//! That limit is unranked: a rank would take a part of what the customer has paid for.
//!
//! The route has the priority. A header that the client sends would be a wish, and no priority.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

use std::sync::Arc;

use axum::{Router, routing::get};
use http::request::Parts;
use tollgate::{Limiter, Policy, Priority, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{
    RateLimitLayer,
    key::{Global, Header, KeyExtractor},
};

const SERVICE: Policy = Policy::token_bucket("service", Quota::per_minute(10));

/// Fair shares need a burst of 10 or more.
const EXPORTS: Policy = Policy::token_bucket("exports", Quota::per_minute(60).with_burst(20));

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
    let store = store()?;
    let limiter = Limiter::new(Arc::clone(&store), [SERVICE, PLAN]);
    let layer = RateLimitLayer::builder(limiter, key)
        .priority(priority)
        .build();
    let exports = Limiter::builder(store)
        .policies(EXPORTS)
        .fair_shares()
        .build();
    let exports = RateLimitLayer::builder(exports, Global)
        .customer(Header::new("x-api-key"))
        .build();
    let router = Router::new()
        .route("/orders", get(|| async { "orders\n" }))
        .route("/search", get(|| async { "found\n" }))
        .route("/reports", get(|| async { "reports\n" }))
        .layer(layer)
        .route("/exports", get(|| async { "exported\n" }).layer(exports));

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
