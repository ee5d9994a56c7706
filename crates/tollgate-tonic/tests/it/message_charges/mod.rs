//! `MessageLayer`.

mod counted;
mod framing;
mod handlers;

use std::time::Duration;

use http::Request as HttpRequest;
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::{Limiter, Policy, Quota};

use tollgate_tonic::{
    GrpcStatus, health_and_reflection,
    key::Metadata,
    messages::{MessageCharge, MessageLayer},
};
use tollgate_tower::rejection::Problem;
use tonic::{
    Code, Status,
    transport::{Channel, Server},
};
use tonic_types::StatusExt;
use tower::ServiceExt;

use crate::support::*;

const FIVE: Policy = Policy::token_bucket("five", Quota::per_minute(5));

fn layer(limiter: Limiter, charge: MessageCharge) -> MessageLayer<Metadata> {
    MessageLayer::new(
        tollgate_tonic::builder(limiter, Metadata::new("x-api-key")),
        charge,
    )
}

/// Starts a server behind `layer`, and returns a client of it.
async fn client_of(echo: impl Echo, layer: MessageLayer<Metadata>) -> EchoClient<Channel> {
    client(
        serve(
            Server::builder()
                .layer(layer)
                .add_service(EchoServer::new(echo)),
        )
        .await,
    )
    .await
}

/// Starts an echo server that charges messages, and returns a client of it.
async fn charging_client(limiter: Limiter, charge: MessageCharge) -> EchoClient<Channel> {
    client_of(Echoing, layer(limiter, charge)).await
}

/// Asserts that a status is that of a denied call, with all details.
fn assert_denied_with_details(status: &Status) {
    assert_eq!(
        (status.code(), status.message()),
        (Code::ResourceExhausted, "rate limit exceeded"),
        "{status:?}"
    );
    assert_eq!(retry_secs(status), 12);
    assert_eq!(quota_of(status), "five");
    assert_eq!(reason_of(status), "RATE_LIMIT_EXCEEDED");
}

#[tokio::test]
async fn a_unary_call_costs_the_same_with_charged_messages() {
    let limiter = limiter(FIVE);
    let mut client = charging_client(limiter.clone(), MessageCharge::both()).await;
    assert_eq!(codes(&mut client, "acme", 4).await, [Code::Ok; 4]);
    assert_eq!(remaining(&limiter, "acme").await, 1);
    assert_eq!(
        codes(&mut client, "acme", 2).await,
        [Code::Ok, Code::ResourceExhausted]
    );
}

#[tokio::test]
async fn a_response_stream_ends_at_the_denied_message() {
    for limiter in [limiter(FIVE), remote_limiter(FIVE)] {
        let mut client = charging_client(limiter.clone(), MessageCharge::sent()).await;
        let (all, status) = streamed(&mut client, "other", 5).await;
        assert_eq!((all.len(), status.is_none()), (5, true));
        let (some, status) = streamed(&mut client, "acme", 9).await;
        assert_eq!(some, ["0", "1", "2", "3", "4"]);
        assert_denied_with_details(&status.unwrap());
        // The connection still works.
        assert_eq!(codes(&mut client, "third", 1).await, [Code::Ok]);
        assert_eq!(
            client
                .client(request_from("third", messages(20)))
                .await
                .unwrap()
                .into_inner()
                .text,
            "20"
        );
    }
}

#[tokio::test]
async fn a_request_stream_ends_at_the_denied_message() {
    for limiter in [limiter(FIVE), remote_limiter(FIVE)] {
        let mut client = charging_client(limiter, MessageCharge::received()).await;
        assert_eq!(
            client
                .client(request_from("other", messages(5)))
                .await
                .unwrap()
                .into_inner()
                .text,
            "5"
        );
        assert_denied_with_details(
            &client
                .client(request_from("acme", messages(6)))
                .await
                .unwrap_err(),
        );
        assert_eq!(codes(&mut client, "third", 1).await, [Code::Ok]);
        let (all, status) = streamed(&mut client, "third", 20).await;
        assert_eq!((all.len(), status.is_none()), (20, true));
    }
}

#[tokio::test]
async fn a_bidirectional_stream_is_charged_in_both_directions() {
    let limiter = limiter(FIVE);
    let mut client = charging_client(limiter.clone(), MessageCharge::both()).await;
    let (send, receive) = mpsc::channel(1);
    let mut answers = client
        .bidi(request_from("acme", ReceiverStream::new(receive)))
        .await
        .unwrap()
        .into_inner();
    // The charge for the call includes the first message in each direction.
    for (count, expected) in [(1, 4), (2, 2), (3, 0)] {
        send.send(message(count)).await.unwrap();
        assert_eq!(
            answers.message().await.unwrap().unwrap().text,
            count.to_string()
        );
        assert_eq!(remaining(&limiter, "acme").await, expected);
    }
    send.send(message(4)).await.unwrap();
    assert_denied_with_details(&answers.message().await.unwrap_err());
    assert!(answers.message().await.unwrap().is_none());
}

