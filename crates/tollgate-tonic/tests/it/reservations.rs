//! Calls whose cost is settled when their response ends, and calls at the same time.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::{
    Cost, Limiter, MemoryStore, Policy, Quota,
    permits::{Concurrency, ConcurrencyLimiter},
};
use tollgate_tonic::{
    GrpcStatus,
    key::Metadata,
    messages::{MessageCounterLayer, metered},
};
use tollgate_tower::{ConcurrencyLayer, Meter, ReservationLayer};
use tonic::{
    Code, Request, Response, Status, Streaming,
    transport::{Channel, Server},
};

use crate::support::*;

const CALLS: Policy = Policy::fixed_window("calls", Quota::per_day(100));
const MESSAGES: Policy = Policy::fixed_window("messages", Quota::per_day(1_000));

fn limiter() -> Limiter {
    Limiter::new(frozen_store(), [CALLS, MESSAGES])
}

fn reserving(limiter: &Limiter) -> ReservationLayer<Metadata, GrpcStatus> {
    let builder = tollgate_tonic::builder(limiter.clone(), Metadata::new("x-api-key"));
    builder
        .reserve(|_| [("calls", 1), ("messages", 100)])
        .build()
}

/// Starts an echo server that reserves 100 messages, and returns a client of it.
async fn reserving_client(limiter: &Limiter) -> EchoClient<Channel> {
    let counter = MessageCounterLayer::for_policy("messages");
    let server = Server::builder()
        .layer(reserving(limiter))
        .layer(counter)
        .add_service(EchoServer::new(Echoing));
    client(serve(server).await).await
}

/// Returns the calls and the messages that are charged to a key.
async fn charged(limiter: &Limiter) -> (u64, u64) {
    let state = limiter.peek("acme").await.unwrap();
    let remaining = |policy| state.state(policy).unwrap().remaining();
    (100 - remaining("calls"), 1_000 - remaining("messages"))
}

