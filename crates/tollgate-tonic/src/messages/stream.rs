//! A charge for each message of a stream.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use pin_project_lite::pin_project;
use tollgate::{CheckFuture, Cost, Key, Limiter};
use tonic::Status;

use crate::GrpcStatus;

/// Charges `key` for each message of a stream, and ends the stream with the status of a denial.
///
/// Where the layer charges a call once, when it is opened, this charges what flows: wrap the
/// request's stream to limit what a client sends, the response's to limit what it is sent. A
/// message is charged when it is there, before it is passed on; the one that is denied is dropped.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::charge_messages;
/// use tokio_stream::StreamExt;
/// use tonic::{Code, Status};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("messages", Quota::per_minute(2)));
///
/// // In a handler: the request's stream, or what becomes the response's.
/// let messages = tokio_stream::iter(["one", "two", "three"].map(Ok::<_, Status>));
/// let mut messages = charge_messages(messages, limiter, "acme");
///
/// assert_eq!(messages.next().await.unwrap().unwrap(), "one");
/// assert_eq!(messages.next().await.unwrap().unwrap(), "two");
/// assert_eq!(messages.next().await.unwrap().unwrap_err().code(), Code::ResourceExhausted);
/// assert!(messages.next().await.is_none());
/// # }
/// ```
pub fn charge_messages<S, T>(messages: S, limiter: Limiter, key: impl Into<Key>) -> ChargedMessages<S, T>
where
    S: Stream<Item = Result<T, Status>>,
{
    ChargedMessages {
        messages: Some(messages),
        charge: Charge { limiter, key: key.into(), cost: None, answer: GrpcStatus::new() },
        asked: None,
    }
}

pin_project! {
    /// What [`charge_messages`] makes.
    #[must_use = "streams do nothing unless polled"]
    pub struct ChargedMessages<S, T> {
        // Gone once a message was denied, and what it held with it.
        #[pin]
        messages: Option<S>,
        charge: Charge<T>,
        asked: Option<(CheckFuture, T)>,
    }
}

type CostOf<T> = Box<dyn Fn(&T) -> Cost + Send + Sync>;

struct Charge<T> {
    limiter: Limiter,
    key: Key,
    cost: Option<CostOf<T>>,
    answer: GrpcStatus,
}

impl<S, T> ChargedMessages<S, T> {
    /// What a message costs; one unit by default.
    pub fn cost(mut self, cost: impl Fn(&T) -> Cost + Send + Sync + 'static) -> Self {
        self.charge.cost = Some(Box::new(cost));
        self
    }

    /// The options of the status that ends the stream.
    pub fn respond_with(mut self, answer: GrpcStatus) -> Self {
        self.charge.answer = answer;
        self
    }
}

impl<T> Charge<T> {
    fn check(&self, message: &T) -> CheckFuture {
        let cost = self.cost.as_ref().map_or(Cost::ONE, |cost| cost(message));
        self.limiter.check_cost(&self.key, cost)
    }
}

impl<S, T> Stream for ChargedMessages<S, T>
where
    S: Stream<Item = Result<T, Status>>,
{
    type Item = Result<T, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        if this.asked.is_none() {
            let Some(messages) = this.messages.as_mut().as_pin_mut() else { return Poll::Ready(None) };
            match ready!(messages.poll_next(cx)) {
                Some(Ok(message)) => *this.asked = Some((this.charge.check(&message), message)),
                other => return Poll::Ready(other),
            }
        }
        let Some((check, _)) = this.asked else { return Poll::Ready(None) };
        let answer = ready!(Pin::new(check).poll(cx));
        let message = this.asked.take().map(|(_, message)| message);
        if let Err(status) = this.charge.answer.judge(answer) {
            this.messages.set(None);
            return Poll::Ready(Some(Err(status)));
        }
        Poll::Ready(message.map(Ok))
    }
}

impl<S, T> fmt::Debug for ChargedMessages<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChargedMessages").field("limiter", &self.charge.limiter).finish_non_exhaustive()
    }
}
