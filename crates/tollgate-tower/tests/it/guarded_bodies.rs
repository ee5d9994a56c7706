//! Bodies that hold a guard: how and when the guard ends.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::mpsc::{Receiver, channel},
    task::{Context, Poll, Waker},
};

use axum::{
    Router,
    body::Body as AxumBody,
    response::{Sse, sse::Event},
    routing::get,
};
use bytes::{Buf, Bytes};
use futures_util::stream;
use http::{HeaderMap, Method, Request, Response, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tollgate_tower::body::{BodyEnd, BodyGuard, GuardedBody, Held, guard_fn, guard_response};
use tower_http::map_response_body::MapResponseBodyLayer;

use crate::support::serve;

#[derive(Debug, PartialEq)]
enum Seen {
    Data(String),
    Trailers(usize),
    End(BodyEnd),
}

struct Recorder(std::sync::mpsc::Sender<Seen>);

impl BodyGuard for Recorder {
    fn on_data(&mut self, data: &dyn Buf) {
        self.0
            .send(Seen::Data(
                String::from_utf8_lossy(data.chunk()).into_owned(),
            ))
            .unwrap();
    }

    fn on_trailers(&mut self, trailers: &HeaderMap) {
        self.0.send(Seen::Trailers(trailers.len())).unwrap();
    }

    fn on_end(&mut self, end: BodyEnd) {
        self.0.send(Seen::End(end)).unwrap();
    }
}

fn recorded<B: Body>(body: B) -> (GuardedBody<B, Recorder>, Receiver<Seen>) {
    let (sender, receiver) = channel();
    (GuardedBody::new(body, Recorder(sender)), receiver)
}

fn data(text: &'static str) -> Result<Frame<Bytes>, &'static str> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

fn frames(
    frames: impl IntoIterator<Item = Result<Frame<Bytes>, &'static str>, IntoIter: Send> + 'static,
) -> impl Body<Data = Bytes, Error = &'static str> + Unpin {
    StreamBody::new(stream::iter(frames))
}

type NextFrame<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

/// Polls a body once.
fn poll<B: Body + Unpin>(body: &mut B) -> Poll<NextFrame<B>> {
    Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn frames_and_trailers_pass_unchanged_and_the_guard_ends_once() {
    let trailers = HeaderMap::from_iter([(header::ETAG, "x".parse().unwrap())]);
    let (body, seen) = recorded(frames([
        data("one"),
        data("two"),
        Ok(Frame::trailers(trailers.clone())),
    ]));
    let collected = body.collect().await.unwrap();
    assert_eq!(collected.trailers(), Some(&trailers));
    assert_eq!(collected.to_bytes(), "onetwo");
    let seen: Vec<_> = seen.iter().collect();
    let text = |text: &str| Seen::Data(text.to_owned());
    assert_eq!(
        seen,
        [
            text("one"),
            text("two"),
            Seen::Trailers(1),
            Seen::End(BodyEnd::Complete)
        ]
    );
}

#[test]
fn a_failed_body_ends_its_guard_as_failed() {
    let (mut body, seen) = recorded(frames([Err("broken"), data("late")]));
    assert!(matches!(poll(&mut body), Poll::Ready(Some(Err("broken")))));
    assert_eq!(
        seen.try_iter().collect::<Vec<_>>(),
        [Seen::End(BodyEnd::Failed)]
    );
    // The guard is gone, so that later frames are not its.
    assert!(matches!(poll(&mut body), Poll::Ready(Some(Ok(_)))));
    drop(body);
    assert_eq!(seen.iter().count(), 0);
}

#[test]
fn a_dropped_body_ends_its_guard_as_dropped() {
    let (mut body, seen) = recorded(frames([data("one"), data("two")]));
    assert!(matches!(poll(&mut body), Poll::Ready(Some(Ok(_)))));
    drop(body);
    assert_eq!(
        seen.iter().collect::<Vec<_>>(),
        [Seen::Data("one".to_owned()), Seen::End(BodyEnd::Dropped)]
    );
}

/// A body that records when it is dropped, and polls or panics as the other one does.
struct Recorded<B>(B, std::sync::mpsc::Sender<&'static str>);

impl<B: Body + Unpin> Body for Recorded<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<NextFrame<B>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }
}

impl<B> Drop for Recorded<B> {
    fn drop(&mut self) {
        self.1.send("dropped").unwrap();
    }
}

#[test]
fn a_body_without_an_end_is_dropped_before_its_guard_ends() {
    let guarded = || {
        let (sender, seen) = channel();
        let end = sender.clone();
        (
            Recorded(frames([data("one")]), sender),
            guard_fn(move |_| end.send("ended").unwrap()),
            seen,
        )
    };
    let (body, guard, seen) = guarded();
    drop(GuardedBody::new(body, guard));
    assert_eq!(seen.iter().collect::<Vec<_>>(), ["dropped", "ended"]);

    let (body, guard, seen) = guarded();
    let mut body = GuardedBody::new(body, guard);
    while let Poll::Ready(Some(_)) = poll(&mut body) {}
    assert_eq!(
        seen.try_iter().collect::<Vec<_>>(),
        ["ended"],
        "the whole body was read"
    );
    drop(body);
    assert_eq!(seen.iter().collect::<Vec<_>>(), ["dropped"]);
}

#[test]
fn the_guard_ends_with_the_last_frame_and_not_with_the_next_poll() {
    let (mut body, seen) = recorded(Full::new(Bytes::from("all")));
    assert!(!body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(3));
    assert!(matches!(poll(&mut body), Poll::Ready(Some(Ok(_)))));
    assert!(body.is_end_stream());
    assert_eq!(
        seen.try_iter().collect::<Vec<_>>(),
        [Seen::Data("all".to_owned()), Seen::End(BodyEnd::Complete)]
    );
    drop(body);
    assert_eq!(seen.iter().count(), 0);
}

#[test]
fn an_empty_body_ends_its_guard_at_once() {
    let (body, seen) = recorded(Empty::<Bytes>::new());
    assert_eq!(
        seen.iter().collect::<Vec<_>>(),
        [Seen::End(BodyEnd::Complete)]
    );
    assert!(body.guard().is_none());
}

/// Panics when it is polled.
struct Panics;

impl Body for Panics {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("on purpose")
    }
}

