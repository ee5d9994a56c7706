//! Requests whose cost is settled when their response body ends.

mod growing;
mod handler;
mod layer;

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::{Body, Frame};
use tollgate::{
    Decision, Error, ErrorKind, Limiter, MemoryStore, Policy, Quota, Store,
    reservation::{ReservationId, Settlement},
    store::{Check, CheckFuture, StoreFuture},
};
use tollgate_tower::{Counter, Meter};

use crate::support::{remaining, still};

pub(crate) const REQUESTS: Policy = Policy::fixed_window("requests", Quota::per_day(10));
pub(crate) const TOKENS: Policy = Policy::fixed_window("tokens", Quota::per_day(1_000));
pub(crate) const ESTIMATE: [(&str, u64); 2] = [("requests", 1), ("tokens", 100)];

/// Counts the commits of a store in the process. Far away, it answers after 5 ms.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    store: MemoryStore,
    is_far: bool,
    commits: Arc<AtomicUsize>,
    /// The number of commits that fail before one succeeds.
    failing: Arc<AtomicUsize>,
}

impl Ledger {
    pub(crate) fn new(is_far: bool) -> Self {
        Self {
            store: still(),
            is_far,
            commits: Arc::default(),
            failing: Arc::default(),
        }
    }

    /// Lets the next commits fail.
    pub(crate) fn failing(self, failing: usize) -> Self {
        self.failing.store(failing, Ordering::Relaxed);
        self
    }

    pub(crate) fn limiter(&self) -> Limiter {
        // A machine under load must not look like an outage.
        Limiter::builder(self.clone())
            .policies([REQUESTS, TOKENS])
            .deadline(Duration::from_secs(30))
            .build()
    }

    /// Returns the commits that reached the store.
    pub(crate) fn commits(&self) -> usize {
        self.commits.load(Ordering::Relaxed)
    }

    fn answer<T: Send + Unpin + 'static>(&self, result: StoreFuture<T>) -> StoreFuture<T> {
        if !self.is_far {
            return result;
        }
        StoreFuture::pending(async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            result.await
        })
    }
}

impl Store for Ledger {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.answer(self.store.check(check))
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.answer(self.store.refund(check, decision))
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.answer(self.store.reset(check))
    }

    fn reserve(&self, check: Check<'_>, id: &ReservationId, time_to_live: Duration) -> CheckFuture {
        self.answer(self.store.reserve(check, id, time_to_live))
    }

    fn commit(&self, check: Check<'_>, id: &ReservationId) -> StoreFuture<Settlement> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        let take = |left: usize| left.checked_sub(1);
        if self
            .failing
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
        {
            return StoreFuture::ready(Err(Error::new(ErrorKind::Unavailable, "test")));
        }
        self.answer(self.store.commit(check, id))
    }

    fn is_in_process(&self) -> bool {
        !self.is_far
    }
}

/// Waits for all work in the background. The clock of tokio stands still, so the pause ends when
/// nothing else runs.
pub(crate) async fn settled() {
    tokio::time::sleep(Duration::from_secs(10)).await;
}

/// Returns the requests and the tokens that are charged to a key.
pub(crate) async fn charged(limiter: &Limiter) -> (u64, u64) {
    (
        10 - remaining(limiter, "acme", "requests").await,
        1_000 - remaining(limiter, "acme", "tokens").await,
    )
}

/// Waits until this is charged, in real time.
pub(crate) async fn until_charged(limiter: &Limiter, expected: (u64, u64)) {
    let wait = async {
        while charged(limiter).await != expected {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait)
        .await
        .expect("the reservation is settled");
}

/// A response body of three frames with 10 tokens each, and trailers.
pub(crate) struct Answer {
    tokens: Option<Counter>,
    sent: usize,
    fails_after: usize,
}

impl Answer {
    /// Counts tokens with the meter. `None` stands for a handler that forgets its meter.
    pub(crate) fn new(meter: Option<&Meter>) -> Self {
        Self {
            tokens: meter.map(|meter| meter.counter("tokens").unwrap()),
            sent: 0,
            fails_after: usize::MAX,
        }
    }

    pub(crate) fn fails_after(mut self, frames: usize) -> Self {
        self.fails_after = frames;
        self
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let sent = self.sent;
        self.sent += 1;
        Poll::Ready(match sent {
            _ if sent == self.fails_after => Some(Err("broken")),
            0..3 => {
                if let Some(tokens) = &self.tokens {
                    tokens.add(10);
                }
                Some(Ok(Frame::data(Bytes::from_static(b"token "))))
            }
            3 => Some(Ok(Frame::trailers(HeaderMap::from_iter([(
                header::ETAG,
                "x".parse().unwrap(),
            )])))),
            _ => None,
        })
    }
}

impl From<String> for Answer {
    fn from(_: String) -> Self {
        Self {
            tokens: None,
            sent: usize::MAX - 1,
            fails_after: usize::MAX,
        }
    }
}

/// The result of a service that does not fail.
pub(crate) type Served<T> = Result<T, Infallible>;
