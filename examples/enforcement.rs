//! Brings a new limit into force for more and more customers, while the service runs.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1 cargo run --example enforcement
//! for i in $(seq 20); do curl -s -o /dev/null -w '%{http_code} ' -H "X-Tenant: tenant-$i" http://127.0.0.1:3000/; done
//! tollgate enforce tenant 50% --redis redis://127.0.0.1
//! curl -H 'X-Tenant: tenant-1' http://127.0.0.1:3000/rate_limit
//! ```
//!
//! Each tenant has one request a day. Repeat the first line: at 0 % nobody is denied, at 50 % about
//! every second tenant gets 429, always the same ones, and at 100 % all do. Every instance with the
//! same `REDIS_URL` follows within three seconds. The limiter is published, so `tollgate top`,
//! `who` and `peek` need no flags for its limit.
//!
//! Without Redis, `curl -X PUT http://127.0.0.1:3000/enforcement/50` changes the share of one
//! instance. In a real service, that route has an address of its own that clients cannot reach.
//! Limits in a file have the field `enforce` instead: `enforce: 25%`.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, put},
};
use tollgate::{Enforcement, Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{RateLimitLayer, key::Header};

const TENANT: Policy = Policy::fixed_window("tenant", Quota::per_day(1));

async fn enforce(
    State(enforcement): State<Enforcement>,
    Path(percent): Path<u8>,
) -> (StatusCode, String) {
    match enforcement.set(percent) {
        Ok(()) => (
            StatusCode::OK,
            format!("the limit is in force for {percent} % of the tenants\n"),
        ),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let enforcement = Enforcement::share(0);
    let limiter = Limiter::builder(store()?)
        .policies(TENANT)
        .published_with(enforcement.clone())
        .build();
    let layer = RateLimitLayer::builder(limiter, Header::new("x-tenant"))
        .enforcement(enforcement.clone())
        .build();
    let state = layer.state_service::<Body>();
    let router = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(layer)
        .route_service("/rate_limit", state)
        .route("/enforcement/{percent}", put(enforce))
        .with_state(enforcement);

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("Listening on {url}: one request a day for each X-Tenant, in force for none.");
    println!("Try:");
    println!(
        "  for i in $(seq 20); do curl -s -o /dev/null -w '%{{http_code}} ' -H \"X-Tenant: tenant-$i\" {url}/; done"
    );
    println!("  curl -X PUT {url}/enforcement/50");
    serve(listener, router).await
}