#[tokio::test]
async fn messages_can_have_a_separate_quota() {
    let calls = limiter(TWO);
    let charge = MessageCharge::both().limiter(limiter(FIVE));
    let mut client = charging_client(calls.clone(), charge).await;
    let (some, status) = streamed(&mut client, "acme", 9).await;
    // The charge for the call includes the first message.
    assert_eq!(some.len(), 6);
    assert_denied_with_details(&status.unwrap());
    assert_eq!(remaining(&calls, "acme").await, 1);
}

#[tokio::test]
async fn a_denied_message_has_the_status_options_of_the_layer() {
    let responder = GrpcStatus::new()
        .domain("greeter.example.com")
        .subject("project:42")
        .pushback(true);
    let calls =
        tollgate_tonic::builder(limiter(FIVE), Metadata::new("x-api-key")).respond_with(responder);
    let mut client = client_of(Echoing, MessageLayer::new(calls, MessageCharge::both())).await;
    let (_, sent) = streamed(&mut client, "acme", 9).await;
    let received = client
        .client(request_from("other", messages(9)))
        .await
        .unwrap_err();
    for status in [sent.unwrap(), received] {
        assert_denied_with_details(&status);
        assert_eq!(
            status.get_details_error_info().unwrap().domain,
            "greeter.example.com"
        );
        assert_eq!(
            status.get_details_quota_failure().unwrap().violations[0].subject,
            "project:42"
        );
        assert_eq!(
            status.metadata().get("grpc-retry-pushback-ms").unwrap(),
            "12000"
        );
    }
}

#[tokio::test]
async fn in_shadow_messages_are_charged_and_never_denied() {
    let limiter = limiter(FIVE);
    let shadow = tollgate_tonic::builder(limiter.clone(), Metadata::new("x-api-key")).shadow(true);
    let mut client = client_of(Echoing, MessageLayer::new(shadow, MessageCharge::both())).await;
    let (all, status) = texts(
        client
            .bidi(request_from("acme", messages(20)))
            .await
            .unwrap()
            .into_inner(),
    )
    .await;
    assert_eq!((all.len(), status.is_none()), (20, true));
    assert_eq!(remaining(&limiter, "acme").await, 0);
}

#[tokio::test]
async fn a_layer_does_not_charge_messages_to_the_limiter_of_a_layer_around_it() {
    let outer = limiter(FIVE);
    let key = || Metadata::new("x-api-key");
    let exempt = tollgate_tonic::builder(limiter(FIVE), key()).exempt(|_| true);
    let exempt = MessageLayer::new(exempt, MessageCharge::sent());
    let mut stack = Server::builder()
        .layer(layer(outer.clone(), MessageCharge::sent()))
        .layer(exempt);
    let mut client = client(serve(stack.add_service(EchoServer::new(Echoing))).await).await;
    let (all, status) = streamed(&mut client, "acme", 3).await;
    assert_eq!((all.len(), status.is_none()), (3, true));
    assert_eq!(remaining(&outer, "acme").await, 2);
}

#[tokio::test]
async fn a_message_that_waits_for_quota_delays_the_stream() {
    let limiter = Limiter::new(
        tollgate::MemoryStore::new(),
        Policy::token_bucket("fast", Quota::per_second(50).with_burst(1)),
    );
    let waiting =
        tollgate_tonic::builder(limiter, Metadata::new("x-api-key")).wait(Duration::from_secs(60));
    let mut client = client_of(Echoing, MessageLayer::new(waiting, MessageCharge::sent())).await;
    let began = std::time::Instant::now();
    let (all, status) = streamed(&mut client, "acme", 6).await;
    assert_eq!((all.len(), status.is_none()), (6, true));
    assert!(
        began.elapsed() >= Duration::from_millis(95),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn an_outage_ends_the_stream_with_unavailable() {
    let charge = MessageCharge::sent().limiter(unavailable_limiter());
    let mut client = charging_client(limiter(FIVE), charge).await;
    let (some, status) = streamed(&mut client, "acme", 3).await;
    assert_eq!(some, ["0"]);
    assert_eq!(status.unwrap().code(), Code::Unavailable);
}

#[tokio::test]
async fn on_one_port_messages_are_charged_and_http_is_served() {
    let layer = tollgate_tonic::builder(limiter(FIVE), Metadata::new("x-api-key"))
        .respond_with(GrpcStatus::new().or_http(Problem::new()))
        .exempt(health_and_reflection());
    let layer = MessageLayer::new(layer, MessageCharge::sent());
    let router = axum::Router::new()
        .route("/", axum::routing::get(|| async { "hello" }))
        .merge(tonic::service::Routes::new(EchoServer::new(Echoing)).into_axum_router())
        .layer(layer);
    let get = || {
        HttpRequest::get("/")
            .header("x-api-key", "other")
            .body(axum::body::Body::empty())
            .unwrap()
    };
    let hello = router.clone().oneshot(get()).await.unwrap();
    assert_eq!(
        hello.into_body().collect().await.unwrap().to_bytes(),
        "hello"
    );
    let mut client = client(serve_axum(router).await).await;
    let (some, status) = streamed(&mut client, "acme", 9).await;
    assert_eq!(some.len(), 5);
    assert_denied_with_details(&status.unwrap());
}
