//! Kinds of requests: GET, HEAD, OPTIONS, POST with a body, an upgrade to WebSocket. One unit per
//! minute for the key in `x-key`. Below `/refused` every upload is denied: by a layer, by a layer
//! of permits, and by a handler.

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::{Request, State, WebSocketUpgrade},
    http::{Response, StatusCode},
    routing::{get, post},
};
use tokio::runtime::Runtime;
use tollgate::{
    Limiter, MemoryStore, Policy, Quota,
    permits::{Concurrency, ConcurrencyLimiter},
    store::Clock,
};
use tollgate_tower::{
    ConcurrencyLayer, HandlerLimiter, RateLimitLayer, Rejected,
    drain::DrainLayer,
    key::{Global, Header},
};

const ONE: Policy = Policy::token_bucket("one", Quota::per_minute(1));

/// Returns a limiter whose clock stands still, so that a wait is the same however slow the client is.
fn limiter() -> Limiter {
    let clock = Clock::manual(1_800_000_000_000_000);
    Limiter::new(MemoryStore::builder().clock(clock).build(), ONE)
}

pub(crate) fn router() -> Router {
    let post_length = post(|body: Bytes| async move { format!("{} bytes\n", body.len()) });
    let hello = get(|| async { "hello\n" }).options(|| async { StatusCode::NO_CONTENT });
    Router::new()
        .route("/", hello.merge(post_length))
        .route("/websocket", get(websocket))
        .layer(RateLimitLayer::new(limiter(), Header::new("x-key")))
        // Not limited: a client asks it after a denied upload, to see that the connection still
        // works.
        .route("/free", get(|| async { "free\n" }))
        .nest("/refused", refusals())
}

/// Denies uploads before their bodies were read.
fn refusals() -> Router {
    let spent = || {
        let limiter = limiter();
        let first = block_on(limiter.check("all").into_future());
        assert!(first.expect("the store is in the process").is_allowed());
        limiter
    };
    let layer = RateLimitLayer::new(spent(), Global);
    let handler: HandlerLimiter<Body> = layer.handler_limiter(spent());
    let permits = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("permits", 1));
    let held = Arc::new(block_on(permits.acquire("all")).expect("the store is in the process"));
    let admitted = || post(|| async { "admitted\n" });
    let with_permits = ConcurrencyLayer::new(permits, Global);
    let refusing = post(refuse).layer(DrainLayer::new()).with_state(handler);
    Router::new()
        .route("/layer", admitted().layer(layer))
        .route("/permits", admitted().layer(with_permits))
        .route("/handler", refusing)
        // The router holds the permit.
        .layer(Extension(held))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    Runtime::new()
        .expect("a thread can be started")
        .block_on(future)
}

/// Checks a limiter before it reads the body.
async fn refuse(
    State(limiter): State<HandlerLimiter<Body>>,
    request: Request,
) -> Result<&'static str, Rejected<Body>> {
    let (mut head, _upload) = request.into_parts();
    limiter.check(&mut head, "all").await.map(|_| "admitted\n")
}

/// Accepts a WebSocket, and sends one message.
async fn websocket(upgrade: WebSocketUpgrade) -> Response<Body> {
    upgrade.on_upgrade(async |mut socket| drop(socket.send("hello".into()).await))
}
