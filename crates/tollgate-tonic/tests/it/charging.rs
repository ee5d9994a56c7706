//! The option that charges messages, seen by clients.

use std::{future::pending, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::Request as HttpRequest;
use http_body_util::BodyExt;
use tokio::{net::TcpStream, sync::mpsc};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tollgate::{Limiter, Policy, Quota, RedisStore};
use tollgate_tests::RedisServer;
use tollgate_tonic::{
    ChargeMessages, GrpcStatus, Messages as Charged, MessagesLayer, health_and_reflection, key::Metadata,
};
use tollgate_tower::{key::Global, rejection::Problem};
use tonic::{
    Code, Request, Response, Status, Streaming,
    codec::CompressionEncoding,
    service::LayerExt,
    transport::{Channel, Server},
};
use tonic_types::StatusExt;
use tonic_web::{GrpcWebClientService, GrpcWebLayer};
use tower::{Layer, ServiceExt};

use crate::support::*;

pub(crate) const FIVE: Policy = Policy::token_bucket("five", Quota::per_minute(5));

fn five() -> Limiter {
    Limiter::new(still(), FIVE)
}

fn layer(limiter: Limiter, charged: Charged) -> MessagesLayer<Metadata> {
    tollgate_tonic::builder(limiter, Metadata::new("x-api-key")).charge_messages(charged)
}

async fn served(echo: impl Echo, layer: MessagesLayer<Metadata>) -> EchoClient<Channel> {
    client(serve(Server::builder().layer(layer).add_service(EchoServer::new(echo))).await).await
}

async fn charging(limiter: Limiter, charged: Charged) -> EchoClient<Channel> {
    served(Echoing, layer(limiter, charged)).await
}

fn messages(count: u32) -> impl tokio_stream::Stream<Item = Message> + Send + 'static {
    tokio_stream::iter((0..count).map(message).collect::<Vec<_>>())
}

async fn texts(mut messages: Streaming<Message>) -> (Vec<String>, Option<Status>) {
    let mut texts = Vec::new();
    loop {
        match messages.message().await {
            Ok(Some(message)) => texts.push(message.text),
            Ok(None) => return (texts, None),
            Err(status) => return (texts, Some(status)),
        }
    }
}

async fn left(limiter: &Limiter, key: &str) -> u64 {
    limiter.peek(key).await.unwrap().states().next().unwrap().remaining()
}

/// The status of a denied call, in whole.
fn is_told_all(status: &Status) {
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "rate limit exceeded"), "{status:?}");
    assert_eq!(status.get_details_retry_info().unwrap().retry_delay.unwrap().as_secs(), 12);
    assert_eq!(status.get_details_quota_failure().unwrap().violations[0].quota_id, "five");
    assert_eq!(status.get_details_error_info().unwrap().reason, "RATE_LIMIT_EXCEEDED");
}

#[tokio::test]
async fn a_unary_call_costs_what_it_does_without() {
    let limiter = five();
    let mut client = charging(limiter.clone(), Charged::both()).await;
    assert_eq!(codes(&mut client, "acme", 4).await, [Code::Ok; 4]);
    assert_eq!(left(&limiter, "acme").await, 1);
    assert_eq!(codes(&mut client, "acme", 2).await, [Code::Ok, Code::ResourceExhausted]);
}

#[tokio::test]
async fn what_is_sent_ends_with_the_message_that_is_denied() {
    for limiter in [five(), Limiter::new(Late(still()), FIVE)] {
        let mut client = charging(limiter.clone(), Charged::sent()).await;
        let (all, status) = texts(client.server(from("other", message(5))).await.unwrap().into_inner()).await;
        assert_eq!((all.len(), status.is_none()), (5, true));
        let (some, status) = texts(client.server(from("acme", message(9))).await.unwrap().into_inner()).await;
        assert_eq!(some, ["0", "1", "2", "3", "4"]);
        is_told_all(&status.unwrap());
        // The connection serves on.
        assert_eq!(codes(&mut client, "third", 1).await, [Code::Ok]);
        assert_eq!(client.client(from("third", messages(20))).await.unwrap().into_inner().text, "20");
    }
}

