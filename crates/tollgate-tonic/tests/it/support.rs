//! A server with one method of each kind, and clients of it.

use std::{net::SocketAddr, pin::Pin, time::Duration};

use tokio::net::TcpListener;
use tokio_stream::{Stream, StreamExt, wrappers::TcpListenerStream};
use tollgate::{
    Check, CheckFuture, Clock, Decision, Error, Key, Limiter, MemoryStore, Outage, Policy, PolicySet, Quota, Store,
    StoreFuture,
};
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Channel, Endpoint, Server, server::Router},
};

pub(crate) use crate::generated::echo::{
    Message,
    echo_client::EchoClient,
    echo_server::{Echo, EchoServer},
};

pub(crate) const TWO: Policy = Policy::token_bucket("two", Quota::per_minute(2));
pub(crate) const MANY: Policy = Policy::token_bucket("many", Quota::per_minute(1000));

/// An in-process store on a clock that stands still.
pub(crate) fn still() -> MemoryStore {
    MemoryStore::builder().clock(Clock::manual(1_800_000_000_000_000)).build()
}

pub(crate) fn two() -> Limiter {
    Limiter::new(still(), TWO)
}

/// Answers as the store inside, but not at once, as Redis does.
#[derive(Clone, Debug)]
pub(crate) struct Late(pub(crate) MemoryStore);

impl Store for Late {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let answer = self.0.check(check);
        StoreFuture::pending(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            answer.await
        })
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.0.refund(check, decision)
    }

    fn reset(&self, policies: &PolicySet, key: &Key) -> StoreFuture<()> {
        self.0.reset(policies, key)
    }
}

/// A limiter that is closed because its store is away.
pub(crate) fn closed() -> Limiter {
    #[derive(Clone, Debug)]
    struct Away;

    fn away<T>() -> StoreFuture<T> {
        StoreFuture::ready(Err(Error::unavailable("the store at 10.0.0.7 is away")))
    }

    impl Store for Away {
        fn check(&self, _: Check<'_>) -> CheckFuture {
            away()
        }

        fn refund(&self, _: Check<'_>, _: Option<&Decision>) -> StoreFuture<()> {
            away()
        }

        fn reset(&self, _: &PolicySet, _: &Key) -> StoreFuture<()> {
            away()
        }
    }

    Limiter::builder(Away).policies(TWO).on_outage(Outage::Closed).build()
}

/// Answers with what it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echoing;

pub(crate) type Messages = Pin<Box<dyn Stream<Item = Result<Message, Status>> + Send>>;

#[tonic::async_trait]
impl Echo for Echoing {
    async fn unary(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type ServerStream = Messages;

    async fn server(&self, request: Request<Message>) -> Result<Response<Messages>, Status> {
        let count: u32 = request.into_inner().text.parse().map_err(|_| Status::invalid_argument("a number"))?;
        Ok(Response::new(Box::pin(tokio_stream::iter((0..count).map(|at| Ok(message(at)))))))
    }

    async fn client(&self, request: Request<Streaming<Message>>) -> Result<Response<Message>, Status> {
        let mut messages = request.into_inner();
        let mut count = 0;
        while messages.next().await.transpose()?.is_some() {
            count += 1;
        }
        Ok(Response::new(message(count)))
    }

    type BidiStream = Messages;

    async fn bidi(&self, request: Request<Streaming<Message>>) -> Result<Response<Messages>, Status> {
        Ok(Response::new(Box::pin(request.into_inner())))
    }
}

#[allow(clippy::needless_pass_by_value, reason = "numbers and texts alike")]
pub(crate) fn message(text: impl ToString) -> Message {
    Message { text: text.to_string() }
}

/// A request with an API key.
pub(crate) fn from<T>(api_key: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-api-key", api_key.parse().unwrap());
    request
}

/// Serves until the test ends.
pub(crate) async fn serve<L>(router: Router<L>) -> SocketAddr
where
    L: tower::Layer<tonic::service::Routes> + Clone + Send + 'static,
    L::Service: tower::Service<http::Request<tonic::body::Body>, Response = http::Response<tonic::body::Body>>
        + Clone
        + Send
        + 'static,
    <L::Service as tower::Service<http::Request<tonic::body::Body>>>::Future: Send,
    <L::Service as tower::Service<http::Request<tonic::body::Body>>>::Error:
        Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    address
}

/// A server behind `layer`, and a client of it.
pub(crate) async fn limited<K>(
    layer: tollgate_tower::RateLimitLayer<K, tollgate_tonic::GrpcStatus>,
) -> EchoClient<Channel>
where
    K: tollgate_tower::KeyExtractor,
{
    client(serve(Server::builder().layer(layer).add_service(EchoServer::new(Echoing))).await).await
}

pub(crate) async fn client(address: SocketAddr) -> EchoClient<Channel> {
    EchoClient::new(channel(address).await)
}

pub(crate) async fn channel(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// The codes of `count` unary calls in a row.
pub(crate) async fn codes(client: &mut EchoClient<Channel>, api_key: &str, count: usize) -> Vec<tonic::Code> {
    let mut codes = Vec::new();
    for _ in 0..count {
        let result = client.unary(from(api_key, message("hello"))).await;
        codes.push(result.map_or_else(|status| status.code(), |_| tonic::Code::Ok));
    }
    codes
}
