//! Charges the messages that a WebSocket receives: a layer charges the opening of a socket alone.
//!
//! A layer charges the request that opens a socket, once. The client can then send any number of
//! messages at no further cost. A [`LimitedSocket`] wraps the socket of axum, and charges each
//! message before the handler sees it: one unit, its [bytes](LimitedSocket::bytes), or [any
//! cost](LimitedSocket::cost).
//!
//! A [`RequestLimiter`] holds the limiter and the key. A layer around the route inserts one for the
//! key of the request: see
//! [`expose_request_limiter`](crate::RateLimitBuilder::expose_request_limiter).
//! [`RequestLimiter::new`] takes any limiter and any key.
//!
//! ```
//! use std::{net::SocketAddr, time::Duration};
//!
//! use axum::{Extension, Router, extract::WebSocketUpgrade, response::Response, routing::any};
//! use tollgate::{Limiter, MemoryStore, Policy, Quota};
//! use tollgate_tower::{RateLimitLayer, RequestLimiter, key::PeerIp, ws::LimitedSocket};
//!
//! async fn chat(upgrade: WebSocketUpgrade, Extension(messages): Extension<RequestLimiter>) -> Response {
//!     upgrade.max_message_size(16 * 1024).on_upgrade(|socket| async move {
//!         // A message waits for up to two seconds. One that would have to wait longer closes the socket.
//!         let mut socket = LimitedSocket::new(socket, messages.wait(Duration::from_secs(2)));
//!         while let Some(Ok(message)) = socket.recv().await {
//!             if socket.send(message).await.is_err() {
//!                 break;
//!             }
//!         }
//!     })
//! }
//!
//! let store = MemoryStore::new();
//! let connections = Limiter::new(store.clone(), Policy::token_bucket("connections", Quota::per_minute(30)));
//! let messages = Limiter::new(store, Policy::token_bucket("messages", Quota::per_second(5).with_burst(20)));
//! let layer = RateLimitLayer::builder(connections, PeerIp).expose_request_limiter(Some(messages)).build();
//! let app: Router = Router::new().route("/chat", any(chat).layer(layer));
//! # let _ = app.into_make_service_with_connect_info::<SocketAddr>();
//! ```
//!
//! # At the limit
//!
//! | option | a message beyond the limit |
//! |---|---|
//! | none | closes the socket with the code 1008 (policy violation). The reason names the policy and the wait |
//! | [`RequestLimiter::wait`] | waits for its turn. The socket is not read meanwhile, so the client is slowed down by TCP. A message whose turn would come too late closes the socket, or is dropped |
//! | [`drop_denied`](LimitedSocket::drop_denied) | is dropped and [counted](LimitedSocket::dropped). Your closure receives it |
//!
//! In a [leaky bucket](tollgate_core::Policy::leaky_bucket) a message waits with and without an option.
//! If the layer is in [shadow mode](crate::RateLimitBuilder::shadow), each message passes at once,
//! and so does each message of an [exempt](crate::RateLimitBuilder::exempt) request. Messages have
//! the [priority](crate::RateLimitBuilder::priority) of their request.
//!
//! The close code shows the client whether a new connection helps:
//!
//! | code | when |
//! |---|---|
//! | 1008 | the limit is exceeded, or blocked |
//! | 1009 | the cost of the message is above the burst of a policy: it would never fit. With `drop_denied` it is dropped |
//! | 1011 | the limiter is misconfigured: the key has too few levels, or no runtime has been started |
//! | 1013 | the store did not decide, and the limiter is [closed](tollgate_core::Outage::Closed) in an outage. With any other `Outage` the limiter decides itself |
//!
//! [`close_with`](LimitedSocket::close_with) chooses another code or reason. After the close frame,
//! the socket waits for the close frame of the client, for up to 2 s, and discards all other
//! messages. Otherwise the connection would be reset, and the client could lose the close frame.
//! Then the handler receives a [`Refusal`] as an error, and the stream ends. After the close frame,
//! sending returns an error.
//!
//! # What is not charged
//!
//! - Pings and pongs, unless [`control_cost`](LimitedSocket::control_cost) is set, and close
//!   frames.
//! - Messages that the server sends. A handler charges those by [`RequestLimiter::check`].
//! - Frames. A message of several frames is one message. It is in memory before it is charged, so
//!   set [`max_message_size`](axum::extract::ws::WebSocketUpgrade::max_message_size).
//!
//! A message that waits delays the pings behind it. Keep the longest wait below the time after
//! which the client or a proxy closes a silent connection.

// The opening of a socket is a request like any other, which a layer in `rate_limit/` charges.

