//! WebSockets whose messages are charged: over a pipe with a paused clock, and with a client of
//! another library.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Error, Extension, Router,
    extract::{
        WebSocketUpgrade,
        ws::{CloseFrame, Message, WebSocket},
    },
    routing::any,
};
use futures_util::{FutureExt, Sink, SinkExt, Stream, StreamExt, stream::FusedStream};
use tokio::{
    net::TcpStream,
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    time::Instant,
};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async, tungstenite};
use tollgate::{Cost, Limiter, Outage, Policy, Quota};
use tollgate_tower::{
    RateLimitLayer, RequestLimiter,
    key::Global,
    ws::{LimitedSocket, Refusal},
};

use crate::support::*;

/// A socket without a network.
struct Pipe {
    received: UnboundedReceiver<Message>,
    sent: UnboundedSender<Message>,
    /// The client reads nothing, so that nothing can be sent. Nobody is woken, as when another task
    /// waits.
    is_full: bool,
    is_closed: bool,
}

impl Stream for Pipe {
    type Item = Result<Message, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.received.poll_recv(cx).map(|message| message.map(Ok))
    }
}

impl FusedStream for Pipe {
    fn is_terminated(&self) -> bool {
        self.received.is_closed() && self.received.is_empty()
    }
}

impl Sink<Message> for Pipe {
    type Error = Error;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.is_full {
            Poll::Pending
        } else {
            Poll::Ready(Ok(()))
        }
    }

    fn start_send(self: Pin<&mut Self>, message: Message) -> Result<(), Error> {
        self.sent.send(message).map_err(Error::new)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.is_closed = true;
        Poll::Ready(Ok(()))
    }
}

/// The client's ends of a pipe.
struct Client {
    sends: UnboundedSender<Message>,
    receives: UnboundedReceiver<Message>,
}

impl Client {
    fn send(&self, texts: &[&str]) {
        texts
            .iter()
            .for_each(|text| self.sends.send(Message::text(*text)).unwrap());
    }

    /// Returns the close frame that the client has received.
    fn close_frame(&mut self) -> (u16, String) {
        match self.receives.try_recv() {
            Ok(Message::Close(Some(CloseFrame { code, reason }))) => (code, reason.to_string()),
            other => panic!("{other:?}"),
        }
    }
}