#[test]
fn a_body_that_panics_ends_its_guard_as_failed() {
    let (mut body, seen) = recorded(Panics);
    let result =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| poll(&mut body).is_ready()));
    assert!(result.is_err());
    drop(body);
    assert_eq!(
        seen.iter().collect::<Vec<_>>(),
        [Seen::End(BodyEnd::Failed)]
    );
}

#[test]
fn a_body_of_the_announced_length_is_complete_without_its_end() {
    for (length, end) in [
        ("6", BodyEnd::Complete),
        ("7", BodyEnd::Dropped),
        ("0", BodyEnd::Dropped),
        ("x", BodyEnd::Dropped),
    ] {
        let (sender, seen) = channel();
        let response = Response::builder()
            .header("content-length", length)
            .body(frames([data("one"), data("two")]));
        let response = guard_response(
            response.unwrap(),
            guard_fn(move |end| sender.send(end).unwrap()),
        );
        let mut body = response.into_body();
        for _ in 0..2 {
            assert!(matches!(poll(&mut body), Poll::Ready(Some(Ok(_)))));
        }
        drop(body);
        assert_eq!(seen.recv(), Ok(end), "{length}");
    }
}

#[test]
fn guards_can_be_boxed_paired_and_left_out() {
    let (sender, seen) = channel();
    let guard = |sender: std::sync::mpsc::Sender<Seen>| {
        Box::new(Recorder(sender)) as Box<dyn BodyGuard + Send>
    };
    let pair = (
        guard(sender.clone()),
        (None::<Recorder>, Some(Recorder(sender))),
    );
    let trailers = HeaderMap::from_iter([(header::ETAG, "x".parse().unwrap())]);
    let mut body = GuardedBody::new(
        frames([data("one"), Ok(Frame::trailers(trailers))]),
        (pair, Held("anything")),
    );
    assert!(matches!(poll(&mut body), Poll::Ready(Some(Ok(_)))));
    assert!(matches!(poll(&mut body), Poll::Ready(Some(Ok(_)))));
    assert!(matches!(poll(&mut body), Poll::Ready(None)));
    let text = || Seen::Data("one".to_owned());
    let end = || Seen::End(BodyEnd::Complete);
    let expected = [
        text(),
        text(),
        Seen::Trailers(1),
        Seen::Trailers(1),
        end(),
        end(),
    ];
    assert_eq!(seen.iter().collect::<Vec<_>>(), expected);

    let mut body = GuardedBody::<_, Recorder>::unguarded("one".to_owned());
    assert!(matches!(poll(&mut body), Poll::Ready(Some(Ok(_)))));
    assert_eq!(
        GuardedBody::<String, Recorder>::from("text".to_owned()).get_ref(),
        "text"
    );
    assert_eq!(GuardedBody::<String, Recorder>::default().get_ref(), "");
}

