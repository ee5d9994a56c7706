//! Kinds of requests: GET, HEAD, OPTIONS, POST with a body, an upgrade to WebSocket. One unit per
//! minute for the key in `x-key`. Below `/refused` every upload is denied: by a layer, by a layer
//! of permits, and by a handler.

use std::sync::Arc;

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderValue, Response, StatusCode, header},
    routing::{get, post},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use hyper_util::rt::TokioIo;
use sha1_smol::Sha1;
use tokio::{io::AsyncWriteExt, runtime::Runtime};
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

/// Appended to the key of a handshake (RFC 6455, section 1.3).
const HANDSHAKE: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A text frame `hello` and a frame that closes the connection, as servers send them (RFC 6455,
/// section 5.2).
const HELLO_AND_CLOSE: &[u8] = b"\x81\x05hello\x88\x02\x03\xe8";

pub(crate) fn router() -> Router {
    let store = MemoryStore::builder()
        .clock(Clock::manual(1_800_000_000_000_000))
        .build();
    let layer = RateLimitLayer::new(Limiter::new(store, ONE), Header::new("x-key"));
    Router::new()
        .route(
            "/",
            get(|| async { "hello\n" }).options(|| async { StatusCode::NO_CONTENT }),
        )
        .route(
            "/",
            post(|body: Bytes| async move { format!("{} bytes\n", body.len()) }),
        )
        .route("/websocket", get(websocket))
        .layer(layer)
        // Not limited: a client asks it after a denied upload, to see that the connection still
        // works.
        .route("/free", get(|| async { "free\n" }))
        .nest("/refused", refusals())
}

/// Denies uploads before their bodies were read.
fn refusals() -> Router {
    let spent = || {
        let limiter = Limiter::new(
            MemoryStore::builder()
                .clock(Clock::manual(1_800_000_000_000_000))
                .build(),
            ONE,
        );
        let first =
            block_on(limiter.check("all").into_future()).expect("the store is in the process");
        assert!(first.is_allowed());
        limiter
    };
    let layer = RateLimitLayer::new(spent(), Global);
    let handler: HandlerLimiter<Body> = layer.handler_limiter(spent());
    let permits = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("permits", 1));
    let held = Arc::new(block_on(permits.acquire("all")).expect("the store is in the process"));
    let admitted = || post(|| async { "admitted\n" });
    Router::new()
        .route("/layer", admitted().layer(layer))
        .route(
            "/permits",
            admitted().layer(ConcurrencyLayer::new(permits, Global)),
        )
        .route(
            "/handler",
            post(refuse).layer(DrainLayer::new()).with_state(handler),
        )
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
async fn websocket(request: Request) -> Response<String> {
    let key = request
        .headers()
        .get(header::SEC_WEBSOCKET_KEY)
        .map(|key| [key.as_bytes(), HANDSHAKE.as_bytes()].concat());
    let mut response = Response::new(String::new());
    let Some(key) = key else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    };
    tokio::spawn(async move {
        if let Ok(upgraded) = hyper::upgrade::on(request).await {
            let mut upgraded = TokioIo::new(upgraded);
            let _ = upgraded.write_all(HELLO_AND_CLOSE).await;
            let _ = upgraded.shutdown().await;
        }
    });
    let accept = STANDARD.encode(Sha1::from(key).digest().bytes());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(
        header::SEC_WEBSOCKET_ACCEPT,
        accept.parse().expect("base64 is a valid value"),
    );
    response
}
