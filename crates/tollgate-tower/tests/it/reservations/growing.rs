//! Reservations that grow: in the layer, and inside a handler.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use tollgate::{ErrorKind, Limiter, reservation::Settlement};
use tollgate_tower::{
    HandlerLimiter, Meter, RateLimitLayer, ReservationLayer,
    key::{Global, Header},
    rejection::Problem,
};
use tower::{Layer, ServiceExt, service_fn};

use super::{Answer, Ledger, Served, charged, settled};
use crate::support::{HOURLY, request_with, still};

/// The request and its prompt, and what is reserved of the answer at a time.
const PROMPT: [(&str, u64); 2] = [("requests", 1), ("tokens", 5)];
const SLICE: [(&str, u64); 1] = [("tokens", 20)];

fn growing(limiter: &Limiter) -> ReservationLayer<Header, Problem> {
    RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
        .reserve(|_| PROMPT)
        .growing(SLICE)
        .build()
}

/// A response body of frames, or of a rejection.
struct Frames(UnsyncBoxBody<Bytes, Infallible>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }
}

impl From<String> for Frames {
    fn from(text: String) -> Self {
        Self(UnsyncBoxBody::new(text.map_err(|never| match never {})))
    }
}

/// Writes frames of ten tokens each, until so many are written or no slice is left.
fn frames(meter: Meter, most: usize) -> Frames {
    let frames = stream::unfold(0, move |written| {
        let meter = meter.clone();
        async move {
            if written == most || meter.take(10).await.is_err() {
                return None;
            }
            let frame = Frame::data(Bytes::from_static(b"ten tokens "));
            Some((Ok(frame), written + 1))
        }
    });
    Frames(UnsyncBoxBody::new(StreamBody::new(Box::pin(frames))))
}

/// Sends a request whose answer has up to `most` frames, of which the client reads `read`. Returns how
/// many it has got.
async fn answer(limiter: &Limiter, most: usize, read: usize) -> usize {
    let service = service_fn(move |request: Request<()>| async move {
        let meter = request.extensions().get::<Meter>().unwrap().clone();
        Ok::<_, Infallible>(Response::new(frames(meter, most)))
    });
    let call = growing(limiter).layer(service);
    let response = call.oneshot(request_with("x-api-key", "acme")).await;
    let (parts, mut body) = response.unwrap().into_parts();
    assert_eq!(parts.status, StatusCode::OK);
    let mut got = 0;
    while got < read && body.frame().await.is_some() {
        got += 1;
    }
    drop(body);
    settled().await;
    got
}

#[tokio::test(start_paused = true)]
async fn a_response_that_grows_is_charged_what_was_counted_when_it_ends_or_the_client_hangs_up() {
    for is_far in [false, true] {
        for (most, read, got) in [(3, 9, 3), (7, 9, 7), (9, 1, 1), (9, 4, 4), (9, 0, 0)] {
            let ledger = Ledger::new(is_far);
            let limiter = ledger.limiter();
            assert_eq!(answer(&limiter, most, read).await, got);
            let expected = (1, 5 + 10 * got as u64);
            assert_eq!(charged(&limiter).await, expected, "{got}, far: {is_far}");
            assert!(ledger.commits() <= 2, "{}", ledger.commits());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_ends_where_no_slice_is_left_and_leaves_no_debt() {
    for is_far in [false, true] {
        let limiter = Ledger::new(is_far).limiter();
        // 49 slices of 20 beside the prompt.
        assert_eq!(answer(&limiter, 1_000, 1_000).await, 98);
        assert_eq!(charged(&limiter).await, (1, 985));
        let service =
            service_fn(|_| async { Ok::<_, Infallible>(Response::new(Answer::new(None))) });
        let denied = growing(&limiter).layer(service);
        let denied = denied.oneshot(request_with("x-api-key", "acme")).await;
        assert_eq!(denied.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(charged(&limiter).await, (1, 985));
    }
}

#[tokio::test(start_paused = true)]
async fn a_meter_that_grows_counts_no_more_than_is_reserved() {
    for (is_far, counted) in [(false, 30), (true, 20)] {
        let limiter = Ledger::new(is_far).limiter();
        let service = service_fn(move |request: Request<()>| async move {
            let meter = request.extensions().get::<Meter>().unwrap().clone();
            // One request is one request, whatever is counted.
            meter.counter("requests").unwrap().add(7);
            // In the process the second slice comes at once. Far away it comes too late for units that
            // have left already.
            meter.add(15);
            meter.counter("tokens").unwrap().add(15);
            assert_eq!(meter.counted("tokens"), Some(counted));
            assert_eq!(meter.growth().unwrap().counted(), counted);
            let served: Served<_> = Ok(Response::new(Answer::new(None)));
            served
        });
        let call = growing(&limiter).layer(service);
        let response = call.oneshot(request_with("x-api-key", "acme")).await;
        drop(response.unwrap());
        settled().await;
        assert_eq!(charged(&limiter).await, (1, 5 + counted));
    }
}

#[tokio::test]
async fn a_slice_that_fits_no_policy_is_a_wrong_set_up() {
    let limiter = Ledger::new(false).limiter();
    let layer = RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
        .reserve(|_| PROMPT)
        .growing([("words", 20)])
        .build();
    let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Answer::new(None))) });
    let response = layer
        .layer(service)
        .oneshot(request_with("x-api-key", "acme"));
    assert_eq!(
        response.await.unwrap().status(),
        StatusCode::INTERNAL_SERVER_ERROR
    );
    assert_eq!(charged(&limiter).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_grows_its_reservation_and_finishes_it() {
    for is_far in [false, true] {
        let outer = Limiter::new(still(), HOURLY);
        let layer = RateLimitLayer::builder(outer, Global).build();
        let limiter: HandlerLimiter<String> = layer.handler_limiter(Ledger::new(is_far).limiter());
        let reserve = async || {
            let (mut request, ()) = Request::new(()).into_parts();
            let reserved = limiter.reserve(&mut request, "acme", PROMPT).growing(SLICE);
            let (_, reservation) = reserved.await.unwrap();
            // The meter in the extensions is the same one.
            let meter = request.extensions.get::<Meter>().unwrap();
            meter.take(25).await.unwrap();
            assert_eq!(reservation.meter().get(), Some(25));
            reservation
        };
        let finished = reserve().await.finish().await;
        assert_eq!(finished.unwrap(), Settlement::Settled);
        assert_eq!(charged(limiter.limiter()).await, (1, 30));
        // The cost of such a reservation is what was counted, and no other.
        let refused = reserve().await.commit(PROMPT).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        settled().await;
        assert_eq!(charged(limiter.limiter()).await, (2, 60));
    }
}
