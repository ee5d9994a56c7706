//! Streams and bodies that end, wait or go on where their reservation is denied.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::{convert::Infallible, pin::pin, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Request, Response, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use tollgate::{
    Cost, Costs, Decision, Limiter, MemoryStore, Policy, Quota, Store,
    reservation::{GrowthError, ReservationId, Settlement},
    store::{Check, CheckFuture, Clock, StoreFuture},
};
use tollgate_metered::{MeteredBody, MeteredStream, meter_response};
use tollgate_tower::{HandlerLimiter, MeteredReservation, RateLimitLayer, key::Global};

/// Reserves nothing, and so many tokens at a time.
async fn reserve(limiter: &Limiter, slice: impl Into<Costs>) -> MeteredReservation {
    let layer = RateLimitLayer::builder(limiter.clone(), Global).build();
    let handler: HandlerLimiter<String> = layer.handler_limiter(limiter.clone());
    let (mut request, ()) = Request::new(()).into_parts();
    let reserved = handler
        .reserve(&mut request, "acme", Cost::ZERO)
        .growing(slice);
    reserved.await.unwrap().1
}

/// A limit of the process, on tokio's clock.
fn limiter(policies: impl tollgate::limiter::IntoPolicySet) -> Limiter {
    Limiter::new(
        MemoryStore::builder().clock(Clock::tokio()).build(),
        policies,
    )
}

/// A store in the process that answers after a delay, as one behind a network does.
#[derive(Clone, Debug)]
struct Far {
    store: MemoryStore,
    delay: Duration,
}

impl Far {
    fn answer<T: Send + Unpin + 'static>(&self, result: StoreFuture<T>) -> StoreFuture<T> {
        let delay = self.delay;
        if delay.is_zero() {
            return result;
        }
        StoreFuture::pending(async move {
            tokio::time::sleep(delay).await;
            result.await
        })
    }
}

impl Store for Far {
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
        self.answer(self.store.commit(check, id))
    }

    fn is_in_process(&self) -> bool {
        self.delay.is_zero()
    }
}

/// Returns the units that a policy has left for the key of these tests.
async fn remaining(limiter: &Limiter, policy: &str) -> u64 {
    let decision = limiter.peek("acme").await.unwrap();
    decision.state(policy).unwrap().remaining()
}

const PLAN: Policy = Policy::fixed_window("plan", Quota::per_day(10));

const WORDS: [&str; 6] = ["a", "bb", "ccc", "", "dddd", "eeeee"];

