#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use axum::body;
use bytes::Bytes;
use http::{Request, request::Parts};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tokio::{
    runtime::Builder,
    time::{advance, sleep},
};
use tower::{Layer, ServiceExt, service_fn};

use super::{DrainBody, DrainLayer, MAX_LENGTH, MAX_TIME, Places, Rest, discard, read};

/// Names the answer of a body to a poll.
#[derive(Clone, Copy)]
enum Next {
    Data(&'static [u8]),
    Failure,
    Nothing,
    End,
}

const LONG: &[u8] = &[0; 16 * 1024];

/// Describes what happened to a body.
#[derive(Default)]
struct Seen {
    frames: AtomicUsize,
    is_at_end: AtomicBool,
    is_dropped: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Seen {
    fn frames(&self) -> usize {
        self.frames.load(Ordering::SeqCst)
    }

    fn is_at_end(&self) -> bool {
        self.is_at_end.load(Ordering::SeqCst)
    }

    fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::SeqCst)
    }
}

/// A body that yields the same thing until it is switched to another.
#[derive(Clone)]
struct Steered(Arc<Mutex<Next>>, Arc<Seen>);

impl Steered {
    fn new(next: Next) -> Self {
        Self(Arc::new(Mutex::new(next)), Arc::default())
    }

    fn switch(&self, next: Next) {
        *self.0.lock().unwrap() = next;
        if let Some(waker) = self.1.waker.lock().unwrap().take() {
            waker.wake();
        }
    }

    /// Returns a body that says whether it was dropped.
    fn body(&self, lower: u64) -> body::Body {
        body::Body::new(Once {
            steered: self.clone(),
            lower,
        })
    }
}

struct Once {
    steered: Steered,
    lower: u64,
}

impl Body for Once {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Steered(next, seen) = &self.steered;
        match *next.lock().unwrap() {
            Next::Data(data) => {
                seen.frames.fetch_add(1, Ordering::SeqCst);
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(data)))))
            }
            Next::Failure => Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into()))),
            Next::Nothing => {
                *seen.waker.lock().unwrap() = Some(cx.waker().clone());
                Poll::Pending
            }
            Next::End => {
                seen.is_at_end.store(true, Ordering::SeqCst);
                Poll::Ready(None)
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_lower(self.lower);
        hint
    }
}

impl Drop for Once {
    fn drop(&mut self) {
        self.steered.1.is_dropped.store(true, Ordering::SeqCst);
    }
}

fn head() -> Parts {
    Request::new(()).into_parts().0
}

/// Lets all tasks of a runtime with one thread run until they wait.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_dropped_at_the_time_limit() {
    let steered = Steered::new(Next::Nothing);
    let reading = tokio::spawn(Rest::new(steered.body(0), MAX_LENGTH).end(sleep(MAX_TIME)));
    settle().await;
    advance(MAX_TIME - std::time::Duration::from_millis(1)).await;
    settle().await;
    assert!(!steered.1.is_dropped());
    advance(std::time::Duration::from_millis(1)).await;
    reading.await.unwrap();
    assert!(steered.1.is_dropped() && !steered.1.is_at_end());
}

#[tokio::test]
async fn a_body_that_is_there_is_read_at_once() {
    let steered = Steered::new(Next::End);
    discard(&head(), steered.body(0));
    assert!(steered.1.is_at_end() && steered.1.is_dropped());
}

#[tokio::test]
async fn a_body_that_comes_late_is_read_in_a_task() {
    let steered = Steered::new(Next::Nothing);
    discard(&head(), steered.body(1));
    assert!(!steered.1.is_dropped());
    settle().await;
    steered.switch(Next::End);
    settle().await;
    assert!(steered.1.is_at_end() && steered.1.is_dropped());
}

#[tokio::test]
async fn a_body_is_dropped_at_the_longest_length() {
    const FRAMES: usize = (MAX_LENGTH / LONG.len() as u64) as usize + 1;
    let steered = Steered::new(Next::Data(LONG));
    discard(&head(), steered.body(0));
    assert_eq!((steered.1.frames(), steered.1.is_dropped()), (FRAMES, true));

    let late = Steered::new(Next::Nothing);
    discard(&head(), late.body(0));
    settle().await;
    late.switch(Next::Data(LONG));
    settle().await;
    assert_eq!((late.1.frames(), late.1.is_dropped()), (FRAMES, true));
}

#[tokio::test]
async fn a_body_of_empty_frames_is_dropped() {
    let steered = Steered::new(Next::Data(&[]));
    discard(&head(), steered.body(0));
    assert_eq!(
        (steered.1.frames(), steered.1.is_dropped()),
        (16 * 1024 + 1, true)
    );
}

