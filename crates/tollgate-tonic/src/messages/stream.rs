//! Charges the decoded messages of one stream inside a handler.
//! Streams that a layer charges while they are still bytes are in `body.rs`.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use pin_project_lite::pin_project;
use tollgate::{Cost, Key, Limiter, store::CheckFuture};
use tonic::Status;

use crate::status::GrpcStatus;

/// Charges `key` for each message of a stream, and ends the stream when a message is denied.
///
/// Use it in a handler: wrap the request stream to limit what the client sends, or the response
/// stream to limit what the server sends. A message is charged before it is passed on. A message
/// that is denied is dropped, the stream yields the status of the denial, and then it ends.
///
/// In a [leaky bucket](tollgate::Algorithm::LeakyBucket) a message waits for its turn before it is
/// passed on. Errors of the inner stream are passed on and cost nothing.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::messages::charge_stream;
/// use tokio_stream::StreamExt;
/// use tonic::{Code, Status};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("messages", Quota::per_minute(2)));
///
/// // In a handler, this is the request stream or the response stream.
/// let messages = tokio_stream::iter(["one", "two", "three"].map(Ok::<_, Status>));
/// let mut messages = charge_stream(messages, limiter, "acme");
///
/// assert_eq!(messages.next().await.unwrap().unwrap(), "one");
/// assert_eq!(messages.next().await.unwrap().unwrap(), "two");
/// assert_eq!(messages.next().await.unwrap().unwrap_err().code(), Code::ResourceExhausted);
/// assert!(messages.next().await.is_none());
/// # }
/// ```
pub fn charge_stream<S, T>(
    messages: S,
    limiter: Limiter,
    key: impl Into<Key>,
) -> ChargedStream<S, T>
where
    S: Stream<Item = Result<T, Status>>,
{
    ChargedStream {
        messages: Some(messages),
        limit: StreamLimit {
            limiter,
            key: key.into(),
            cost: None,
            responder: GrpcStatus::new(),
        },
        checked: None,
    }
}

pin_project! {
    /// Yields the messages of a stream until a message is denied.
    ///
    /// The function [`charge_stream`] makes it.
    // Written by hand: has a name that a handler can put into its types, and allocates nothing per
    // message.
    #[must_use = "streams do nothing unless polled"]
    pub struct ChargedStream<S, T> {
        // Dropped at a denial, so that what the stream holds is released at once.
        #[pin]
        messages: Option<S>,
        limit: StreamLimit<T>,
        // The message at hand, while the store is asked.
        checked: Option<(CheckFuture, T)>,
    }
}

type CostOf<T> = Box<dyn Fn(&T) -> Cost + Send + Sync>;

struct StreamLimit<T> {
    limiter: Limiter,
    key: Key,
    cost: Option<CostOf<T>>,
    responder: GrpcStatus,
}

impl<S, T> ChargedStream<S, T> {
    /// Sets the cost of a message. The default is one unit.
    pub fn cost(mut self, cost: impl Fn(&T) -> Cost + Send + Sync + 'static) -> Self {
        self.limit.cost = Some(Box::new(cost));
        self
    }

    /// Sets the options of the status that ends the stream.
    pub fn respond_with(mut self, responder: GrpcStatus) -> Self {
        self.limit.responder = responder;
        self
    }
}

impl<T> StreamLimit<T> {
    fn check(&self, message: &T) -> CheckFuture {
        let cost = self.cost.as_ref().map_or(Cost::ONE, |cost| cost(message));
        self.limiter
            .check_key(&self.key)
            .cost(cost)
            .queued()
            .into_future()
    }
}

impl<S, T> Stream for ChargedStream<S, T>
where
    S: Stream<Item = Result<T, Status>>,
{
    type Item = Result<T, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        if this.checked.is_none() {
            let Some(messages) = this.messages.as_mut().as_pin_mut() else {
                return Poll::Ready(None);
            };
            match ready!(messages.poll_next(cx)) {
                Some(Ok(message)) => *this.checked = Some((this.limit.check(&message), message)),
                other => return Poll::Ready(other),
            }
        }
        let Some((check, _)) = this.checked else {
            return Poll::Ready(None);
        };
        let result = ready!(Pin::new(check).poll(cx));
        let message = this.checked.take().map(|(_, message)| message);
        if let Err(status) = this.limit.responder.check_result(result) {
            this.messages.set(None);
            return Poll::Ready(Some(Err(status)));
        }
        Poll::Ready(message.map(Ok))
    }
}

tollgate::debug_fields! { ChargedStream<S, T>: limiter = .limit.limiter, .. }