/// Returns the units of a word.
fn length(word: &&'static str) -> u64 {
    word.len() as u64
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_an_item_of_the_application_where_no_slice_is_left() {
    const TOKENS: Policy = Policy::fixed_window("tokens", Quota::per_day(1_000));
    for delay in [Duration::ZERO, Duration::from_millis(5)] {
        let store = MemoryStore::builder().clock(Clock::tokio()).build();
        let limiter = Limiter::new(Far { store, delay }, TOKENS);
        let reservation = reserve(&limiter, 400).await;
        let chunks = stream::iter([300_u64, 0, 450, 0, 49, 1, 0, 2]);
        let items =
            MeteredStream::new(chunks, reservation.meter(), |units| *units).end_with(|error| {
                assert!(matches!(error, GrowthError::Denied(_)), "{error}");
                assert!(error.retry_after().is_some());
                Some(u64::MAX)
            });
        // 800 of 1000 are reserved. The item of 2 needs a third slice.
        let passed: Vec<u64> = items.collect().await;
        assert_eq!(passed, [300, 0, 450, 0, 49, 1, 0, u64::MAX], "{delay:?}");
        drop(reservation);
        // What is settled in the background ends before the clock moves.
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(remaining(&limiter, "tokens").await, 200, "{delay:?}");
    }
}

#[tokio::test]
async fn a_stream_without_a_last_item_ends_and_stays_ended() {
    let limiter = limiter(PLAN);
    let reservation = reserve(&limiter, 2).await;
    // What follows the item that is denied does not pass, whatever it costs.
    let words = stream::iter(WORDS.into_iter().chain(["", "f"]));
    let items = MeteredStream::new(words, reservation.meter(), length);
    let mut items = pin!(items);
    let mut passed = Vec::new();
    while let Some(word) = items.next().await {
        passed.push(word);
    }
    assert_eq!(passed, ["a", "bb", "ccc", "", "dddd"]);
    assert_eq!(items.next().await, None);
    drop(reservation);
    assert_eq!(remaining(&limiter, "plan").await, 0);
}

#[tokio::test]
async fn a_stream_that_is_dropped_pays_for_what_has_passed() {
    let limiter = limiter(PLAN);
    let reservation = reserve(&limiter, 5).await;
    let items = MeteredStream::new(stream::iter(WORDS), reservation.meter(), length);
    let passed: Vec<_> = items.take(3).collect().await;
    assert_eq!(passed, ["a", "bb", "ccc"]);
    drop(reservation);
    assert_eq!(remaining(&limiter, "plan").await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_stream_waits_for_the_next_slice_while_it_comes_in_time() {
    const MINUTE: Policy = Policy::window_from_first_hit("minute", Quota::per_minute(4));
    for (wait, expected) in [(61, "aaaaaaaaaa"), (59, "aaaa!"), (0, "aaaa!")] {
        let limiter = limiter(MINUTE);
        let reservation = reserve(&limiter, 2).await;
        let start = tokio::time::Instant::now();
        let items = MeteredStream::new(stream::iter(["a"; 10]), reservation.meter(), |_| 1)
            .wait(Duration::from_secs(wait))
            .end_with(|_| Some("!"));
        let passed: Vec<_> = items.collect().await;
        assert_eq!(passed.concat(), expected, "{wait}");
        // The minute turns twice, or the stream ends at once.
        let minutes = if wait > 60 { 2 } else { 0 };
        assert_eq!(start.elapsed().as_secs() / 60, minutes, "{wait}");
    }
}

#[tokio::test]
async fn a_stream_goes_on_at_the_cost_of_another_reservation() {
    let plan = limiter(PLAN);
    let credits = limiter(Policy::fixed_window("credits", Quota::per_day(6)));
    let (first, second) = (reserve(&plan, 5).await, reserve(&credits, 3).await);
    let items = MeteredStream::new(stream::iter(["a"; 99]), first.meter(), |_| 1)
        .or(second.meter())
        .end_with(|_| Some("!"));
    let passed: Vec<_> = items.collect().await;
    assert_eq!(passed.concat(), "a".repeat(16) + "!");
    drop((first, second));
    assert_eq!(remaining(&plan, "plan").await, 0);
    assert_eq!(remaining(&credits, "credits").await, 0);

    // Slices that cascade do the same with one reservation.
    let both = limiter([PLAN, Policy::fixed_window("credits", Quota::per_day(6))]);
    let reservation = reserve_cascading(&both).await;
    let items = MeteredStream::new(stream::iter(["a"; 99]), reservation.meter(), |_| 1);
    assert_eq!(items.collect::<Vec<_>>().await.len(), 16);
}

async fn reserve_cascading(limiter: &Limiter) -> MeteredReservation {
    let layer = RateLimitLayer::builder(limiter.clone(), Global).build();
    let handler: HandlerLimiter<String> = layer.handler_limiter(limiter.clone());
    let (mut request, ()) = Request::new(()).into_parts();
    let reserved = handler.reserve(&mut request, "acme", Costs::cascading(0_u64));
    reserved.growing(Costs::cascading(4_u64)).await.unwrap().1
}

#[tokio::test]
async fn a_reservation_that_is_settled_ends_its_stream() {
    let limiter = limiter(PLAN);
    let reservation = reserve(&limiter, 5).await;
    let items = MeteredStream::new(stream::iter(WORDS), reservation.meter(), length)
        .end_with(|error| matches!(error, GrowthError::Settled).then_some("settled"));
    drop(reservation);
    assert_eq!(items.collect::<Vec<_>>().await, ["settled"]);
    // What costs nothing needs no reservation.
    let free = MeteredStream::new(
        stream::iter(["", ""]),
        reserve(&limiter, 5).await.meter(),
        length,
    );
    assert_eq!(free.collect::<Vec<_>>().await, ["", ""]);
}

/// Returns the frames of a body: its data as text, and its trailers.
async fn frames(
    body: impl Body<Data = Bytes, Error = Infallible>,
) -> (Vec<String>, Option<HeaderMap>) {
    let (mut body, mut data, mut trailers) = (pin!(body), Vec::new(), None);
    while let Some(frame) = body.as_mut().frame().await {
        match frame.unwrap().into_data() {
            Ok(bytes) => data.push(String::from_utf8(bytes.to_vec()).unwrap()),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    assert!(body.is_end_stream() || body.frame().await.is_none());
    (data, trailers)
}

/// Returns a body whose text comes in pieces of so many bytes, with trailers.
fn pieces(text: &str, length: usize) -> impl Body<Data = Bytes, Error = Infallible> + use<> {
    let pieces = text.as_bytes().chunks(length).map(Bytes::copy_from_slice);
    let trailers = HeaderMap::from_iter([(header::ETAG, "x".parse().unwrap())]);
    let frames: Vec<_> = pieces
        .map(Frame::data)
        .chain([Frame::trailers(trailers)])
        .collect();
    StreamBody::new(stream::iter(frames.into_iter().map(Ok)))
}

const EVENTS: &str = "data: one\n\n: ping\n\ndata: two\ndata: lines\n\ndata: three\n\n";

/// Returns 0 for a comment, and 1 for any other event.
fn is_event(event: &[u8]) -> u64 {
    u64::from(!event.starts_with(b":"))
}

#[tokio::test]
async fn events_of_a_body_are_never_cut_in_whatever_pieces_they_come() {
    for length in 1..=EVENTS.len() {
        for quota in 1..=4_u64 {
            let limiter = limiter(Policy::fixed_window("events", Quota::per_day(quota)));
            let reservation = reserve(&limiter, 1).await;
            let body = pieces(EVENTS, length);
            let body = MeteredBody::new(body, reservation.meter(), is_event).events();
            let body = body.end_with(|_| Some(Bytes::from("data: end\n\n")));
            let (data, trailers) = frames(body).await;
            let all: Vec<_> = EVENTS.split_inclusive("\n\n").collect();
            let expected = match quota {
                1 => vec![all[0], all[1], "data: end\n\n"],
                2 => vec![all[0], all[1], all[2], "data: end\n\n"],
                _ => all,
            };
            assert_eq!(data, expected, "{length} {quota}");
            // The trailers belong to a body that is whole.
            assert_eq!(trailers.is_some(), quota >= 3, "{length} {quota}");
        }
    }
}

#[tokio::test]
async fn frames_of_a_body_are_items_and_its_rest_is_one() {
    let limiter = limiter(PLAN);
    let reservation = reserve(&limiter, 5).await;
    let bytes = |data: &[u8]| data.len() as u64;
    let body = MeteredBody::new(pieces("abcdefghijkl", 3), reservation.meter(), bytes);
    assert_eq!(frames(body).await.0, ["abc", "def", "ghi"]);
    // The last event has no end.
    let events = MeteredBody::new(pieces("data: a\n\ndata: b", 2), reservation.meter(), |_| 0);
    assert_eq!(frames(events.events()).await.0, ["data: a\n\n", "data: b"]);
}

#[tokio::test]
async fn a_rest_that_is_denied_takes_the_trailers_with_it() {
    let limiter = limiter(Policy::fixed_window("events", Quota::per_day(1)));
    let reservation = reserve(&limiter, 1).await;
    let body = pieces("data: a\n\ndata: b", 4);
    let body = MeteredBody::new(body, reservation.meter(), is_event).events();
    let body = body.end_with(|_| Some(Bytes::from("data: end\n\n")));
    let (data, trailers) = frames(body).await;
    assert_eq!((data.len(), data[1].as_str()), (2, "data: end\n\n"));
    assert!(trailers.is_none());
}

#[tokio::test]
async fn a_body_that_fails_passes_its_error_and_no_half_event() {
    let limiter = limiter(PLAN);
    let reservation = reserve(&limiter, 5).await;
    let broken = stream::iter([
        Ok(Frame::data(Bytes::from_static(b"data: a\n\ndata: b"))),
        Err("broken"),
        Ok(Frame::data(Bytes::from_static(b"\n\n"))),
    ]);
    let body = MeteredBody::new(StreamBody::new(broken), reservation.meter(), is_event).events();
    let mut body = pin!(body);
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "data: a\n\n");
    assert_eq!(body.frame().await.unwrap().unwrap_err(), "broken");
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn a_metered_response_names_no_length() {
    let limiter = limiter(PLAN);
    let reservation = reserve(&limiter, 5).await;
    let response = Response::builder()
        .header(header::CONTENT_LENGTH, 3)
        .header(header::CONTENT_TYPE, "text/plain")
        .body(pieces("abc", 3));
    let response = meter_response(response.unwrap(), reservation.meter(), |_| 1);
    assert!(!response.headers().contains_key(header::CONTENT_LENGTH));
    assert!(response.headers().contains_key(header::CONTENT_TYPE));
    assert_eq!(response.body().size_hint().exact(), None);
    assert_eq!(frames(response.into_body()).await.0, ["abc"]);
}
