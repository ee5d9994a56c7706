//! Provides an echo server with one method of each kind, its clients, and limiters for tests.

use std::{convert::Infallible, net::SocketAddr, pin::Pin};

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::{Stream, StreamExt};
use tollgate::{
    Decision, Limiter, MemoryStore, Outage, Policy, Quota, Store,
    store::{Check, CheckFuture, Clock, StoreFuture},
    test_util::FaultyStore,
};
use tollgate_test_support::SilentStore;
use tonic::{
    Code, Request, Response, Status, Streaming,
    body::Body,
    client::GrpcService,
    codegen::StdError,
    transport::{
        Channel, Endpoint, Server,
        server::{Router, TcpIncoming},
    },
};
use tonic_types::StatusExt;
use tonic_web::{GrpcWebCall, GrpcWebClientService};
use tower::{ServiceExt, util::BoxCloneService};

pub(crate) use crate::generated::echo::{
    Message,
    echo_client::EchoClient,
    echo_server::{Echo, EchoServer},
};

pub(crate) const TWO: Policy = Policy::token_bucket("two", Quota::per_minute(2));
pub(crate) const MANY: Policy = Policy::token_bucket("many", Quota::per_minute(1000));

/// The codes of three calls that spend from a quota of two.
pub(crate) const TWO_OF_THREE: [Code; 3] = [Code::Ok, Code::Ok, Code::ResourceExhausted];

/// Returns a store in process whose clock does not move.
pub(crate) fn frozen_store() -> MemoryStore {
    MemoryStore::builder()
        .clock(Clock::manual(1_800_000_000_000_000))
        .build()
}

/// Returns a limiter with a frozen store.
pub(crate) fn limiter(policy: Policy) -> Limiter {
    Limiter::new(frozen_store(), policy)
}

/// Returns a limiter with a frozen store that is not in process.
pub(crate) fn remote_limiter(policy: Policy) -> Limiter {
    Limiter::new(RemoteStore(frozen_store()), policy)
}

/// Decides like the inner store, but each check is pending at first, as with Redis.
#[derive(Clone, Debug)]
struct RemoteStore(MemoryStore);

impl Store for RemoteStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let decision = self.0.check(check);
        StoreFuture::pending(async {
            tokio::task::yield_now().await;
            decision.await
        })
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.0.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.0.reset(check)
    }
}

/// Returns a closed limiter whose store fails.
pub(crate) fn unavailable_limiter() -> Limiter {
    let store = FaultyStore::default();
    store.fail();
    Limiter::builder(store)
        .policies(TWO)
        .on_outage(Outage::Closed)
        .build()
}

/// Returns a limiter whose store claims to be in process, although its checks are pending.
pub(crate) fn pending_limiter(policy: Policy) -> Limiter {
    Limiter::new(SilentStore::new(true), policy)
}

/// Returns the units that a key has left in the first policy of a limiter.
pub(crate) async fn remaining(limiter: &Limiter, key: &str) -> u64 {
    limiter
        .peek(key)
        .await
        .unwrap()
        .states()
        .next()
        .unwrap()
        .remaining()
}

/// Returns the messages that it receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echoing;

pub(crate) type MessageStream = Pin<Box<dyn Stream<Item = Result<Message, Status>> + Send>>;

#[tonic::async_trait]
impl Echo for Echoing {
    async fn unary(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type ServerStream = MessageStream;

    async fn server(&self, request: Request<Message>) -> Result<Response<MessageStream>, Status> {
        let count: u32 = request
            .into_inner()
            .text
            .parse()
            .map_err(|_| Status::invalid_argument("the text is not a number"))?;
        Ok(Response::new(Box::pin(tokio_stream::iter(
            (0..count).map(|at| Ok(message(at))),
        ))))
    }

    async fn client(
        &self,
        request: Request<Streaming<Message>>,
    ) -> Result<Response<Message>, Status> {
        let mut messages = request.into_inner();
        let mut count = 0;
        while messages.next().await.transpose()?.is_some() {
            count += 1;
        }
        Ok(Response::new(message(count)))
    }

    type BidiStream = MessageStream;

    async fn bidi(
        &self,
        request: Request<Streaming<Message>>,
    ) -> Result<Response<MessageStream>, Status> {
        Ok(Response::new(Box::pin(request.into_inner())))
    }
}

#[allow(clippy::needless_pass_by_value, reason = "numbers and texts alike")]
pub(crate) fn message(text: impl ToString) -> Message {
    Message {
        text: text.to_string(),
    }
}

/// Returns a stream of `count` messages.
pub(crate) fn messages(count: u32) -> impl Stream<Item = Message> + Send + 'static {
    tokio_stream::iter((0..count).map(message).collect::<Vec<_>>())
}

/// Reads a stream to its end: the texts of its messages, and the status of an error.
pub(crate) async fn texts(mut messages: Streaming<Message>) -> (Vec<String>, Option<Status>) {
    let mut texts = Vec::new();
    loop {
        match messages.message().await {
            Ok(Some(message)) => texts.push(message.text),
            Ok(None) => return (texts, None),
            Err(status) => return (texts, Some(status)),
        }
    }
}

/// Asks for a stream of `count` messages and reads it to its end, as [`texts`] does.
pub(crate) async fn streamed<T>(
    client: &mut EchoClient<T>,
    api_key: &str,
    count: u32,
) -> (Vec<String>, Option<Status>)
where
    T: GrpcService<Body, Error: Into<StdError>>,
    T::ResponseBody: http_body::Body<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
{
    let opened = client.server(request_from(api_key, message(count))).await;
    texts(opened.unwrap().into_inner()).await
}

