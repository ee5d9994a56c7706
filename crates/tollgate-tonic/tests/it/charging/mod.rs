//! The option that charges messages, seen by clients.

mod framing;
mod handlers;

use std::time::Duration;

use http::Request as HttpRequest;
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::{Limiter, Policy, Quota, RedisStore};
use tollgate_tests::RedisServer;
use tollgate_tonic::{
    ChargeMessages, GrpcStatus, Messages as Charged, MessagesLayer, health_and_reflection, key::Metadata,
};
use tollgate_tower::{key::Global, rejection::Problem};
use tonic::{
    Code, Status, Streaming,
    transport::{Channel, Server},
};
use tonic_types::StatusExt;
use tower::ServiceExt;

use crate::support::*;

const FIVE: Policy = Policy::token_bucket("five", Quota::per_minute(5));

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
