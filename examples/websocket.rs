//! Limits the messages of WebSockets, by the address of the client, over all replicas.
//!
//! ```text
//! cargo run --example websocket
//! seq 12 | websocat ws://127.0.0.1:3000/chat
//! ```
//!
//! A client sends ten messages at once to `/chat`, and one more each second. The next message
//! closes the socket, with the code 1008 and a reason. On `/calm` it waits instead, for up to two
//! seconds, and slows the client down. On `/readings` it is dropped. A second socket, also on
//! another instance with the same `REDIS_URL`, has the same ten messages.
//!
//! The layer around the routes limits how many sockets a client opens. It says by what the messages
//! are limited, too.
//!
//! Features: `ws` of `tollgate-tower`, beside the defaults.

use std::time::Duration;

use axum::{
    Extension, Router,
    extract::{
        WebSocketUpgrade,
        ws::{Message, WebSocket},
    },
    response::Response,
    routing::any,
};
use tollgate::{Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{RateLimitLayer, RequestLimiter, key::PeerIp, ws::LimitedSocket};

const SOCKETS: Policy = Policy::token_bucket("sockets", Quota::per_minute(30));
const MESSAGES: Policy = Policy::token_bucket("messages", Quota::per_second(1).with_burst(10));

async fn chat(
    upgrade: WebSocketUpgrade,
    Extension(messages): Extension<RequestLimiter>,
) -> Response {
    accept(upgrade, |socket| LimitedSocket::new(socket, messages))
}

async fn calm(
    upgrade: WebSocketUpgrade,
    Extension(messages): Extension<RequestLimiter>,
) -> Response {
    accept(upgrade, |socket| {
        LimitedSocket::new(socket, messages.wait(Duration::from_secs(2)))
    })
}

async fn readings(
    upgrade: WebSocketUpgrade,
    Extension(messages): Extension<RequestLimiter>,
) -> Response {
    accept(upgrade, |socket| {
        LimitedSocket::new(socket, messages)
            .drop_denied(|_, refusal| println!("Dropped a reading: {refusal}."))
    })
}

/// Accepts a socket. A message is in memory before it is charged, so its length has a limit of its
/// own.
fn accept(
    upgrade: WebSocketUpgrade,
    limit: impl FnOnce(WebSocket) -> LimitedSocket + Send + 'static,
) -> Response {
    upgrade
        .max_message_size(16 * 1024)
        .on_upgrade(async |socket| echo(limit(socket)).await)
}

/// Sends each text back, until the client or the limit closes the socket.
async fn echo(mut socket: LimitedSocket) {
    while let Some(received) = socket.recv().await {
        let sent = match received {
            Ok(text @ Message::Text(_)) => socket.send(text).await,
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            return println!("A socket has ended: {error}.");
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = store()?;
    let layer = RateLimitLayer::builder(Limiter::new(store.clone(), SOCKETS), PeerIp)
        .expose_request_limiter(Some(Limiter::new(store, MESSAGES)))
        .build();
    let router = Router::new()
        .route("/chat", any(chat))
        .route("/calm", any(calm))
        .route("/readings", any(readings))
        .layer(layer);

    let listener = listen().await?;
    let url = format!("ws://{}", listener.local_addr()?);
    println!(
        "Listening on {url}: 10 messages, and one more each second. At the limit, /chat closes, /calm waits and /readings drops."
    );
    println!("Try, with any client for WebSockets:\n  websocat {url}/chat");
    serve(listener, router).await
}