/// Makes a unary call for the key `acme` that is denied, and returns its status.
pub(crate) async fn denial<T>(client: &mut EchoClient<T>) -> Status
where
    T: GrpcService<Body, Error: Into<StdError>>,
    T::ResponseBody: http_body::Body<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
{
    let call = request_from("acme", message("hello"));
    client.unary(call).await.unwrap_err()
}

/// Returns the seconds after which a denied call may come back.
pub(crate) fn retry_secs(status: &Status) -> u64 {
    let info = status.get_details_retry_info().unwrap();
    info.retry_delay.unwrap().as_secs()
}

/// Returns the policy that denied a call.
pub(crate) fn quota_of(status: &Status) -> String {
    let mut violations = status.get_details_quota_failure().unwrap().violations;
    violations.remove(0).quota_id
}

/// Returns the reason of a denial.
pub(crate) fn reason_of(status: &Status) -> String {
    status.get_details_error_info().unwrap().reason
}

/// Returns a request with an API key.
pub(crate) fn request_from<T>(api_key: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("x-api-key", api_key.parse().unwrap());
    request
}

/// Starts a server of axum that runs until the test ends, and returns its address.
pub(crate) async fn serve_axum(router: axum::Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Short frames follow each other: without this, each waits for the acknowledgement of the
    // former.
    let listener =
        axum::serve::ListenerExt::tap_io(listener, |stream| stream.set_nodelay(true).unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Starts a server that runs until the test ends, and returns its address.
pub(crate) async fn serve<L, B>(router: Router<L>) -> SocketAddr
where
    L: tower::Layer<tonic::service::Routes> + Clone + Send + 'static,
    L::Service:
        tower::Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + 'static,
    <L::Service as tower::Service<http::Request<Body>>>::Future: Send,
    <L::Service as tower::Service<http::Request<Body>>>::Error:
        Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into())
        .unwrap()
        .with_nodelay(Some(true));
    let address = incoming.local_addr().unwrap();
    tokio::spawn(router.serve_with_incoming(incoming));
    address
}

/// Starts the echo server behind `layer`, and returns its address.
pub(crate) async fn serve_behind<L, B>(layer: L) -> SocketAddr
where
    L: tower::Layer<tonic::service::Routes> + Clone + Send + 'static,
    L::Service: tower::Service<
            http::Request<Body>,
            Response = http::Response<B>,
            Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
            Future: Send,
        > + Clone
        + Send
        + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + 'static,
{
    let mut server = Server::builder().layer(layer);
    serve(server.add_service(EchoServer::new(Echoing))).await
}

/// Starts a server behind `layer`, and returns a client of it.
pub(crate) async fn client_behind<K>(
    layer: tollgate_tower::RateLimitLayer<K, tollgate_tonic::GrpcStatus>,
) -> EchoClient<Channel>
where
    K: tollgate_tower::KeyExtractor,
{
    client(serve_behind(layer).await).await
}

/// Returns a client of the server at `address`.
pub(crate) async fn client(address: SocketAddr) -> EchoClient<Channel> {
    EchoClient::new(channel(address).await)
}

pub(crate) async fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap()
}

/// Makes `count` unary calls one after the other, and returns their codes.
pub(crate) async fn codes(
    client: &mut EchoClient<Channel>,
    api_key: &str,
    count: usize,
) -> Vec<Code> {
    let mut codes = Vec::new();
    for _ in 0..count {
        let result = client.unary(request_from(api_key, message("hello"))).await;
        codes.push(result.map_or_else(|status| status.code(), |_| Code::Ok));
    }
    codes
}

/// Returns the code of one call that is answered by a stream.
pub(crate) async fn stream_code(client: &mut EchoClient<Channel>, api_key: &str) -> Code {
    let result = client.server(request_from(api_key, message(1))).await;
    result.map_or_else(|status| status.code(), |_| Code::Ok)
}

/// Makes one call of each method. Asserts that each allowed call does its work.
pub(crate) async fn call_each_method(client: &mut EchoClient<Channel>) -> [Result<(), Status>; 4] {
    let three = || tokio_stream::iter([message(1), message(2), message(3)]);
    let texts = async |messages: Response<Streaming<Message>>| {
        let (texts, status) = texts(messages.into_inner()).await;
        status.map_or(Ok(texts), Err)
    };
    let unary = client.unary(request_from("acme", message("hello"))).await;
    let server = client.server(request_from("acme", message(3))).await;
    let client_streaming = client.client(request_from("acme", three())).await;
    let bidi = client.bidi(request_from("acme", three())).await;
    [
        unary.map(|it| assert_eq!(it.into_inner().text, "hello")),
        match server {
            Ok(messages) => texts(messages)
                .await
                .map(|it| assert_eq!(it, ["0", "1", "2"])),
            Err(status) => Err(status),
        },
        client_streaming.map(|it| assert_eq!(it.into_inner().text, "3")),
        match bidi {
            Ok(messages) => texts(messages)
                .await
                .map(|it| assert_eq!(it, ["1", "2", "3"])),
            Err(status) => Err(status),
        },
    ]
}

/// Opens an HTTP/2 connection for requests that are put together by hand.
pub(crate) async fn http2(server: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(server).await.unwrap();
    let (send, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    send.ready().await.unwrap()
}

pub(crate) type WebClient = EchoClient<GrpcWebClientService<WebService>>;

type WebService =
    BoxCloneService<http::Request<GrpcWebCall<Body>>, http::Response<Body>, Infallible>;

/// Returns a gRPC-Web client of a service in process.
pub(crate) fn web_client<S>(service: S) -> WebClient
where
    S: tower::Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    let service =
        service.map_request(|request: http::Request<GrpcWebCall<Body>>| request.map(Body::new));
    EchoClient::new(GrpcWebClientService::new(service.boxed_clone()))
}
