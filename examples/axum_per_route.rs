//! Sets a limit for a route, for each route of a nested router, and for the whole service.
//!
//! ```text
//! cargo run --example axum_per_route
//! for i in $(seq 4); do curl -i http://127.0.0.1:3000/search; done
//! curl -i http://127.0.0.1:3000/v1/users/7
//! ```
//!
//! Three requests to `/search` pass, the fourth gets 429. The `RateLimit` fields of `/search` have
//! two members: `search` is counted for each client, `service` for all clients together.
//! `/v1/users/7` and `/v1/users/8` share one quota, because they match the same route. A path that
//! matches no route gets 404 and is limited by the service's limit only.
//!
//! Add layers in this order, from the outside to the inside: trace, CORS, rate limits, everything
//! else. In axum the layer that is added last is the outermost.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

use axum::{
    Router,
    extract::Path,
    routing::{get, post},
};
use tollgate::{Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{
    RateLimitLayer,
    key::{Global, MatchedRoute, PeerIp, RequestMethod},
};

const SERVICE: Policy = Policy::token_bucket("service", Quota::per_second(100));
const SEARCH: Policy = Policy::token_bucket("search", Quota::per_second(1).with_burst(3));
const EACH_ROUTE: Policy = Policy::sliding_window("each-route", Quota::per_minute(10));

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = store()?;
    let service = RateLimitLayer::new(Limiter::new(store.clone(), SERVICE), Global);
    let search = RateLimitLayer::new(Limiter::new(store.clone(), SEARCH), PeerIp);
    // One quota for each client, method and route.
    let each_route = RateLimitLayer::new(
        Limiter::new(store, EACH_ROUTE),
        (PeerIp, RequestMethod, MatchedRoute),
    );

    let users = Router::new()
        .route(
            "/users/{id}",
            get(|Path(id): Path<u64>| async move { format!("user {id}\n") }),
        )
        .route("/users", post(|| async { "created\n" }))
        .route_layer(each_route);
    let router = Router::new()
        .route("/search", get(|| async { "found\n" }).layer(search))
        .nest("/v1", users)
        .layer(service);

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("Listening on {url}:");
    println!("  GET  /search         1 per second for each client, at most 3 at once");
    println!("  GET  /v1/users/{{id}}  10 per minute for each client, one quota for all ids");
    println!("  POST /v1/users       10 per minute for each client, counted separately");
    println!("  all routes           100 per second for all clients together");
    println!("Try:");
    println!(
        "  for i in $(seq 4); do curl -s -o /dev/null -w '%{{http_code}} ' {url}/search; done; curl -i {url}/search"
    );
    serve(listener, router).await
}
