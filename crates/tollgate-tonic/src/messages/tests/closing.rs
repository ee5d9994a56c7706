//! Tests that a body that ended holds nothing any more.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use tollgate_test_support::SilentStore;
use tonic::Code;

use super::{ScriptedBody, Step, frozen_store, limiter, message, meter};
use crate::{
    messages::metered_body::{BodyEnd, Meter, MeteredBody, NextFrame},
    status::GrpcStatus,
};

/// Describes the next frame in one word or two.
fn word(next: Poll<NextFrame<&'static str>>) -> String {
    match next {
        Poll::Pending => "pending".to_owned(),
        Poll::Ready(None) => "end".to_owned(),
        Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
            Ok(data) => format!("{} bytes", data.len()),
            Err(_) => "trailers".to_owned(),
        },
        Poll::Ready(Some(Err(BodyEnd::Denied(status)))) => {
            assert_eq!(status.code(), Code::ResourceExhausted);
            "denied".to_owned()
        }
        Poll::Ready(Some(Err(BodyEnd::Failed(error)))) => error.to_owned(),
    }
}

/// Polls a body to its end, with and without a meter that has one unit. The body it wraps must be dropped with the last
/// frame.
async fn assert_frames(steps: impl Fn() -> Vec<Step>, metered: &[&str], plain: &[&str]) {
    let one_unit = meter(limiter(frozen_store(), 1).await);
    for (meter, expected) in [(one_unit, metered), (None, plain)] {
        let (inner, is_held) = ScriptedBody::new(steps());
        let mut body = pin!(MeteredBody::new(inner, meter));
        let mut next = || word(body.as_mut().poll_next(&mut Context::from_waker(Waker::noop())));
        for (at, frame) in expected.iter().enumerate() {
            assert_eq!(next(), *frame, "{expected:?}");
            let is_last = at + 1 == expected.len();
            assert_eq!(is_held.upgrade().is_none(), is_last, "{expected:?}, at {frame}");
        }
        assert_eq!(next(), "end", "{expected:?}");
        assert!(body.is_end_stream());
    }
}

#[tokio::test]
async fn a_body_releases_what_it_holds_with_its_last_frame() {
    let all = || vec![Step::Data(message(1)), Step::Data(message(2)), Step::Trailers];
    assert_frames(all, &["6 bytes", "7 bytes", "trailers", "end"], &["6 bytes", "7 bytes", "trailers", "end"]).await;
    let denied = || vec![Step::Data([message(1), message(2), message(3)].concat()), Step::Trailers];
    assert_frames(denied, &["13 bytes", "denied"], &["21 bytes", "trailers", "end"]).await;
    let failed = || vec![Step::Data(message(1)), Step::Error, Step::Trailers];
    assert_frames(failed, &["6 bytes", "the handler failed"], &["6 bytes", "the handler failed"]).await;
    let pending = || vec![Step::Pending, Step::Data(message(1))];
    assert_frames(pending, &["pending", "6 bytes", "end"], &["pending", "6 bytes", "end"]).await;
    assert_frames(|| vec![Step::Data(Vec::new())], &["end"], &["0 bytes", "end"]).await;
}

#[tokio::test]
async fn a_body_that_ended_releases_its_meter() {
    let responder = Arc::new(GrpcStatus::new());
    let meter = Meter::new(limiter(frozen_store(), 1).await, Arc::clone(&responder));
    let (inner, _) = ScriptedBody::new([Step::Data(message(1))]);
    let mut body = pin!(MeteredBody::new(inner, Some(meter)));
    let mut next = || word(body.as_mut().poll_next(&mut Context::from_waker(Waker::noop())));
    assert_eq!((next().as_str(), Arc::strong_count(&responder)), ("6 bytes", 2));
    assert_eq!((next().as_str(), Arc::strong_count(&responder)), ("end", 1));
}

#[tokio::test]
async fn a_body_is_not_at_its_end_before_its_denial_was_read() {
    let (inner, _) = ScriptedBody::new([Step::Data([message(1), message(2), message(3)].concat())]);
    let mut body = pin!(MeteredBody::new(inner, meter(limiter(frozen_store(), 1).await)));
    let mut next = || {
        let frame = word(body.as_mut().poll_next(&mut Context::from_waker(Waker::noop())));
        (frame, body.is_end_stream())
    };
    assert_eq!(next(), ("13 bytes".to_owned(), false));
    assert_eq!(next(), ("denied".to_owned(), true));
}

#[tokio::test]
async fn a_body_is_not_at_its_end_while_bytes_are_not_paid_for() {
    let (inner, _) = ScriptedBody::new([Step::Data([message(1), message(2)].concat())]);
    let mut body = pin!(MeteredBody::new(inner, meter(limiter(SilentStore::new(true), 1).await)));
    let mut poll = || word(body.as_mut().poll_next(&mut Context::from_waker(Waker::noop())));
    assert_eq!(poll(), "6 bytes");
    assert_eq!(poll(), "pending");
    assert!(!body.is_end_stream());
}