/// Serves a router, and sends the way in which each body ends.
async fn served(
    router: Router,
) -> (
    std::net::SocketAddr,
    tokio::sync::mpsc::UnboundedReceiver<BodyEnd>,
) {
    let (sender, ends) = tokio::sync::mpsc::unbounded_channel();
    let guard = move |body: AxumBody| {
        let sender = sender.clone();
        GuardedBody::new(body, guard_fn(move |end| sender.send(end).unwrap()))
    };
    (
        serve(router.layer(MapResponseBodyLayer::new(guard))).await,
        ends,
    )
}

/// Opens a stream of events that sends one event, and then none.
async fn events() -> Sse<impl futures_util::Stream<Item = Result<Event, Infallible>>> {
    let first = stream::iter([Ok(Event::default().data("first"))]);
    Sse::new(futures_util::StreamExt::chain(first, stream::pending()))
}

#[tokio::test]
async fn guards_end_over_http_1_and_http_2_for_whole_chunked_and_endless_bodies() {
    let chunks =
        || async { AxumBody::from_stream(stream::iter(["one", "two"].map(Ok::<_, Infallible>))) };
    let known = || async {
        let chunks = AxumBody::from_stream(stream::iter(["one", "two"].map(Ok::<_, Infallible>)));
        ([(header::CONTENT_LENGTH, "6")], chunks)
    };
    let broken = || async { AxumBody::from_stream(stream::iter([Ok("one"), Err("broken")])) };
    let router = Router::new()
        .route("/whole", get(|| async { "onetwo" }))
        .route("/chunks", get(chunks))
        .route("/known", get(known))
        .route("/broken", get(broken))
        .route("/events", get(events));
    for is_http2 in [false, true] {
        let (address, mut ends) = served(router.clone()).await;
        let client = Client::builder(TokioExecutor::new())
            .http2_only(is_http2)
            .build_http::<Full<Bytes>>();
        let send = |method: Method, path: &str| {
            let request = Request::builder()
                .method(method)
                .uri(format!("http://{address}{path}"));
            client.request(request.body(Full::default()).unwrap())
        };
        for path in ["/whole", "/chunks"] {
            let body = send(Method::GET, path)
                .await
                .unwrap()
                .into_body()
                .collect()
                .await
                .unwrap();
            assert_eq!(body.to_bytes(), "onetwo");
            assert_eq!(
                ends.recv().await,
                Some(BodyEnd::Complete),
                "{path}, HTTP/2: {is_http2}"
            );
        }
        // HTTP/1 may close the connection before the head has left.
        if let Ok(response) = send(Method::GET, "/broken").await {
            assert!(response.into_body().collect().await.is_err());
        }
        assert_eq!(
            ends.recv().await,
            Some(BodyEnd::Failed),
            "HTTP/2: {is_http2}"
        );
        // The guard does not read the length here, and HTTP/1 does not ask for the end of such a
        // body.
        let body = send(Method::GET, "/known")
            .await
            .unwrap()
            .into_body()
            .collect()
            .await
            .unwrap();
        assert_eq!(body.to_bytes(), "onetwo");
        let expected = if is_http2 {
            BodyEnd::Complete
        } else {
            BodyEnd::Dropped
        };
        assert_eq!(ends.recv().await, Some(expected), "HTTP/2: {is_http2}");

        let mut response = send(Method::GET, "/events").await.unwrap();
        let first = response
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap();
        assert_eq!(first, "data: first\n\n");
        assert!(ends.try_recv().is_err());
        drop(response);
        drop(client);
        assert_eq!(
            ends.recv().await,
            Some(BodyEnd::Dropped),
            "HTTP/2: {is_http2}"
        );
    }
}
