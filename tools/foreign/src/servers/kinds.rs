//! Kinds of requests: GET, HEAD, OPTIONS, POST with a body, an upgrade to WebSocket. One unit per minute for the key in
//! `x-key`.

use axum::{
    Router,
    body::Bytes,
    extract::Request,
    http::{HeaderValue, Response, StatusCode, header},
    routing::{get, post},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use hyper_util::rt::TokioIo;
use sha1_smol::Sha1;
use tokio::io::AsyncWriteExt;
use tollgate::{Clock, Limiter, MemoryStore, Policy, Quota};
use tollgate_tower::{RateLimitLayer, key::Header};

const ONE: Policy = Policy::token_bucket("one", Quota::per_minute(1));

/// Appended to the key of a handshake (RFC 6455, section 1.3).
const HANDSHAKE: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A text frame `hello` and a frame that closes the connection, as servers send them (RFC 6455, section 5.2).
const HELLO_AND_CLOSE: &[u8] = b"\x81\x05hello\x88\x02\x03\xe8";

pub(crate) fn router() -> Router {
    let store = MemoryStore::builder().clock(Clock::manual(1_800_000_000_000_000)).build();
    let layer = RateLimitLayer::new(Limiter::new(store, ONE), Header::new("x-key"));
    Router::new()
        .route("/", get(|| async { "hello\n" }).options(|| async { StatusCode::NO_CONTENT }))
        .route("/", post(|body: Bytes| async move { format!("{} bytes\n", body.len()) }))
        .route("/websocket", get(websocket))
        .layer(layer)
        // Not limited: a client asks it after a denied upload, to see that the connection still works.
        .route("/free", get(|| async { "free\n" }))
}

/// Accepts a WebSocket, and sends one message.
async fn websocket(request: Request) -> Response<String> {
    let key =
        request.headers().get(header::SEC_WEBSOCKET_KEY).map(|key| [key.as_bytes(), HANDSHAKE.as_bytes()].concat());
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
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept.parse().expect("base64 is a valid value"));
    response
}
