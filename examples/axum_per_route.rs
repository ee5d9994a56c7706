//! A limit for each route, one for a nested router, and one for the service as a whole.
//!
//! ```text
//! cargo run --example axum_per_route
//! curl -i http://127.0.0.1:3000/search
//! curl -i http://127.0.0.1:3000/v1/users/7
//! ```
//!
//! The `RateLimit` fields of `/search` have two members: `search`, which belongs to the caller and the route, and
//! `service`, which all callers share. Four quick requests to `/search` are one too many; `/v1/users/7` and
//! `/v1/users/8` have one quota, because they are one route. A page that does not exist has no route, and no limit but
//! the service's.
//!
//! The order of layers is: trace, then CORS, then limits, then the rest. In axum the layer added last is the outermost.

use axum::{
    Router,
    extract::Path,
    routing::{get, post},
};
use tollgate::{Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{
    RateLimitLayer,
    key::{Global, MatchedPath, Method, PeerIp},
};

const SERVICE: Policy = Policy::token_bucket("service", Quota::per_second(100));
const SEARCH: Policy = Policy::token_bucket("search", Quota::per_second(1).with_burst(3));
const EACH_ROUTE: Policy = Policy::sliding_window("each-route", Quota::per_minute(10));

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = store()?;
    let service = RateLimitLayer::new(Limiter::new(store.clone(), SERVICE), Global);
    let search = RateLimitLayer::new(Limiter::new(store.clone(), SEARCH), PeerIp::new());
    // Every caller has a quota for each route and method.
    let each_route = RateLimitLayer::new(Limiter::new(store, EACH_ROUTE), (PeerIp::new(), Method, MatchedPath));

    let users = Router::new()
        .route("/users/{id}", get(|Path(id): Path<u64>| async move { format!("user {id}\n") }))
        .route("/users", post(|| async { "created\n" }))
        .route_layer(each_route);
    let router =
        Router::new().route("/search", get(|| async { "found\n" }).layer(search)).nest("/v1", users).layer(service);

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("Listening on {url}:");
    println!("  GET  /search         1 per second and caller, at most 3 at once");
    println!("  GET  /v1/users/{{id}}  10 per minute and caller, whatever the id");
    println!("  POST /v1/users       10 per minute and caller, counted apart");
    println!("  all together         100 per second");
    println!("Try:");
    println!(
        "  for i in $(seq 4); do curl -s -o /dev/null -w '%{{http_code}} ' {url}/search; done; curl -i {url}/search"
    );
    serve(listener, router).await
}
