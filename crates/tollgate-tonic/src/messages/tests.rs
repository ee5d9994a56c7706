//! Tests of the bodies that charge messages: what passes, and how they end.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use proptest::{collection::vec, prelude::*};
use tokio::sync::oneshot;
use tollgate::{Limiter, MemoryStore, Policy, Quota, Store, store::Clock};
use tollgate_test_support::SilentStore;
use tollgate_tower::{RateLimitLayer, RequestLimiter, key::Global};
use tonic::{Code, Status};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{
    body::{BoxError, ChargedBody, Denial, Direction, Meter},
    charge::MessageCharge,
    service::{MessageService, Settings},
};
use crate::{protocol::Protocol, status::GrpcStatus};

/// Returns a store whose clock does not move.
fn frozen_store() -> MemoryStore {
    MemoryStore::builder()
        .clock(Clock::manual(1_800_000_000_000_000))
        .build()
}

/// Returns the limiter of an allowed call, with this policy for messages.
async fn limiter(store: impl Store, policy: Policy) -> RequestLimiter {
    let messages = Limiter::new(store, policy);
    let calls = Limiter::new(
        MemoryStore::new(),
        Policy::token_bucket("calls", Quota::per_day(1)),
    );
    let layer = RateLimitLayer::builder(calls, Global)
        .expose_request_limiter(Some(messages))
        .build();
    let service = layer.layer(service_fn(|request: Request<String>| async move {
        let mut response = Response::new(String::new());
        response.extensions_mut().insert(
            request
                .extensions()
                .get::<RequestLimiter>()
                .unwrap()
                .clone(),
        );
        Ok::<_, Infallible>(response)
    }));
    let response = service.oneshot(Request::new(String::new())).await.unwrap();
    response
        .extensions()
        .get::<RequestLimiter>()
        .unwrap()
        .clone()
}

/// Returns a meter with this many units left for messages.
async fn meter(store: impl Store, units: u64) -> Option<Meter> {
    let limiter = limiter(
        store,
        Policy::token_bucket("messages", Quota::per_day(units)),
    )
    .await;
    Some(Meter::new(limiter, Arc::new(GrpcStatus::new())))
}

/// Encodes a message of this length.
fn message(length: usize) -> Vec<u8> {
    let mut message = vec![0];
    message.extend((length as u32).to_be_bytes());
    message.resize(5 + length, 1);
    message
}

/// A step of a [`ScriptedBody`].
#[derive(Clone)]
enum Step {
    Data(Bytes),
    Trailers,
    Error,
    Pending,
}

fn data(lengths: &[usize]) -> Step {
    Step::Data(lengths.iter().flat_map(|length| message(*length)).collect())
}

/// Takes these steps, one in each poll, and then ends.
struct ScriptedBody {
    steps: VecDeque<Step>,
    /// Is dropped with the body.
    polled: Arc<AtomicUsize>,
}

