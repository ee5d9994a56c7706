//! Brings a new limit into force for more and more customers, while the service runs.
//!
//! ```text
//! cargo run --example enforcement
//! for i in $(seq 20); do curl -s -o /dev/null -w '%{http_code} ' -H "X-Tenant: tenant-$i" http://127.0.0.1:3000/; done
//! curl -X PUT http://127.0.0.1:3000/enforcement/50
//! ```
//!
//! Each tenant has one request an hour. Repeat the first line: at 0 % nobody is denied, at 50 % about every second tenant
//! gets 429, always the same ones, and at 100 % all do. A second instance with the same `REDIS_URL` that is turned to the same
//! share denies the same tenants.
//!
//! In a real service, the second route has an address of its own that clients cannot reach, or the share comes from the
//! configuration that the service reads anyway. Limits in a file have the field `enforce` instead: `enforce: 25%`.

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, put},
};
use tollgate::{Enforcement, Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{RateLimitLayer, key::Header};

const TENANT: Policy = Policy::fixed_window("tenant", Quota::per_hour(1));

async fn enforce(State(enforcement): State<Enforcement>, Path(percent): Path<u8>) -> (StatusCode, String) {
    match enforcement.set(percent) {
        Ok(()) => (StatusCode::OK, format!("the limit is in force for {percent} % of the tenants\n")),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let enforcement = Enforcement::share(0);
    let layer = RateLimitLayer::builder(Limiter::new(store()?, TENANT), Header::new("x-tenant"))
        .enforcement(enforcement.clone())
        .build();
    let router = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(layer)
        .route("/enforcement/{percent}", put(enforce))
        .with_state(enforcement);

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("Listening on {url}: one request an hour for each X-Tenant, in force for none.");
    println!("Try:");
    println!(
        "  for i in $(seq 20); do curl -s -o /dev/null -w '%{{http_code}} ' -H \"X-Tenant: tenant-$i\" {url}/; done"
    );
    println!("  curl -X PUT {url}/enforcement/50");
    serve(listener, router).await
}