#[tokio::test]
async fn what_is_received_ends_with_the_message_that_is_denied() {
    for limiter in [five(), Limiter::new(Late(still()), FIVE)] {
        let mut client = charging(limiter, Charged::received()).await;
        assert_eq!(client.client(from("other", messages(5))).await.unwrap().into_inner().text, "5");
        is_told_all(&client.client(from("acme", messages(6))).await.unwrap_err());
        assert_eq!(codes(&mut client, "third", 1).await, [Code::Ok]);
        let (all, status) = texts(client.server(from("third", message(20))).await.unwrap().into_inner()).await;
        assert_eq!((all.len(), status.is_none()), (20, true));
    }
}

#[tokio::test]
async fn a_conversation_is_charged_in_both_directions() {
    let limiter = five();
    let mut client = charging(limiter.clone(), Charged::both()).await;
    let (send, receive) = mpsc::channel(1);
    let mut answers = client.bidi(from("acme", ReceiverStream::new(receive))).await.unwrap().into_inner();
    // The first question and the first answer come with the call.
    for (count, remaining) in [(1, 4), (2, 2), (3, 0)] {
        send.send(message(count)).await.unwrap();
        assert_eq!(answers.message().await.unwrap().unwrap().text, count.to_string());
        assert_eq!(left(&limiter, "acme").await, remaining);
    }
    send.send(message(4)).await.unwrap();
    is_told_all(&answers.message().await.unwrap_err());
    assert!(answers.message().await.unwrap().is_none());
}

#[tokio::test]
async fn over_redis_messages_are_charged_alike() {
    let redis = RedisServer::start();
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let limiter = Limiter::builder(store).policies(FIVE).deadline(Duration::from_secs(30)).build();
    let mut client = charging(limiter, Charged::both()).await;
    let (some, status) = texts(client.server(from("acme", message(9))).await.unwrap().into_inner()).await;
    assert_eq!(some, ["0", "1", "2", "3", "4"]);
    assert_eq!(status.unwrap().code(), Code::ResourceExhausted);
    let status = client.client(from("other", messages(9))).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.get_details_quota_failure().unwrap().violations[0].quota_id, "five");
}

/// Makes of an error of its request's stream what the client must not see.
#[derive(Clone, Copy, Debug)]
enum Stubborn {
    Swallows,
    Hides,
    Hangs,
    /// Reads in a task of its own, and never answers.
    ReadsApart,
}

#[tonic::async_trait]
impl Echo for Stubborn {
    async fn unary(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        Echoing.unary(request).await
    }

    type ServerStream = Messages;

    async fn server(&self, request: Request<Message>) -> Result<Response<Messages>, Status> {
        Echoing.server(request).await
    }

    async fn client(&self, request: Request<Streaming<Message>>) -> Result<Response<Message>, Status> {
        let mut messages = request.into_inner();
        if matches!(self, Self::ReadsApart) {
            tokio::spawn(async move { while let Some(Ok(_)) = messages.next().await {} });
            return pending().await;
        }
        while let Some(result) = messages.next().await {
            if let Err(status) = result {
                assert_eq!(status.code(), Code::ResourceExhausted);
                match self {
                    Self::Swallows => break,
                    Self::Hides => return Err(Status::internal("it broke")),
                    Self::Hangs | Self::ReadsApart => return pending().await,
                }
            }
        }
        Ok(Response::new(message("done")))
    }

    type BidiStream = Messages;

    async fn bidi(&self, request: Request<Streaming<Message>>) -> Result<Response<Messages>, Status> {
        let this = *self;
        let (send, receive) = mpsc::channel(4);
        let mut messages = request.into_inner();
        tokio::spawn(async move {
            while let Some(result) = messages.next().await {
                match (result, this) {
                    (Ok(message), _) => drop(send.send(Ok(message)).await),
                    (Err(_), Self::Swallows) => return,
                    (Err(_), Self::Hides) => return drop(send.send(Err(Status::internal("it broke"))).await),
                    // The answer stays open.
                    (Err(_), _) => return send.closed().await,
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receive))))
    }
}