#[tokio::test]
async fn a_body_that_fails_is_dropped() {
    let steered = Steered::new(Next::Failure);
    discard(&head(), steered.body(0));
    assert!(steered.1.is_dropped());

    let late = Steered::new(Next::Nothing);
    discard(&head(), late.body(0));
    settle().await;
    assert!(!late.1.is_dropped());
    late.switch(Next::Failure);
    settle().await;
    assert!(late.1.is_dropped());
}

#[tokio::test]
async fn a_body_that_the_client_holds_back_is_not_polled() {
    let steered = Steered::new(Next::End);
    let request = Request::builder()
        .header("expect", "100-continue")
        .body(())
        .unwrap();
    discard(&request.into_parts().0, steered.body(0));
    assert!(steered.1.is_dropped() && !steered.1.is_at_end());
}

#[tokio::test]
async fn a_body_of_another_type_is_dropped() {
    let steered = Steered::new(Next::End);
    discard(
        &head(),
        Once {
            steered: steered.clone(),
            lower: 0,
        },
    );
    assert!(steered.1.is_dropped() && !steered.1.is_at_end());
}

#[cfg(feature = "tonic")]
#[tokio::test]
async fn a_body_of_tonic_is_read() {
    let steered = Steered::new(Next::End);
    discard(
        &head(),
        tonic::body::Body::new(Once {
            steered: steered.clone(),
            lower: 0,
        }),
    );
    assert!(steered.1.is_at_end() && steered.1.is_dropped());
}

#[tokio::test]
async fn late_bodies_are_dropped_while_all_places_are_taken() {
    let places: &'static Places = Box::leak(Box::new(Places::new(1)));
    let [first, second, third] = [(); 3].map(|()| Steered::new(Next::Nothing));
    read(false, first.body(0), places);
    read(false, second.body(0), places);
    assert!(!first.1.is_dropped() && second.1.is_dropped());
    first.switch(Next::End);
    settle().await;
    assert!(first.1.is_at_end());
    read(false, third.body(0), places);
    assert!(!third.1.is_dropped());
}

#[test]
fn a_body_is_dropped_outside_of_a_runtime() {
    let steered = Steered::new(Next::End);
    discard(&head(), steered.body(0));
    assert!(steered.1.is_dropped() && !steered.1.is_at_end());
}

#[test]
fn a_late_body_is_dropped_in_a_runtime_without_timers() {
    let steered = Steered::new(Next::Nothing);
    Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(async {
            discard(&head(), steered.body(0));
            assert!(!steered.1.is_dropped());
            settle().await;
            assert!(steered.1.is_dropped() && !steered.1.is_at_end());
        });
}

/// Passes a request through the layer to a service that does something with the body.
async fn drain<B, F: Future<Output = ()>>(body: B, service: impl Fn(DrainBody<B>) -> F)
where
    B: Body + Send + Unpin + 'static,
{
    let drain = DrainLayer::new().layer(service_fn(|request: Request<DrainBody<B>>| {
        let used = service(request.into_body());
        async {
            used.await;
            Ok::<_, Infallible>(())
        }
    }));
    let Ok(()) = drain.oneshot(Request::new(body)).await;
}

#[tokio::test]
async fn the_layer_reads_the_rest_of_a_body_of_any_type_that_the_service_drops() {
    let steered = Steered::new(Next::Nothing);
    drain(
        Once {
            steered: steered.clone(),
            lower: 0,
        },
        async |body| drop(body),
    )
    .await;
    assert!(!steered.1.is_dropped());
    settle().await;
    steered.switch(Next::End);
    settle().await;
    assert!(steered.1.is_at_end() && steered.1.is_dropped());
}

#[tokio::test]
async fn the_layer_does_not_touch_a_body_that_the_service_has_read() {
    let steered = Steered::new(Next::Failure);
    drain(steered.body(0), async |body| {
        assert!(body.collect().await.is_err());
        steered.switch(Next::Nothing);
    })
    .await;
    assert!(steered.1.is_dropped());

    let body = Full::new(Bytes::from_static(b"hello"));
    drain(body, async |body| {
        assert_eq!(body.size_hint().exact(), Some(5));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
    })
    .await;
}

#[tokio::test]
async fn the_layer_does_not_ask_for_a_body_that_the_client_holds_back() {
    let steered = Steered::new(Next::End);
    let drain = DrainLayer::new().layer(service_fn(async |request: Request<_>| {
        drop(request);
        Ok::<_, Infallible>(())
    }));
    let request = Request::builder()
        .header("expect", "100-continue")
        .body(steered.body(0))
        .unwrap();
    let Ok(()) = drain.oneshot(request).await;
    assert!(steered.1.is_dropped() && !steered.1.is_at_end());
}