/// Waits until this is charged: the server settles a response when its last frame has left, or when
/// it sees the client go.
async fn until_charged(limiter: &Limiter, expected: (u64, u64)) {
    let wait = async {
        while charged(limiter).await != expected {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
    assert!(
        waited.is_ok(),
        "{:?} are charged instead of {expected:?}",
        charged(limiter).await
    );
}

#[tokio::test]
async fn calls_cost_the_messages_that_the_server_sent() {
    let limiter = limiter();
    let mut client = reserving_client(&limiter).await;
    let (all, status) = streamed(&mut client, "acme", 250).await;
    assert_eq!((all.len(), status.is_none()), (250, true));
    until_charged(&limiter, (1, 250)).await;

    assert_eq!(codes(&mut client, "acme", 1).await, [Code::Ok]);
    until_charged(&limiter, (2, 251)).await;
    assert_eq!(
        client
            .client(request_from("acme", messages(20)))
            .await
            .unwrap()
            .into_inner()
            .text,
        "20"
    );
    until_charged(&limiter, (3, 252)).await;

    // A call that fails has sent no message.
    let failed = client
        .server(request_from("acme", message("no number")))
        .await;
    assert_eq!(failed.unwrap_err().code(), Code::InvalidArgument);
    until_charged(&limiter, (4, 252)).await;
}

#[tokio::test]
async fn a_client_that_hangs_up_pays_the_messages_that_were_sent() {
    let limiter = limiter();
    let mut client = reserving_client(&limiter).await;
    let (sender, receiver) = mpsc::channel(1);
    let call = client.bidi(request_from("acme", ReceiverStream::new(receiver)));
    sender.send(message("one")).await.unwrap();
    let mut echoes = call.await.unwrap().into_inner();
    sender.send(message("two")).await.unwrap();
    for text in ["one", "two"] {
        assert_eq!(echoes.message().await.unwrap().unwrap().text, text);
    }
    assert_eq!(charged(&limiter).await, (1, 100), "the stream is open");
    drop((echoes, sender));
    until_charged(&limiter, (1, 2)).await;
}

/// Counts as a handler does.
#[allow(clippy::result_large_err, reason = "the signature of an interceptor")]
fn count_950(request: Request<()>) -> Result<Request<()>, tonic::Status> {
    let meter = request.extensions().get::<Meter>().unwrap();
    meter.counter("messages").unwrap().set(950);
    Ok(request)
}

#[tokio::test]
async fn a_handler_counts_with_the_meter_of_its_request_and_a_full_quota_denies() {
    let limiter = limiter();
    let echo = EchoServer::with_interceptor(Echoing, count_950);
    let mut client = client(
        serve(
            Server::builder()
                .layer(reserving(&limiter))
                .add_service(echo),
        )
        .await,
    )
    .await;
    assert_eq!(codes(&mut client, "acme", 1).await, [Code::Ok]);
    until_charged(&limiter, (1, 950)).await;
    assert_eq!(
        codes(&mut client, "acme", 1).await,
        [Code::ResourceExhausted]
    );
    assert_eq!(charged(&limiter).await, (1, 950));
}

#[tokio::test]
async fn the_meter_of_an_exempt_call_counts_nothing() {
    let limiter = limiter();
    let builder =
        tollgate_tonic::builder(limiter.clone(), Metadata::new("x-api-key")).exempt(|_| true);
    let layer = builder
        .reserve(|_| [("calls", 1), ("messages", 100)])
        .build();
    let mut server = Server::builder()
        .layer(layer)
        .layer(MessageCounterLayer::for_policy("messages"));
    let server = server.add_service(EchoServer::with_interceptor(Echoing, count_950));
    let mut client = client(serve(server).await).await;
    assert_eq!(codes(&mut client, "acme", 2).await, [Code::Ok; 2]);
    assert_eq!(charged(&limiter).await, (0, 0));
}

#[tokio::test]
async fn a_counter_without_a_policy_counts_for_all_and_a_wrong_name_counts_nothing() {
    for (counter, cost) in [
        (MessageCounterLayer::new(), 7),
        (MessageCounterLayer::for_policy("bytes"), 3),
    ] {
        let limiter = Limiter::new(frozen_store(), MESSAGES);
        let builder = tollgate_tonic::builder(limiter.clone(), Metadata::new("x-api-key"));
        let reserve = builder.reserve(|_| Cost::new(3)).build();
        let server = Server::builder()
            .layer(reserve)
            .layer(counter)
            .add_service(EchoServer::new(Echoing));
        let mut client = client(serve(server).await).await;
        streamed(&mut client, "acme", 7).await;
        let wait = async {
            while remaining(&limiter, "acme").await != 1_000 - cost {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wait)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_stream_holds_its_permit_until_it_ends() {
    let limiter = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("streams", 1));
    let layer = ConcurrencyLayer::builder(limiter.clone(), Metadata::new("x-api-key"))
        .headers(false)
        .respond_with(GrpcStatus::new())
        .build();
    let mut client = client(serve_behind(layer).await).await;
    let (sender, receiver) = mpsc::channel(1);
    let call = client.bidi(request_from("acme", ReceiverStream::new(receiver)));
    sender.send(message("one")).await.unwrap();
    let mut echoes = call.await.unwrap().into_inner();
    assert_eq!(echoes.message().await.unwrap().unwrap().text, "one");

    let denied = denial(&mut client).await;
    assert_eq!(
        (denied.code(), denied.message()),
        (Code::ResourceExhausted, "concurrency limit exceeded")
    );
    assert_eq!(reason_of(&denied), "CONCURRENCY_LIMIT_EXCEEDED");
    assert_eq!(codes(&mut client, "other", 1).await, [Code::Ok]);

    drop(sender);
    assert!(echoes.message().await.unwrap().is_none());
    let wait = async {
        while limiter.try_acquire("acme").await.unwrap().is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait)
        .await
        .expect("the permit is given back");
    assert_eq!(codes(&mut client, "acme", 1).await, [Code::Ok]);
}

/// Echoes, and sends what its reservation covers.
struct Growing;

#[tonic::async_trait]
impl Echo for Growing {
    async fn unary(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        Echoing.unary(request).await
    }

    type ServerStream = MessageStream;

    async fn server(&self, request: Request<Message>) -> Result<Response<MessageStream>, Status> {
        let meter = request.extensions().get::<Meter>().unwrap().clone();
        let messages = Echoing.server(request).await?.into_inner();
        Ok(Response::new(Box::pin(metered(messages, &meter))))
    }

    async fn client(
        &self,
        request: Request<Streaming<Message>>,
    ) -> Result<Response<Message>, Status> {
        Echoing.client(request).await
    }

    type BidiStream = MessageStream;

    async fn bidi(
        &self,
        request: Request<Streaming<Message>>,
    ) -> Result<Response<MessageStream>, Status> {
        Echoing.bidi(request).await
    }
}

#[tokio::test]
async fn a_stream_that_is_denied_ends_with_its_status_after_all_that_was_reserved() {
    let limiter = limiter();
    let builder = tollgate_tonic::builder(limiter.clone(), Metadata::new("x-api-key"));
    let layer = builder
        .reserve(|_| [("calls", 1), ("messages", 0)])
        .growing([("messages", 30)])
        .build();
    let server = Server::builder()
        .layer(layer)
        .add_service(EchoServer::new(Growing));
    let mut client = client(serve(server).await).await;

    // A stream that is covered ends as it would without a limit.
    let (texts, status) = streamed(&mut client, "acme", 100).await;
    assert_eq!((texts.len(), status.is_none()), (100, true));
    until_charged(&limiter, (1, 100)).await;

    // 30 slices are left.
    let (texts, status) = streamed(&mut client, "acme", 5_000).await;
    let expected: Vec<_> = (0..900).map(|at| at.to_string()).collect();
    assert_eq!(texts, expected);
    let status = status.unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(quota_of(&status), "messages");
    assert!(retry_secs(&status) > 0);
    until_charged(&limiter, (2, 1_000)).await;
}