#[tokio::test]
async fn the_client_sees_the_denial_whatever_the_handler_makes_of_it() {
    for stubborn in [Stubborn::Swallows, Stubborn::Hides, Stubborn::Hangs, Stubborn::ReadsApart] {
        let mut client = served(stubborn, layer(five(), Charged::received())).await;
        is_told_all(&client.client(from("acme", messages(9))).await.unwrap_err());
        let (some, status) = texts(client.bidi(from("other", messages(9))).await.unwrap().into_inner()).await;
        assert!(some.len() <= 5, "{stubborn:?}: {some:?}");
        is_told_all(&status.unwrap());
        assert_eq!(codes(&mut client, "third", 1).await, [Code::Ok]);
    }
}

#[tokio::test]
async fn messages_can_have_a_quota_of_their_own() {
    let calls = two();
    let charged = Charged::both().limiter(five());
    let mut client = charging(calls.clone(), charged).await;
    let (some, status) = texts(client.server(from("acme", message(9))).await.unwrap().into_inner()).await;
    // The first comes with the call.
    assert_eq!(some.len(), 6);
    is_told_all(&status.unwrap());
    assert_eq!(left(&calls, "acme").await, 1);
}

#[tokio::test]
async fn in_shadow_messages_are_counted_and_none_is_denied() {
    let limiter = five();
    let shadow = tollgate_tonic::builder(limiter.clone(), Metadata::new("x-api-key")).shadow(true);
    let mut client = served(Echoing, shadow.charge_messages(Charged::both())).await;
    let (all, status) = texts(client.bidi(from("acme", messages(20))).await.unwrap().into_inner()).await;
    assert_eq!((all.len(), status.is_none()), (20, true));
    assert_eq!(left(&limiter, "acme").await, 0);
}

#[tokio::test]
async fn a_call_that_is_exempt_has_its_messages_free() {
    let layer = tollgate_tonic::builder(five(), Global)
        .exempt(tollgate_tonic::services(["echo.Echo"]))
        .charge_messages(Charged::both());
    let server = serve(Server::builder().layer(layer).add_service(EchoServer::new(Echoing))).await;
    let (all, status) = texts(client(server).await.bidi(messages(20)).await.unwrap().into_inner()).await;
    assert_eq!((all.len(), status.is_none()), (20, true));
}

