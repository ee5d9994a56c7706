//! Tests of the order in which a response ends: the data of the handler, its end, and a denial.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame};
use tonic::{Code, Status};

use super::{ScriptedBody, Step, frozen_store, limiter, message, meter};
use crate::{
    messages::{
        denial_signal::{DenialReceiver, DenialSender, denial_channel},
        message_body::BoxError,
        metered_body::MeteredBody,
        response_body::ResponseBody,
    },
    protocol::Protocol,
};

/// Describes the next frame in one word or two.
fn word(next: Poll<Option<Result<Frame<Bytes>, BoxError>>>) -> String {
    let frame = match next {
        Poll::Pending => return "pending".to_owned(),
        Poll::Ready(None) => return "end".to_owned(),
        Poll::Ready(Some(Err(error))) => return error.to_string(),
        Poll::Ready(Some(Ok(frame))) => frame,
    };
    match frame.into_data() {
        Ok(data) if data[0] == 0 => format!("{} bytes", data.len()),
        Ok(data) => {
            assert_eq!(data[0], 0x80);
            assert_eq!(u32::from_be_bytes([data[1], data[2], data[3], data[4]]) as usize, data.len() - 5);
            let text = String::from_utf8(data[5..].to_vec()).unwrap();
            assert!(text.split_terminator("\r\n").all(|line| line.contains(':')), "{text}");
            assert!(text.ends_with("\r\n") && text.contains("grpc-status:8\r\n"), "{text}");
            "denied in data".to_owned()
        }
        Err(frame) => match frame.into_trailers().unwrap()["grpc-status"].as_bytes() {
            b"0" => "trailers".to_owned(),
            status => {
                assert_eq!(status, b"8");
                "denied".to_owned()
            }
        },
    }
}

/// Returns a response of these steps, and a reference that is dead when its body is dropped.
fn response(
    steps: impl IntoIterator<Item = Step>,
    denial: DenialReceiver,
    protocol: Protocol,
) -> (ResponseBody<ScriptedBody>, Weak<()>) {
    let (body, is_held) = ScriptedBody::new(steps);
    (ResponseBody::new(MeteredBody::new(body, None), denial, protocol), is_held)
}

fn poll(body: Pin<&mut ResponseBody<ScriptedBody>>) -> String {
    word(body.poll_frame(&mut Context::from_waker(Waker::noop())))
}

fn deny(mut sender: DenialSender) {
    sender.send(&Status::new(Code::ResourceExhausted, "rate limit exceeded"));
}

#[test]
fn a_denial_goes_out_after_the_data_and_replaces_every_other_end() {
    let data = || Step::Data(message(1));
    for (steps, expected) in [
        (vec![data(), data(), Step::Trailers], &["6 bytes", "6 bytes", "denied"][..]),
        (vec![data(), Step::Error], &["6 bytes", "denied"]),
        (vec![data(), Step::Pending, data()], &["6 bytes", "denied"]),
        (vec![data()], &["6 bytes", "denied"]),
        (vec![Step::Trailers], &["denied"]),
        (vec![Step::Error], &["denied"]),
        (vec![], &["denied"]),
    ] {
        let (sender, receiver) = denial_channel();
        let (body, is_held) = response(steps, receiver, Protocol::Grpc);
        let mut body = pin!(body);
        deny(sender);
        for (at, frame) in expected.iter().enumerate() {
            assert!(is_held.upgrade().is_some());
            assert!(!body.is_end_stream(), "{expected:?}, before frame {at}");
            assert_eq!(poll(body.as_mut()), *frame, "{expected:?}");
        }
        // The handler's stream is dropped with the denial, not later with the whole response.
        assert!(is_held.upgrade().is_none(), "{expected:?}");
        assert!(body.is_end_stream(), "{expected:?}");
        assert_eq!(poll(body.as_mut()), "end");
    }
}

#[test]
fn in_grpc_web_a_denial_goes_out_before_data_that_may_be_the_trailers_of_the_handler() {
    for protocol in [Protocol::GrpcWeb, Protocol::GrpcWebText] {
        let (sender, receiver) = denial_channel();
        let (body, is_held) = response([Step::Data(message(1)), Step::Data(message(2))], receiver, protocol);
        let mut body = pin!(body);
        assert_eq!(poll(body.as_mut()), "6 bytes");
        deny(sender);
        assert_eq!(poll(body.as_mut()), "denied in data");
        assert!(is_held.upgrade().is_none());
        assert_eq!(poll(body.as_mut()), "end");
    }
}

#[test]
fn without_a_denial_a_response_passes_as_the_handler_made_it() {
    for protocol in [Protocol::Grpc, Protocol::GrpcWeb] {
        for (steps, expected) in [
            (vec![Step::Data(message(1)), Step::Trailers], &["6 bytes", "trailers", "end"][..]),
            (vec![Step::Pending, Step::Trailers], &["pending", "trailers", "end"]),
            (vec![Step::Data(message(1)), Step::Error], &["6 bytes", "the handler failed"]),
        ] {
            let (sender, receiver) = denial_channel();
            let (body, _) = response(steps, receiver, protocol);
            let mut body = pin!(body);
            for frame in expected {
                assert_eq!(poll(body.as_mut()), *frame, "{expected:?}");
            }
            drop(sender);
            assert_eq!(poll(body.as_mut()), "end");
        }
    }
}

#[test]
fn a_response_is_at_its_end_only_when_no_denial_can_arrive() {
    let (sender, receiver) = denial_channel();
    let (body, _) = response([], receiver, Protocol::Grpc);
    let mut body = pin!(body);
    assert!(!body.is_end_stream());
    drop(sender);
    assert_eq!(poll(body.as_mut()), "end");
    assert!(body.is_end_stream());

    let (body, _) = response([], DenialReceiver::default(), Protocol::Grpc);
    assert!(body.is_end_stream());
    let (body, _) = response([Step::Trailers], DenialReceiver::default(), Protocol::Grpc);
    assert!(!body.is_end_stream());
}

#[tokio::test]
async fn a_response_that_was_denied_is_not_denied_again() {
    for protocol in [Protocol::Grpc, Protocol::GrpcWeb] {
        let (sender, receiver) = denial_channel();
        let (inner, _) = ScriptedBody::new([Step::Data([message(1), message(2), message(3)].concat())]);
        let metered = MeteredBody::new(inner, meter(limiter(frozen_store(), 1).await));
        let mut body = pin!(ResponseBody::new(metered, receiver, protocol));
        assert_eq!(poll(body.as_mut()), "13 bytes");
        assert!(poll(body.as_mut()).starts_with("denied"));
        // A received message is denied too, after the response has ended.
        deny(sender);
        assert!(body.is_end_stream());
        assert_eq!(poll(body.as_mut()), "end");
    }
}

#[test]
fn a_denial_wakes_a_response_that_waits_for_the_handler() {
    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    for protocol in [Protocol::Grpc, Protocol::GrpcWeb] {
        let (sender, receiver) = denial_channel();
        let (body, _) = response([Step::Pending, Step::Pending], receiver, protocol);
        let (mut body, flag) = (pin!(body), Arc::new(Flag::default()));
        let waker = Waker::from(Arc::clone(&flag));
        assert_eq!(word(body.as_mut().poll_frame(&mut Context::from_waker(&waker))), "pending");
        assert!(!flag.0.load(Ordering::Relaxed));
        deny(sender);
        assert!(flag.0.load(Ordering::Relaxed), "{protocol:?}");
    }
}
