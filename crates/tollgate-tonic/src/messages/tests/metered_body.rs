//! Tests that exactly the messages pass that are paid for.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame};
use proptest::{collection::vec, prelude::*};
use tollgate::{MemoryStore, Policy, Quota, store::Clock};
use tollgate_test_support::SilentStore;
use tollgate_tower::RequestLimiter;
use tonic::Code;

use super::{frozen_store, limiter, limiter_of, message, meter};
use crate::messages::metered_body::{BodyEnd, MeteredBody};

/// Yields these pieces, and counts how often it is polled.
#[derive(Default)]
struct PieceBody {
    pieces: VecDeque<Bytes>,
    polled: Arc<AtomicUsize>,
}

impl Body for PieceBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.polled.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(self.pieces.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_paces_the_messages_of_a_stream() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let limiter = limiter_of(store, Policy::leaky_bucket("messages", Quota::per_second(10).with_burst(2))).await;
    let pieces = (0..5).map(|_| message(3).into()).collect();
    let mut body = pin!(MeteredBody::new(PieceBody { pieces, ..PieceBody::default() }, meter(limiter)));
    let (start, mut times) = (tokio::time::Instant::now(), Vec::new());
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_next(cx)).await {
        assert!(frame.is_ok());
        times.push(start.elapsed().as_millis());
    }
    // The charge for the call includes the first message, and the turn of the second one is at once.
    assert_eq!(times, [0, 0, 100, 200, 300]);
}

/// Returns the pieces that pass, and the code of the denial.
async fn passed(body: PieceBody, limiter: RequestLimiter) -> (Vec<Bytes>, Option<Code>) {
    let mut body = pin!(MeteredBody::new(body, meter(limiter)));
    let mut passed = Vec::new();
    loop {
        match poll_fn(|cx| body.as_mut().poll_next(cx)).await {
            Some(Ok(frame)) => passed.extend(frame.into_data()),
            Some(Err(BodyEnd::Denied(status))) => {
                assert!(poll_fn(|cx| body.as_mut().poll_next(cx)).await.is_none());
                assert!(body.is_end_stream());
                return (passed, Some(status.code()));
            }
            Some(Err(BodyEnd::Failed(never))) => match never {},
            None => return (passed, None),
        }
    }
}

proptest! {
    #[test]
    fn exactly_the_messages_that_are_paid_for_pass(
        lengths in vec(0..200_usize, 0..12),
        cuts in vec(any::<prop::sample::Index>(), 0..30),
        units in 1..15_u64,
    ) {
        let messages: Vec<_> = lengths.iter().map(|length| message(*length)).collect();
        let all = Bytes::from(messages.concat());
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(all.len() + 1)).collect();
        cuts.extend([0, all.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| all.slice(cut[0]..cut[1])).collect();
        // The charge for the call includes the first message.
        let paid = messages.len().min(units as usize + 1);
        let expected = messages[..paid].concat();

        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (passed, denied) = runtime.block_on(async {
            let limiter = limiter(frozen_store(), units).await;
            passed(PieceBody { pieces, ..PieceBody::default() }, limiter).await
        });
        prop_assert_eq!(passed.concat(), expected);
        prop_assert_eq!(denied, (messages.len() > paid).then_some(Code::ResourceExhausted));
        // The pieces are slices of the input, not copies.
        let range = all.as_ptr_range();
        for piece in passed.iter().filter(|piece| !piece.is_empty()) {
            prop_assert!(range.contains(&piece.as_ptr()));
        }
    }
}

#[tokio::test]
async fn messages_that_arrive_in_one_piece_pass_in_one_piece() {
    let limiter = limiter(frozen_store(), 10).await;
    let pieces = [Bytes::from([message(3), message(0), message(4)].concat())].into();
    let (passed, denied) = passed(PieceBody { pieces, ..PieceBody::default() }, limiter).await;
    assert_eq!((passed.len(), denied), (1, None));
}

#[tokio::test]
async fn the_body_is_not_read_while_a_check_is_pending() {
    let limiter = limiter(SilentStore::new(true), 10).await;
    let body = PieceBody {
        pieces: [[message(1), message(2)].concat(), message(3)].map(Bytes::from).into(),
        polled: Arc::default(),
    };
    let polled = Arc::clone(&body.polled);
    let mut body = pin!(MeteredBody::new(body, meter(limiter)));
    let mut poll = || body.as_mut().poll_next(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Some(Ok(first))) = poll() else { panic!("the first message passes") };
    assert_eq!(first.into_data().unwrap().len(), 6);
    for _ in 0..3 {
        assert!(poll().is_pending());
    }
    assert_eq!(polled.load(Ordering::Relaxed), 1);
}