impl ScriptedBody {
    /// Returns the body, and how often it was polled: dead when the body is dropped.
    fn new(steps: impl IntoIterator<Item = Step>) -> (Self, Weak<AtomicUsize>) {
        let polled = Arc::default();
        let count = Arc::downgrade(&polled);
        (
            Self {
                steps: steps.into_iter().collect(),
                polled,
            },
            count,
        )
    }
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        self.polled.fetch_add(1, Ordering::Relaxed);
        let Some(step) = self.steps.pop_front() else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(match step {
            Step::Data(bytes) => Ok(Frame::data(bytes)),
            Step::Trailers => Ok(Frame::trailers(HeaderMap::from_iter([(
                HeaderName::from_static("grpc-status"),
                HeaderValue::from_static("0"),
            )]))),
            Step::Error => Err("the handler failed"),
            Step::Pending => return Poll::Pending,
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty()
    }
}

/// Describes the next frame in one word or two.
fn word(next: Poll<Option<Result<Frame<Bytes>, BoxError>>>) -> String {
    let frame = match next {
        Poll::Pending => return "pending".to_owned(),
        Poll::Ready(None) => return "end".to_owned(),
        Poll::Ready(Some(Ok(frame))) => frame,
        Poll::Ready(Some(Err(error))) => match error.downcast::<Status>() {
            Ok(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted);
                return "denied as an error".to_owned();
            }
            Err(error) => return error.to_string(),
        },
    };
    match frame.into_data() {
        Ok(data) if data.first().is_none_or(|flags| *flags == 0) => format!("{} bytes", data.len()),
        Ok(data) => {
            assert_eq!(data[0], 0x80);
            assert_eq!(
                u32::from_be_bytes([data[1], data[2], data[3], data[4]]) as usize,
                data.len() - 5
            );
            let text = String::from_utf8(data[5..].to_vec()).unwrap();
            assert!(
                text.split_terminator("\r\n").all(|line| line.contains(':')),
                "{text}"
            );
            assert!(
                text.ends_with("\r\n") && text.contains("grpc-status:8\r\n"),
                "{text}"
            );
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

fn poll<B: Body<Data = Bytes, Error = &'static str>>(body: Pin<&mut ChargedBody<B>>) -> String {
    word(body.poll_frame(&mut Context::from_waker(Waker::noop())))
}

/// Signals that a message of the request was denied.
fn deny(sender: oneshot::Sender<Status>) {
    let _ = sender.send(Status::new(Code::ResourceExhausted, "rate limit exceeded"));
}

/// Polls a body to its end. What it wraps is dropped with the last frame, and it is at its end
/// then.
fn assert_frames(steps: &[Step], meter: Option<Meter>, direction: Direction, expected: &[&str]) {
    let (inner, polled) = ScriptedBody::new(steps.iter().cloned());
    let mut body = pin!(ChargedBody::new(inner, meter, direction));
    for (at, frame) in expected.iter().enumerate() {
        assert_eq!(poll(body.as_mut()), *frame, "{expected:?}");
        assert_eq!(
            polled.upgrade().is_none(),
            at + 1 == expected.len(),
            "{expected:?}, at {frame}"
        );
    }
    assert_eq!(poll(body.as_mut()), "end", "{expected:?}");
    assert!(body.is_end_stream(), "{expected:?}");
}

const SENT: Direction = Direction::Sent(Protocol::Grpc, None);

#[tokio::test]
async fn a_body_ends_as_it_was_made_or_with_the_denial_of_a_message() {
    use Step::{Error, Pending, Trailers};

    for (steps, metered, plain) in [
        (
            vec![data(&[1]), data(&[2]), Trailers],
            &["6 bytes", "7 bytes", "trailers", "end"][..],
            None,
        ),
        (
            vec![data(&[1, 2, 3]), Trailers],
            &["13 bytes", "denied"],
            Some(&["21 bytes", "trailers", "end"][..]),
        ),
        (
            vec![data(&[1]), Error, Trailers],
            &["6 bytes", "the handler failed"],
            None,
        ),
        (
            vec![Pending, data(&[1])],
            &["pending", "6 bytes", "end"],
            None,
        ),
        (vec![data(&[])], &["end"], Some(&["0 bytes", "end"])),
    ] {
        assert_frames(&steps, meter(frozen_store(), 1).await, SENT, metered);
        assert_frames(&steps, None, SENT, plain.unwrap_or(metered));
    }
    let web = Direction::Sent(Protocol::GrpcWeb, None);
    assert_frames(
        &[data(&[1, 2, 3])],
        meter(frozen_store(), 1).await,
        web,
        &["13 bytes", "denied in data"],
    );
    let (sender, mut denial) = oneshot::channel();
    let received = Direction::Received(Some(sender));
    let expected = ["13 bytes", "denied as an error"];
    assert_frames(
        &[data(&[1, 2, 3])],
        meter(frozen_store(), 1).await,
        received,
        &expected,
    );
    assert_eq!(denial.try_recv().unwrap().code(), Code::ResourceExhausted);
}

#[test]
fn the_denial_of_a_request_goes_out_after_the_data_and_replaces_every_other_end() {
    let one = || data(&[1]);
    for (steps, expected) in [
        (
            vec![one(), one(), Step::Trailers],
            &["6 bytes", "6 bytes", "denied"][..],
        ),
        (vec![one(), Step::Error], &["6 bytes", "denied"]),
        (vec![one(), Step::Pending, one()], &["6 bytes", "denied"]),
        (vec![Step::Trailers], &["denied"]),
        (vec![], &["denied"]),
    ] {
        let (sender, receiver) = oneshot::channel();
        deny(sender);
        // The handler's stream is dropped with the denial, not later with the whole response.
        assert_frames(
            &steps,
            None,
            Direction::Sent(Protocol::Grpc, Some(receiver)),
            expected,
        );
    }
}

/// Returns a response of these steps, and the signal of its request.
fn response(
    steps: impl IntoIterator<Item = Step>,
    meter: Option<Meter>,
    protocol: Protocol,
) -> (ChargedBody<ScriptedBody>, oneshot::Sender<Status>) {
    let (sender, receiver): (_, oneshot::Receiver<_>) = oneshot::channel();
    let denial: Denial = Some(receiver);
    (
        ChargedBody::new(
            ScriptedBody::new(steps).0,
            meter,
            Direction::Sent(protocol, denial),
        ),
        sender,
    )
}

#[tokio::test]
async fn in_grpc_web_a_denial_goes_out_before_data_that_may_be_the_trailers_of_the_handler() {
    for protocol in [Protocol::GrpcWeb, Protocol::GrpcWebText] {
        let (body, sender) = response([data(&[1]), data(&[2])], None, protocol);
        let mut body = pin!(body);
        assert_eq!(poll(body.as_mut()), "6 bytes");
        deny(sender);
        assert_eq!(poll(body.as_mut()), "denied in data");
        assert_eq!(poll(body.as_mut()), "end");
    }
}

#[tokio::test]
async fn a_response_is_denied_once_and_is_at_its_end_when_no_denial_can_arrive() {
    let (body, sender) = response([], None, Protocol::Grpc);
    let mut body = pin!(body);
    assert!(!body.is_end_stream());
    drop(sender);
    assert_eq!(poll(body.as_mut()), "end");
    assert!(body.is_end_stream());

    for protocol in [Protocol::Grpc, Protocol::GrpcWeb] {
        let (body, sender) = response([data(&[1, 2, 3])], meter(frozen_store(), 1).await, protocol);
        let mut body = pin!(body);
        assert_eq!(poll(body.as_mut()), "13 bytes");
        assert!(!body.is_end_stream());
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
        let (body, sender) = response([Step::Pending, Step::Pending], None, protocol);
        let (mut body, flag) = (pin!(body), Arc::new(Flag::default()));
        let waker = Waker::from(Arc::clone(&flag));
        assert_eq!(
            word(body.as_mut().poll_frame(&mut Context::from_waker(&waker))),
            "pending"
        );
        assert!(!flag.0.load(Ordering::Relaxed));
        deny(sender);
        assert!(flag.0.load(Ordering::Relaxed), "{protocol:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_paces_the_messages_of_a_stream() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let limiter = limiter(
        store,
        Policy::leaky_bucket("messages", Quota::per_second(10).with_burst(2)),
    )
    .await;
    let meter = Meter::new(limiter, Arc::new(GrpcStatus::new()));
    let mut body = pin!(ChargedBody::new(
        ScriptedBody::new(vec![data(&[3]); 5]).0,
        Some(meter),
        SENT
    ));
    let (start, mut times) = (tokio::time::Instant::now(), Vec::new());
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        assert!(frame.is_ok());
        times.push(start.elapsed().as_millis());
    }
    // The charge for the call includes the first message, and the turn of the second one is at
    // once.
    assert_eq!(times, [0, 0, 100, 200, 300]);
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
        let pieces = cuts.windows(2).map(|cut| Step::Data(all.slice(cut[0]..cut[1])));
        // The charge for the call includes the first message.
        let paid = messages.len().min(units as usize + 1);

        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (passed, is_denied) = runtime.block_on(async {
            let meter = meter(frozen_store(), units).await;
            let mut body = pin!(ChargedBody::new(ScriptedBody::new(pieces).0, meter, SENT));
            let (mut passed, mut is_denied) = (Vec::new(), false);
            while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                match frame.unwrap().into_data() {
                    Ok(data) => passed.push(data),
                    Err(_) => is_denied = true,
                }
            }
            (passed, is_denied)
        });
        prop_assert_eq!(passed.concat(), messages[..paid].concat());
        prop_assert_eq!(is_denied, messages.len() > paid);
        // The pieces are slices of the input, not copies.
        let range = all.as_ptr_range();
        for piece in passed.iter().filter(|piece| !piece.is_empty()) {
            prop_assert!(range.contains(&piece.as_ptr()));
        }
    }
}