#[tokio::test]
async fn a_message_that_waits_for_its_turn_holds_the_stream() {
    let limiter =
        Limiter::new(tollgate::MemoryStore::new(), Policy::token_bucket("fast", Quota::per_second(50).with_burst(1)));
    let waiting = tollgate_tonic::builder(limiter, Metadata::new("x-api-key")).wait(Duration::from_secs(60));
    let mut client = served(Echoing, waiting.charge_messages(Charged::sent())).await;
    let began = std::time::Instant::now();
    let (all, status) = texts(client.server(from("acme", message(6))).await.unwrap().into_inner()).await;
    assert_eq!((all.len(), status.is_none()), (6, true));
    assert!(began.elapsed() >= Duration::from_millis(95), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_store_that_is_away_ends_the_stream_as_unavailable() {
    let charged = Charged::sent().limiter(closed());
    let mut client = charging(five(), charged).await;
    let (some, status) = texts(client.server(from("acme", message(3))).await.unwrap().into_inner()).await;
    assert_eq!(some, ["0"]);
    assert_eq!(status.unwrap().code(), Code::Unavailable);
}

/// Tells when the stream that it sends is dropped.
#[derive(Clone)]
struct Watched(mpsc::Sender<()>);

#[tonic::async_trait]
impl Echo for Watched {
    async fn unary(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        Echoing.unary(request).await
    }

    type ServerStream = Messages;

    /// A message at once, and then nothing; or without end, for a `text` that says so.
    async fn server(&self, request: Request<Message>) -> Result<Response<Messages>, Status> {
        let dropped = Dropped(self.0.clone());
        let messages: Messages = match request.into_inner().text.as_str() {
            "endless" => Box::pin(tokio_stream::iter((0..).map(|at: u32| Ok(message(at))))),
            _ => Box::pin(tokio_stream::once(Ok(message("one"))).chain(tokio_stream::pending())),
        };
        Ok(Response::new(Box::pin(messages.map(move |message| {
            let _ = &dropped;
            message
        }))))
    }

    /// Tells that it has begun, too.
    async fn client(&self, request: Request<Streaming<Message>>) -> Result<Response<Message>, Status> {
        let _dropped = Dropped(self.0.clone());
        self.0.send(()).await.map_err(|_| Status::aborted("nobody watches"))?;
        Echoing.client(request).await
    }

    type BidiStream = Messages;

    async fn bidi(&self, request: Request<Streaming<Message>>) -> Result<Response<Messages>, Status> {
        Echoing.bidi(request).await
    }
}

struct Dropped(mpsc::Sender<()>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

#[tokio::test]
async fn what_a_handler_holds_is_dropped_with_the_denial_and_with_the_client() {
    let (dropped, mut seen) = mpsc::channel(1);
    for limiter in [five(), Limiter::new(Late(still()), FIVE)] {
        let mut client = served(Watched(dropped.clone()), layer(limiter, Charged::both())).await;
        let endless = client.server(from("acme", message("endless"))).await.unwrap().into_inner();
        let (some, status) = texts(endless).await;
        assert_eq!(some.len(), 5);
        is_told_all(&status.unwrap());
        seen.recv().await.unwrap();

        let mut quiet = client.server(from("other", message("quiet"))).await.unwrap().into_inner();
        quiet.message().await.unwrap().unwrap();
        drop(quiet);
        seen.recv().await.unwrap();

        let (send, receive) = mpsc::channel(1);
        send.send(message(1)).await.unwrap();
        let call = tokio::spawn({
            let mut client = client.clone();
            async move { client.client(from("third", ReceiverStream::new(receive))).await.map(drop) }
        });
        seen.recv().await.unwrap();
        call.abort();
        seen.recv().await.unwrap();
    }
}

#[tokio::test]
async fn a_compressed_message_is_one() {
    let gzip = CompressionEncoding::Gzip;
    let service = EchoServer::new(Echoing).accept_compressed(gzip).send_compressed(gzip);
    let limiter = five();
    let service = layer(limiter.clone(), Charged::both()).named_layer(service);
    let client = client(serve(Server::builder().add_service(service)).await).await;
    let mut client = client.accept_compressed(gzip).send_compressed(gzip);
    let long = || message("0123456789".repeat(10_000));
    let (all, status) =
        texts(client.bidi(from("acme", tokio_stream::iter([long(), long()]))).await.unwrap().into_inner()).await;
    assert_eq!((all.len(), status.is_none()), (2, true));
    assert_eq!(left(&limiter, "acme").await, 2);
}

/// A call whose request is sent in these DATA frames, by a client that knows nothing of gRPC; the code it ends with.
async fn in_frames(server: SocketAddr, frames: impl IntoIterator<Item = Bytes>) -> (String, usize) {
    let stream = TcpStream::connect(server).await.unwrap();
    let (send, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = HttpRequest::post(format!("http://{server}/echo.Echo/Bidi"))
        .header("content-type", "application/grpc")
        .header("x-api-key", "acme")
        .body(())
        .unwrap();
    let (response, mut body) = send.ready().await.unwrap().send_request(request, false).unwrap();
    for frame in frames {
        // The server may have ended the call.
        let _ = body.send_data(frame, false);
        tokio::task::yield_now().await;
    }
    let _ = body.send_data(Bytes::new(), true);
    let mut response = response.await.unwrap();
    let mut length = 0;
    while let Some(data) = response.body_mut().data().await {
        length += data.unwrap().len();
        let _ = response.body_mut().flow_control().release_capacity(length);
    }
    let trailers = response.body_mut().trailers().await.unwrap();
    let status = |headers: &http::HeaderMap| Some(headers.get("grpc-status")?.to_str().unwrap().to_owned());
    (trailers.as_ref().or(Some(response.headers())).and_then(status).unwrap(), length)
}

#[tokio::test]
async fn messages_are_counted_however_they_are_framed() {
    // Two bytes of content: field 1, an empty text.
    let bytes = |count: usize| [0, 0, 0, 0, 2, 0x0a, 0].repeat(count);
    for (count, code) in [(5, "0"), (6, "8")] {
        for size in [1, 2, 4, 5, 6, 7, 8, 13, 1000] {
            let layer = layer(five(), Charged::received());
            let server = serve(Server::builder().layer(layer).add_service(EchoServer::new(Echoing))).await;
            let frames: Vec<_> = bytes(count).chunks(size).map(Bytes::copy_from_slice).collect();
            let (seen, length) = in_frames(server, frames).await;
            assert_eq!(seen, code, "{count} messages in frames of {size}");
            assert!(length <= 5 * 5, "{count} messages in frames of {size}: {length} bytes");
        }
    }
}

#[tokio::test]
async fn behind_the_translation_of_grpc_web_messages_are_charged() {
    let service = layer(five(), Charged::sent()).layer(EchoServer::new(Echoing));
    web(GrpcWebLayer::new().layer(service)).await;
}

#[tokio::test]
async fn in_front_of_the_translation_of_grpc_web_binary_messages_are_charged() {
    let service = layer(five(), Charged::both()).layer(GrpcWebLayer::new().layer(EchoServer::new(Echoing)));
    web(service).await;
}

/// A gRPC-Web client is sent five messages, and the denial of the sixth.
async fn web<S>(service: S)
where
    S: tower::Service<
            HttpRequest<tonic::body::Body>,
            Response = http::Response<tonic::body::Body>,
            Error = std::convert::Infallible,
        > + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let service = service.map_request(|request: HttpRequest<tonic_web::GrpcWebCall<tonic::body::Body>>| {
        request.map(tonic::body::Body::new)
    });
    let mut client = EchoClient::new(GrpcWebClientService::new(service));
    // The trailers come in a frame of their own, which is no message.
    let (all, status) = texts(client.server(from("other", message(5))).await.unwrap().into_inner()).await;
    assert_eq!((all.len(), status.map(|status| status.code())), (5, None));
    let (some, status) = texts(client.server(from("acme", message(9))).await.unwrap().into_inner()).await;
    assert_eq!(some, ["0", "1", "2", "3", "4"]);
    is_told_all(&status.unwrap());
}

fn web_text(path: &str) -> HttpRequest<tonic::body::Body> {
    use base64::{Engine, prelude::BASE64_STANDARD};
    // Field 1, the text "9".
    let body = BASE64_STANDARD.encode([0, 0, 0, 0, 3, 0x0a, 1, b'9']);
    HttpRequest::post(path)
        .header("content-type", "application/grpc-web-text")
        .header("accept", "application/grpc-web-text")
        .header("x-api-key", "acme")
        .body(tonic::body::Body::new(http_body_util::Full::new(Bytes::from(body))))
        .unwrap()
}

#[tokio::test]
async fn messages_in_base64_are_charged_behind_the_translation_and_refused_in_front_of_it() {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let charged = || layer(five(), Charged::sent());
    let behind = GrpcWebLayer::new().layer(charged().layer(EchoServer::new(Echoing)));
    let mut body = behind.oneshot(web_text("/echo.Echo/Server")).await.unwrap().into_body();
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        text.extend(BASE64_STANDARD.decode(frame.unwrap().into_data().unwrap()).unwrap());
    }
    let messages = text.windows(2).filter(|field| field == b"\x0a\x01").count();
    assert_eq!(messages, 5);
    assert!(String::from_utf8_lossy(&text).contains("grpc-status:8"));

    let before = charged().layer(GrpcWebLayer::new().layer(EchoServer::new(Echoing)));
    let refused = before.oneshot(web_text("/echo.Echo/Server")).await.unwrap();
    assert_eq!(refused.headers()["grpc-status"], "13");
    assert_eq!(refused.headers()["content-type"], "application/grpc-web-text+proto");
}

#[tokio::test]
async fn on_one_port_with_http_messages_are_charged_and_http_is_served() {
    let layer = tollgate_tonic::builder(five(), Metadata::new("x-api-key"))
        .respond_with(GrpcStatus::new().or_http(Problem::new()))
        .exempt(health_and_reflection())
        .charge_messages(Charged::sent());
    let router = axum::Router::new()
        .route("/", axum::routing::get(|| async { "hello" }))
        .merge(tonic::service::Routes::new(EchoServer::new(Echoing)).into_axum_router())
        .layer(layer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let get = || HttpRequest::get("/").header("x-api-key", "other").body(axum::body::Body::empty()).unwrap();
    let hello = router.clone().oneshot(get()).await.unwrap();
    assert_eq!(hello.into_body().collect().await.unwrap().to_bytes(), "hello");
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut client = client(address).await;
    let (some, status) = texts(client.server(from("acme", message(9))).await.unwrap().into_inner()).await;
    assert_eq!(some.len(), 5);
    is_told_all(&status.unwrap());
}