fn pipe(limiter: RequestLimiter) -> (LimitedSocket<Pipe>, Client) {
    let ((sends, received), (sent, receives)) =
        (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    (
        LimitedSocket::new(
            Pipe {
                received,
                sent,
                is_full: false,
                is_closed: false,
            },
            limiter,
        ),
        Client { sends, receives },
    )
}

fn under(policy: Policy) -> RequestLimiter {
    RequestLimiter::new(Limiter::new(tokio_clock_store(), policy), "a")
}

async fn text(socket: &mut LimitedSocket<Pipe>) -> String {
    socket
        .recv()
        .await
        .unwrap()
        .unwrap()
        .to_text()
        .unwrap()
        .to_owned()
}

/// Returns the reason for which the limit has closed the socket.
async fn refusal<S>(socket: &mut LimitedSocket<S>) -> Refusal
where
    S: Stream<Item = Result<Message, Error>> + Sink<Message, Error = Error> + Unpin,
{
    let error = socket.recv().await.unwrap().unwrap_err();
    let refusal = *error.into_inner().downcast::<Refusal>().unwrap();
    assert!(socket.recv().await.is_none());
    refusal
}

const ONE_A_SECOND: Policy = Policy::token_bucket("messages", Quota::per_second(1));

#[tokio::test(start_paused = true)]
async fn waiting_messages_pass_at_the_rate_and_the_socket_is_not_read_meanwhile() {
    for policy in [
        ONE_A_SECOND,
        Policy::leaky_bucket("even", Quota::per_second(1).with_burst(5)),
    ] {
        let (mut socket, client) = pipe(under(policy).wait(Duration::from_secs(1)));
        client.send(&["0", "1", "2", "3"]);
        let start = Instant::now();
        for second in 0..4 {
            assert_eq!(text(&mut socket).await, second.to_string());
            assert_eq!(start.elapsed().as_secs(), second);
            assert!(socket.recv().now_or_never().is_none());
            assert_eq!(
                socket.get_ref().received.len() as u64,
                2_u64.saturating_sub(second)
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_leaky_bucket_wait_without_a_longest_wait() {
    let (mut socket, client) = pipe(under(Policy::leaky_bucket(
        "even",
        Quota::per_second(1).with_burst(5),
    )));
    client.send(&["0", "1", "2"]);
    let start = Instant::now();
    for second in 0..3 {
        assert_eq!(text(&mut socket).await, second.to_string());
        assert_eq!(start.elapsed().as_secs(), second);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_turn_comes_too_late_closes_the_socket_at_once() {
    let (mut socket, mut client) = pipe(under(ONE_A_SECOND).wait(Duration::from_millis(500)));
    client.send(&["0", "1"]);
    client.sends.send(Message::Close(None)).unwrap();
    drop(client.sends);
    let start = Instant::now();
    assert_eq!(text(&mut socket).await, "0");
    let refusal = refusal(&mut socket).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(refusal.decision().unwrap().retry_after().is_some());
    client.sends = mpsc::unbounded_channel().0;
    let (code, reason) = client.close_frame();
    assert_eq!(code, 1008);
    assert!(
        reason.starts_with("rate limit exceeded: messages, retry after "),
        "{reason}"
    );
    assert_eq!(reason, refusal.to_string());
}

#[tokio::test(start_paused = true)]
async fn dropped_messages_are_counted_and_the_socket_stays_open() {
    let dropped = Arc::new(Mutex::new(Vec::new()));
    let (socket, client) = pipe(under(ONE_A_SECOND));
    let mut socket = socket.drop_denied({
        let dropped = Arc::clone(&dropped);
        move |message, refusal| {
            dropped
                .lock()
                .unwrap()
                .push((message, refusal.decision().unwrap().retry_after()));
        }
    });
    client.send(&["0", "1", "2"]);
    assert_eq!(text(&mut socket).await, "0");
    assert!(socket.recv().now_or_never().is_none());
    tokio::time::advance(Duration::from_secs(1)).await;
    client.send(&["3"]);
    assert_eq!(text(&mut socket).await, "3");
    assert_eq!(socket.dropped(), 2);
    let second = Some(Duration::from_secs(1));
    assert_eq!(
        *dropped.lock().unwrap(),
        [(Message::text("1"), second), (Message::text("2"), second)]
    );
}

#[tokio::test(start_paused = true)]
async fn bytes_are_charged_and_a_message_that_never_fits_has_a_code_of_its_own() {
    let limiter = Limiter::new(still(), Policy::token_bucket("bytes", Quota::per_hour(10)));
    let open = || {
        let (socket, client) = pipe(RequestLimiter::new(limiter.clone(), "a"));
        (socket.bytes(), client)
    };
    let (mut socket, mut client) = open();
    client.send(&["", "äb"]);
    client
        .sends
        .send(Message::binary(b"cd".as_slice()))
        .unwrap();
    for left in [9, 6, 4] {
        assert!(socket.recv().await.unwrap().is_ok());
        assert_eq!(remaining(&limiter, "a", "bytes").await, left);
    }
    client.send(&["eleven byte", "f"]);
    assert_eq!(
        refusal(&mut socket).await.to_string(),
        "the message never fits the rate limit"
    );
    assert_eq!(client.close_frame().0, 1009);

    let (socket, client) = open();
    let mut socket = socket.drop_denied(|_, refusal| assert!(refusal.error().is_some()));
    client.send(&["eleven byte", "f"]);
    assert_eq!(text(&mut socket).await, "f");
    assert_eq!(
        (socket.dropped(), remaining(&limiter, "a", "bytes").await),
        (1, 3)
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_decision_the_socket_closes_also_where_messages_are_dropped() {
    let nested = Limiter::new(still(), TWO.at_level(2));
    for (limiter, expected) in [
        (
            unavailable(Outage::Closed),
            (1013, "the rate limit cannot be checked"),
        ),
        (nested, (1011, "the rate limit is misconfigured")),
    ] {
        for drops in [false, true] {
            let (mut socket, mut client) = pipe(RequestLimiter::new(limiter.clone(), "a"));
            if drops {
                socket = socket.drop_denied(|_, _| panic!("nothing is dropped"));
            }
            client.send(&["0"]);
            assert!(refusal(&mut socket).await.error().is_some());
            let (code, reason) = client.close_frame();
            assert_eq!((code, &*reason), expected);
        }
    }
    let (mut socket, client) = pipe(RequestLimiter::new(unavailable(Outage::Open), "a"));
    client.send(&["0", "1", "2"]);
    for message in ["0", "1", "2"] {
        assert_eq!(text(&mut socket).await, message);
    }
}

#[tokio::test(start_paused = true)]
async fn control_frames_are_charged_only_where_they_have_a_cost() {
    let limiter = Limiter::new(still(), HOURLY);
    let ping = || Message::Ping("ping".into());
    let (mut socket, client) = pipe(RequestLimiter::new(limiter.clone(), "a"));
    for message in [ping(), Message::Pong("pong".into()), Message::Close(None)] {
        client.sends.send(message.clone()).unwrap();
        assert_eq!(socket.recv().await.unwrap().unwrap(), message);
    }
    assert_eq!(remaining(&limiter, "a", "hourly").await, 3);

    let (socket, client) = pipe(RequestLimiter::new(limiter.clone(), "a"));
    let mut socket = socket.control_cost(Cost::new(2)).cost(|_| Cost::ZERO);
    client.send(&["free"]);
    (0..2).for_each(|_| client.sends.send(ping()).unwrap());
    assert_eq!(text(&mut socket).await, "free");
    assert_eq!(socket.recv().await.unwrap().unwrap(), ping());
    assert_eq!(remaining(&limiter, "a", "hourly").await, 1);
    assert!(refusal(&mut socket).await.decision().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_receive_loses_no_message_and_charges_it_once() {
    let limiter = Limiter::new(Late(tokio_clock_store()), HOURLY);
    let (mut socket, client) = pipe(RequestLimiter::new(limiter.clone(), "a"));
    client.send(&["0", "1"]);
    for _ in 0..5 {
        assert!(socket.recv().now_or_never().is_none());
        tokio::time::advance(Duration::from_micros(100)).await;
    }
    assert_eq!(text(&mut socket).await, "0");
    assert_eq!(remaining(&limiter, "a", "hourly").await, 2);
    assert_eq!(text(&mut socket).await, "1");
    assert_eq!(remaining(&limiter, "a", "hourly").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_socket_is_terminated_when_its_stream_is_or_the_limit_has_closed_it_and_not_while_a_message_waits()
 {
    let (mut socket, client) = pipe(under(ONE_A_SECOND).wait(Duration::from_secs(1)));
    assert!(!socket.is_terminated());
    client.send(&["0", "1"]);
    text(&mut socket).await;
    drop(client);
    assert!(socket.recv().now_or_never().is_none());
    assert!(
        socket.get_ref().is_terminated() && !socket.is_terminated(),
        "a message waits, and the client has gone"
    );
    text(&mut socket).await;
    assert!(socket.is_terminated());

    let (mut socket, client) = pipe(under(ONE_A_SECOND));
    client.send(&["0", "1"]);
    text(&mut socket).await;
    assert!(!socket.is_terminated());
    refusal(&mut socket).await;
    assert!(socket.is_terminated() && !socket.get_ref().is_terminated());
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_is_dropped_while_a_message_waits_refunds_it() {
    let limiter = Limiter::new(tokio_clock_store(), ONE_A_SECOND);
    let messages = RequestLimiter::new(limiter.clone(), "a").wait(Duration::from_secs(5));
    let (mut socket, client) = pipe(messages);
    client.send(&["0", "1"]);
    assert_eq!(text(&mut socket).await, "0");
    assert!(socket.recv().now_or_never().is_none());
    drop(socket);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(remaining(&limiter, "a", "messages").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_answer_the_close_frame_holds_the_socket_for_two_seconds() {
    let (mut socket, mut client) = pipe(under(ONE_A_SECOND));
    client.send(&["0", "1", "2"]);
    assert_eq!(text(&mut socket).await, "0");
    let start = Instant::now();
    assert!(socket.recv().now_or_never().is_none());
    assert_eq!(client.close_frame().0, 1008);
    // What still comes is discarded.
    client.send(&["3"]);
    let error = socket.send(Message::text("late")).await.unwrap_err();
    assert_eq!(error.to_string(), "the rate limit has closed the socket");
    refusal(&mut socket).await;
    assert_eq!(start.elapsed().as_secs(), 2);
    assert!(socket.send(Message::text("late")).await.is_err());
    assert!(client.receives.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_the_sink_is_woken_when_the_limit_closes_the_socket() {
    let ((sends, received), (sent, _receives)) =
        (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    let socket = LimitedSocket::new(
        Pipe {
            received,
            sent,
            is_full: true,
            is_closed: false,
        },
        under(ONE_A_SECOND),
    );
    let (mut sink, mut stream) = socket.split();
    let sender = tokio::spawn(async move { sink.send(Message::text("answer")).await });
    tokio::task::yield_now().await;
    assert!(!sender.is_finished());
    ["0", "1"]
        .into_iter()
        .for_each(|text| sends.send(Message::text(text)).unwrap());
    assert!(stream.next().await.unwrap().is_ok());
    let start = Instant::now();
    assert!(stream.next().await.unwrap().is_err());
    assert_eq!(start.elapsed().as_secs(), 2);
    let sent = tokio::time::timeout(Duration::from_secs(1), sender)
        .await
        .expect("the task is woken");
    assert!(sent.unwrap().is_err());
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_socket_is_closed_through_its_limit_and_comes_out_of_it() {
    let (mut socket, client) = pipe(under(ONE_A_SECOND));
    socket.close().await.unwrap();
    assert!(socket.get_ref().is_closed);
    client.send(&["0"]);
    assert_eq!(
        socket.into_inner().next().await.unwrap().unwrap(),
        Message::text("0")
    );
}

#[tokio::test(start_paused = true)]
async fn an_application_chooses_the_close_frame() {
    let (socket, mut client) = pipe(under(ONE_A_SECOND));
    let mut socket = socket.close_with(|refusal| CloseFrame {
        code: 4029,
        reason: format!("slow down: {}", refusal.decision().is_some()).into(),
    });
    client.send(&["0", "1"]);
    assert_eq!(text(&mut socket).await, "0");
    refusal(&mut socket).await;
    assert_eq!(client.close_frame(), (4029, "slow down: true".to_owned()));
}

type WsClient = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Serves an echo whose messages are charged by the layer around it. Also returns what ended the
/// handlers.
async fn echo(layer: RateLimitLayer<Global>) -> (WsClient, UnboundedReceiver<Option<Refusal>>) {
    let (ends, ended) = mpsc::unbounded_channel();
    let handler =
        async |upgrade: WebSocketUpgrade,
               Extension(messages): Extension<RequestLimiter>,
               Extension(ends): Extension<UnboundedSender<Option<Refusal>>>| {
            upgrade.on_upgrade(async move |socket| {
                let mut socket = LimitedSocket::new(socket, messages);
                let end = loop {
                    match socket.recv().await {
                        Some(Ok(message @ Message::Text(_))) => socket.send(message).await.unwrap(),
                        Some(Ok(_)) => {}
                        Some(Err(error)) => {
                            break error.into_inner().downcast().ok().map(|refusal| *refusal);
                        }
                        None => break None,
                    }
                };
                ends.send(end).unwrap();
            })
        };
    let address = serve(
        Router::new()
            .route("/", any(handler).layer(layer))
            .layer(Extension(ends)),
    )
    .await;
    (
        connect_async(format!("ws://{address}/")).await.unwrap().0,
        ended,
    )
}

fn messages_of(policy: Policy, is_shadow: bool) -> RateLimitLayer<Global> {
    let store = still();
    let messages = Limiter::new(store.clone(), policy);
    RateLimitLayer::builder(Limiter::new(store, HOURLY), Global)
        .expose_request_limiter(Some(messages))
        .shadow(is_shadow)
        .build()
}

/// Returns the next text or close frame that a client receives.
async fn next(client: &mut WsClient) -> Result<String, (u16, String)> {
    loop {
        match client.next().await.unwrap().unwrap() {
            tungstenite::Message::Text(text) => return Ok(text.to_string()),
            tungstenite::Message::Close(Some(frame)) => {
                return Err((frame.code.into(), frame.reason.to_string()));
            }
            _ => {}
        }
    }
}

// The clock is stopped, so that the two seconds of a closing socket do not end in a slow test.
#[tokio::test(start_paused = true)]
async fn a_client_reads_the_reason_although_it_has_sent_more_than_was_read() {
    let _clock = StoppedClock::start();
    let (mut client, mut ended) = echo(messages_of(TWO, false)).await;
    for text in ["one", "two", "three"] {
        client.feed(tungstenite::Message::text(text)).await.unwrap();
    }
    // More than the buffers of both ends hold. A connection that is reset would fail here.
    client
        .send(tungstenite::Message::binary(vec![0; 8 << 20]))
        .await
        .unwrap();
    assert_eq!(next(&mut client).await, Ok("one".to_owned()));
    assert_eq!(next(&mut client).await, Ok("two".to_owned()));
    let reason = "rate limit exceeded: two, retry after 30 s".to_owned();
    assert_eq!(next(&mut client).await, Err((1008, reason)));
    assert!(client.next().await.is_none());
    assert!(
        ended
            .recv()
            .await
            .unwrap()
            .unwrap()
            .decision()
            .unwrap()
            .is_denied()
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_of_several_frames_is_charged_once() {
    use tungstenite::protocol::frame::{
        Frame,
        coding::{Data, OpCode},
    };
    let _clock = StoppedClock::start();
    let (mut client, _ended) = echo(messages_of(TWO, false)).await;
    let frame =
        |text: &'static str, code, is_last| Frame::message(text, OpCode::Data(code), is_last);
    for frame in [
        frame("a", Data::Text, false),
        frame("b", Data::Continue, false),
        frame("c", Data::Continue, true),
    ] {
        client
            .send(tungstenite::Message::Frame(frame))
            .await
            .unwrap();
    }
    client
        .send(tungstenite::Message::text("two"))
        .await
        .unwrap();
    assert_eq!(next(&mut client).await, Ok("abc".to_owned()));
    assert_eq!(next(&mut client).await, Ok("two".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn shadow_mode_passes_each_message_and_an_ordinary_end_is_no_refusal() {
    let _clock = StoppedClock::start();
    let (mut client, mut ended) = echo(messages_of(ONE, true)).await;
    for text in ["one", "two", "three"] {
        client.send(tungstenite::Message::text(text)).await.unwrap();
        assert_eq!(next(&mut client).await, Ok(text.to_owned()));
    }
    client.close(None).await.unwrap();
    assert!(ended.recv().await.unwrap().is_none());
}

#[test]
fn a_limited_socket_can_be_sent_and_fused_as_the_socket_of_axum() {
    fn is_socket<T: FusedStream + Sink<Message> + Send + Unpin>() {}
    is_socket::<WebSocket>();
    is_socket::<LimitedSocket>();
}

#[cfg(feature = "metrics")]
#[test]
fn messages_are_counted_as_requests_are() {
    let series = tollgate_tests::Series::of(async {
        let (mut socket, client) = pipe(RequestLimiter::new(Limiter::new(still(), TWO), "a"));
        client.send(&["0", "1", "2"]);
        drop(client.sends);
        assert!(socket.recv().await.unwrap().is_ok());
        assert!(socket.recv().await.unwrap().is_ok());
        refusal(&mut socket).await;
    });
    series.assert_counts(
        "
        tollgate_decisions_total policy=two outcome=allowed 2
        tollgate_decisions_total policy=two outcome=denied 1
        tollgate_rejections_total reason=denied 1
        ",
    );
}