mod closing;
mod refusal;

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use axum::{
    Error,
    extract::ws::{CloseFrame, Message, WebSocket},
};
use futures_core::{FusedStream, Stream};
use futures_sink::Sink;
use tollgate_core::{Cost, store::CheckFuture};

use crate::RequestLimiter;
use closing::Closing;
pub use refusal::Refusal;

/// Charges the messages that a WebSocket receives, and passes on those that are paid for.
///
/// It is a stream and a sink, as the socket is. The [module](self) has an example, and describes
/// what happens at the limit.
///
/// # Cancellation
///
/// The socket holds the message that is being charged. Dropping a future of [`recv`](Self::recv),
/// or of a stream combinator, loses no message and charges none twice: the next call goes on with
/// it. If the socket is dropped while a message waits, its units are refunded. If it is dropped
/// while the store decides, the units may be spent.
///
/// # Panics
///
/// Reading panics when the limit closes the socket outside of a tokio runtime, or in a runtime
/// without timers.
#[must_use = "streams do nothing unless polled"]
pub struct LimitedSocket<S = WebSocket> {
    socket: S,
    limiter: RequestLimiter,
    options: SocketOptions,
    state: SocketState,
    dropped: u64,
    /// A task that waits for the sink. It is woken when the socket closes, because the close frame
    /// takes its place.
    sender: Option<Waker>,
}

struct SocketOptions {
    cost: Option<CostOf>,
    control_cost: Cost,
    on_dropped: Option<Box<dyn FnMut(Message, Refusal) + Send>>,
    close_frame: Option<FrameOf>,
}

type CostOf = Box<dyn Fn(&Message) -> Cost + Send>;

type FrameOf = Box<dyn Fn(&Refusal) -> CloseFrame + Send>;

enum SocketState {
    Reading,
    /// The message at hand, while the limiter is asked.
    Charging(CheckFuture, Message),
    Closing(Closing, Refusal),
    Closed,
}

impl<S> LimitedSocket<S> {
    /// Charges one unit for each text or binary message of a socket.
    pub fn new(socket: S, limiter: RequestLimiter) -> Self {
        let options = SocketOptions {
            cost: None,
            control_cost: Cost::ZERO,
            on_dropped: None,
            close_frame: None,
        };
        Self {
            socket,
            limiter,
            options,
            state: SocketState::Reading,
            dropped: 0,
            sender: None,
        }
    }

    /// Sets the cost of a text or binary message. The default is one unit. A message with a cost of
    /// zero passes without a check.
    pub fn cost(mut self, cost: impl Fn(&Message) -> Cost + Send + 'static) -> Self {
        self.options.cost = Some(Box::new(cost));
        self
    }

    /// Charges one unit for each byte of the payload. An empty message costs one unit.
    ///
    /// A message that is longer than the burst never fits, so choose a burst above the longest
    /// message.
    pub fn bytes(self) -> Self {
        self.cost(|message| Cost::new(payload(message).max(1)))
    }

    /// Sets the cost of a ping or a pong. The default is zero.
    ///
    /// axum answers each ping, also one that is dropped.
    pub fn control_cost(mut self, cost: Cost) -> Self {
        self.options.control_cost = cost;
        self
    }

    /// Passes messages beyond the limit to a closure instead of closing the socket.
    ///
    /// The closure runs in the task that reads, so it must not block. If the store does not decide,
    /// the socket closes.
    pub fn drop_denied(
        mut self,
        on_dropped: impl FnMut(Message, Refusal) + Send + 'static,
    ) -> Self {
        self.options.on_dropped = Some(Box::new(on_dropped));
        self
    }

    /// Sets the code and the reason of the close frame. The default is [`Refusal::close_frame`].
    ///
    /// The reason may be up to 123 bytes long.
    pub fn close_with(mut self, frame: impl Fn(&Refusal) -> CloseFrame + Send + 'static) -> Self {
        self.options.close_frame = Some(Box::new(frame));
        self
    }

    /// Returns the number of messages that were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the inner socket.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.socket
    }

    /// Returns the inner socket without the limit. A message that is being charged is lost.
    #[must_use]
    pub fn into_inner(self) -> S {
        self.socket
    }

    fn cost_of(&self, message: &Message) -> Cost {
        match message {
            Message::Text(_) | Message::Binary(_) => self
                .options
                .cost
                .as_ref()
                .map_or(Cost::ONE, |cost| cost(message)),
            Message::Ping(_) | Message::Pong(_) => self.options.control_cost,
            Message::Close(_) => Cost::ZERO,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.state, SocketState::Reading | SocketState::Charging(..))
    }

    /// Drops a message that is not paid for, or begins to close the socket.
    fn refuse(&mut self, message: Message, refusal: Refusal) {
        if let Some(on_dropped) = &mut self.options.on_dropped
            && refusal.is_of_message()
        {
            self.dropped += 1;
            return on_dropped(message, refusal);
        }
        let frame = self
            .options
            .close_frame
            .as_ref()
            .map_or_else(|| refusal.close_frame(), |frame| frame(&refusal));
        self.state = SocketState::Closing(Closing::new(frame), refusal);
        if let Some(sender) = self.sender.take() {
            sender.wake();
        }
    }
}

