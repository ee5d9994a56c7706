//! Bounds the requests of gRPC that have not come whole: their number on a port, and their time.
//!
//! A request that came whole with its head is never counted. What a call may take from then on is
//! not the matter of this file.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::BoxError;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;

/// The longest time in which a request comes whole, as for `/json` over HTTP.
const WHOLE: Duration = Duration::from_secs(10);

/// The requests of a port that have not come whole.
///
/// When there are too many, the oldest one ends: the messages of real clients come with their heads
/// or right after them, so the oldest is that of a client which sends none.
#[derive(Clone)]
pub(super) struct Readings(Arc<Mutex<Waiting>>);

struct Waiting {
    max: usize,
    next: u64,
    /// By age: later requests have higher numbers.
    requests: BTreeMap<u64, Waker>,
}

impl Readings {
    pub(super) fn new(max: usize) -> Self {
        Self(Arc::new(Mutex::new(Waiting {
            max,
            next: 0,
            requests: BTreeMap::new(),
        })))
    }

    /// Bounds the body of a request.
    pub(super) fn body<B>(&self, body: B) -> Reading<B> {
        Reading {
            body,
            port: self.clone(),
            place: None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request, and ends the oldest one if there are too many.
    fn enter(&self, waker: &Waker) -> u64 {
        let mut waiting = self.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.requests.insert(number, waker.clone());
        let oldest = (waiting.requests.len() > waiting.max)
            .then(|| waiting.requests.pop_first())
            .flatten();
        drop(waiting);
        if let Some((_, waker)) = oldest {
            waker.wake();
        }
        number
    }

    /// Returns whether a request still has its place, and notes whom to wake when it has not.
    fn holds(&self, number: u64, waker: &Waker) -> bool {
        let mut waiting = self.lock();
        let held = waiting.requests.get_mut(&number);
        held.map(|held| held.clone_from(waker)).is_some()
    }
}

/// The body of a request that has to come whole in time.
pub(super) struct Reading<B> {
    body: B,
    port: Readings,
    /// Set while the rest of the request is awaited.
    place: Option<Place>,
}

struct Place {
    port: Readings,
    number: u64,
    end: Pin<Box<Sleep>>,
}

impl Place {
    /// Waits for the reason why the request ends before it came whole.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if !self.port.holds(self.number, cx.waker()) {
            return Poll::Ready(Status::unavailable(
                "too many requests of the port have not come whole",
            ));
        }
        self.end.as_mut().poll(cx).map(|()| {
            let limit = WHOLE.as_secs();
            Status::deadline_exceeded(format!("the request did not come whole in {limit} s"))
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.port.lock().requests.remove(&self.number);
    }
}

impl<B: Body<Error: Into<BoxError>> + Unpin> Body for Reading<B> {
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        if let Poll::Ready(frame) = polled {
            if frame.is_none() || this.body.is_end_stream() {
                this.place = None;
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let place = this.place.get_or_insert_with(|| Place {
            port: this.port.clone(),
            number: this.port.enter(cx.waker()),
            end: Box::pin(sleep(WHOLE)),
        });
        place.poll(cx).map(|status| Some(Err(status.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, future::poll_fn};

    use axum::body::Bytes;
    use tokio::time::Instant;
    use tonic::Code;

    use super::*;

    /// A body whose frames come one in a period, and that ends after the last one.
    struct Slow {
        period: Duration,
        left: VecDeque<Bytes>,
        next: Pin<Box<Sleep>>,
    }

    impl Slow {
        fn new(period: Duration, frames: usize) -> Self {
            Self {
                period,
                left: vec![Bytes::from_static(b"a"); frames].into(),
                next: Box::pin(sleep(period)),
            }
        }
    }

    impl Body for Slow {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            std::task::ready!(self.next.as_mut().poll(cx));
            let period = self.period;
            self.next.as_mut().reset(Instant::now() + period);
            Poll::Ready(self.left.pop_front().map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    /// Reads a body to its end. Returns how many frames came, and why it ended early.
    async fn read(mut body: Reading<Slow>) -> (usize, Option<Code>) {
        let mut frames = 0;
        loop {
            match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                None => return (frames, None),
                Some(Ok(_)) => frames += 1,
                Some(Err(error)) => return (frames, Some(Status::from_error(error).code())),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_has_one_time_for_all_of_its_parts() {
        let port = Readings::new(10);
        let second = Duration::from_secs(1);
        let endless = read(port.body(Slow::new(second * 4 / 5, 1_000))).await;
        assert_eq!(endless, (12, Some(Code::DeadlineExceeded)));
        assert_eq!(read(port.body(Slow::new(second, 8))).await, (8, None));
        assert!(port.lock().requests.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_request_ends_when_there_are_too_many() {
        let port = Readings::new(2);
        let slow = |period| tokio::spawn(read(port.body(Slow::new(period, 1))));
        let [oldest, other] = [(); 2].map(|()| slow(WHOLE / 4));
        tokio::task::yield_now().await;
        assert_eq!(slow(WHOLE / 8).await.unwrap(), (1, None));
        assert_eq!(oldest.await.unwrap(), (0, Some(Code::Unavailable)));
        assert_eq!(other.await.unwrap(), (1, None));
        assert!(port.lock().requests.is_empty());
    }
}