#[tokio::test]
async fn the_body_is_not_read_and_not_at_its_end_while_a_check_is_pending() {
    let (inner, polled) = ScriptedBody::new([data(&[1, 2])]);
    let mut body = pin!(ChargedBody::new(
        inner,
        meter(SilentStore::new(true), 10).await,
        SENT
    ));
    assert_eq!(poll(body.as_mut()), "6 bytes");
    for _ in 0..3 {
        assert_eq!(poll(body.as_mut()), "pending");
        assert!(!body.is_end_stream());
    }
    assert_eq!(polled.upgrade().unwrap().load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn an_error_of_the_handler_stays_a_single_frame() {
    let handler = service_fn(|request: Request<tonic::body::Body>| async move {
        let mut response = Status::aborted("aborted by the handler").into_http();
        // Keeps the request, so that a denial may still arrive.
        response
            .extensions_mut()
            .insert(Arc::new(std::sync::Mutex::new(request)));
        Ok::<Response<tonic::body::Body>, Infallible>(response)
    });
    let settings = Settings::new(MessageCharge::both(), GrpcStatus::new());
    let mut service = MessageService::new(handler, Arc::new(settings));
    let mut request = Request::post("/echo.Echo/Client").header("content-type", "application/grpc");
    let policy = Policy::token_bucket("messages", Quota::per_day(1));
    request
        .extensions_mut()
        .unwrap()
        .insert(limiter(frozen_store(), policy).await);
    let unread = tonic::body::Body::new(ScriptedBody::new([data(&[1])]).0);
    let response = service.call(request.body(unread).unwrap()).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "10");
    assert!(response.body().is_end_stream());
}