/// Returns the length of a payload in bytes.
fn payload(message: &Message) -> u64 {
    let bytes = match message {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) | Message::Ping(bytes) | Message::Pong(bytes) => bytes.len(),
        Message::Close(_) => 0,
    };
    bytes as u64
}

impl<S> LimitedSocket<S>
where
    S: Stream<Item = Result<Message, Error>> + Sink<Message, Error = Error> + Unpin,
{
    /// Receives the next message that is paid for. Returns `None` when the socket has closed.
    ///
    /// # Errors
    ///
    /// Returns the error of the socket. When the limit has closed the socket, the inner error is a
    /// [`Refusal`].
    pub async fn recv(&mut self) -> Option<Result<Message, Error>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Sends a message. It is not charged.
    ///
    /// # Errors
    ///
    /// Returns the error of the socket, or an error when the limit has closed it.
    pub async fn send(&mut self, message: Message) -> Result<(), Error> {
        poll_fn(|cx| Pin::new(&mut *self).poll_ready(cx)).await?;
        Pin::new(&mut *self).start_send(message)?;
        poll_fn(|cx| Pin::new(&mut *self).poll_flush(cx)).await
    }

    /// Asks the sink, and keeps the task that waits for it.
    fn poll_sink(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<Result<(), Error>>,
    ) -> Poll<Result<(), Error>> {
        if !self.is_open() {
            return Poll::Ready(Err(closed()));
        }
        let polled = poll(Pin::new(&mut self.socket), cx);
        self.sender = polled.is_pending().then(|| cx.waker().clone());
        polled
    }
}

/// Returns the error of a sink whose socket the limit has closed.
fn closed() -> Error {
    Error::new("the rate limit has closed the socket")
}

impl<S> Stream for LimitedSocket<S>
where
    S: Stream<Item = Result<Message, Error>> + Sink<Message, Error = Error> + Unpin,
{
    type Item = Result<Message, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                SocketState::Reading => {
                    let message = match ready!(Pin::new(&mut this.socket).poll_next(cx)) {
                        Some(Ok(message)) => message,
                        other => return Poll::Ready(other),
                    };
                    let cost = this.cost_of(&message);
                    if cost == Cost::ZERO {
                        return Poll::Ready(Some(Ok(message)));
                    }
                    this.state = SocketState::Charging(this.limiter.check(cost), message);
                }
                SocketState::Charging(check, _) => {
                    let result = ready!(Pin::new(check).poll(cx));
                    let SocketState::Charging(_, message) =
                        std::mem::replace(&mut this.state, SocketState::Reading)
                    else {
                        continue;
                    };
                    if this.limiter.admits(&result) {
                        return Poll::Ready(Some(Ok(message)));
                    }
                    this.refuse(message, Refusal::new(result));
                }
                SocketState::Closing(closing, _) => {
                    ready!(closing.poll(&mut this.socket, cx));
                    if let SocketState::Closing(_, refusal) =
                        std::mem::replace(&mut this.state, SocketState::Closed)
                    {
                        return Poll::Ready(Some(Err(Error::new(refusal))));
                    }
                }
                SocketState::Closed => return Poll::Ready(None),
            }
        }
    }
}

impl<S> FusedStream for LimitedSocket<S>
where
    S: FusedStream<Item = Result<Message, Error>> + Sink<Message, Error = Error> + Unpin,
{
    fn is_terminated(&self) -> bool {
        match self.state {
            SocketState::Reading => self.socket.is_terminated(),
            SocketState::Charging(..) | SocketState::Closing(..) => false,
            SocketState::Closed => true,
        }
    }
}

impl<S> Sink<Message> for LimitedSocket<S>
where
    S: Stream<Item = Result<Message, Error>> + Sink<Message, Error = Error> + Unpin,
{
    type Error = Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.get_mut().poll_sink(cx, S::poll_ready)
    }

    fn start_send(self: Pin<&mut Self>, message: Message) -> Result<(), Error> {
        let this = self.get_mut();
        if this.is_open() {
            Pin::new(&mut this.socket).start_send(message)
        } else {
            Err(closed())
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.get_mut().poll_sink(cx, S::poll_flush)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.get_mut().poll_sink(cx, S::poll_close)
    }
}

tollgate_core::debug_fields! { LimitedSocket<S>: limiter, is_open = .is_open(), dropped, .. }
