//! Charges for the messages of a stream.

use tokio_stream::StreamExt;
use tollgate::{Cost, Limiter};
use tollgate_tonic::{
    GrpcStatus, charge_messages,
    key::{Metadata, key_of},
};
use tonic::{Code, Request, Response, Status, Streaming, transport::Server};
use tonic_types::StatusExt;

use crate::support::*;

/// Charges each message, of the client's stream and of its own.
struct Charging {
    limiter: Limiter,
}

#[tonic::async_trait]
impl Echo for Charging {
    async fn unary(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type ServerStream = Messages;

    async fn server(&self, request: Request<Message>) -> Result<Response<Messages>, Status> {
        let key = key_of(&request, &Metadata::new("x-api-key"))?.unwrap();
        let messages = Echoing.server(request).await?.into_inner();
        Ok(Response::new(Box::pin(charge_messages(messages, self.limiter.clone(), key))))
    }

    async fn client(&self, request: Request<Streaming<Message>>) -> Result<Response<Message>, Status> {
        let key = key_of(&request, &Metadata::new("x-api-key"))?.unwrap();
        let mut messages = charge_messages(request.into_inner(), self.limiter.clone(), key);
        let mut count = 0;
        while messages.next().await.transpose()?.is_some() {
            count += 1;
        }
        Ok(Response::new(message(count)))
    }

    type BidiStream = Messages;

    async fn bidi(&self, request: Request<Streaming<Message>>) -> Result<Response<Messages>, Status> {
        let key = key_of(&request, &Metadata::new("x-api-key"))?.unwrap();
        let messages = charge_messages(request.into_inner(), self.limiter.clone(), key)
            .cost(|message: &Message| Cost::new(message.text.len() as u32));
        Ok(Response::new(Box::pin(messages)))
    }
}

async fn charging(limiter: Limiter) -> EchoClient<tonic::transport::Channel> {
    client(serve(Server::builder().add_service(EchoServer::new(Charging { limiter }))).await).await
}

async fn texts(messages: Streaming<Message>) -> (Vec<String>, Option<Status>) {
    let mut texts = Vec::new();
    let mut messages = messages;
    loop {
        match messages.message().await {
            Ok(Some(message)) => texts.push(message.text),
            Ok(None) => return (texts, None),
            Err(status) => return (texts, Some(status)),
        }
    }
}

#[tokio::test]
async fn what_a_client_is_sent_ends_with_the_status_of_a_denial() {
    for limiter in [two(), Limiter::new(Late(still()), TWO)] {
        let mut client = charging(limiter).await;
        let (texts, status) = texts(client.server(from("acme", message(5))).await.unwrap().into_inner()).await;
        assert_eq!(texts, ["0", "1"]);
        let status = status.unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.get_details_retry_info().unwrap().retry_delay.unwrap().as_secs(), 30);
        assert_eq!(status.get_details_quota_failure().unwrap().violations[0].quota_id, "two");
    }
}

#[tokio::test]
async fn what_a_client_sends_ends_with_the_status_of_a_denial() {
    for limiter in [two(), Limiter::new(Late(still()), TWO)] {
        let mut client = charging(limiter).await;
        let send = |count| tokio_stream::iter((0..count).map(message).collect::<Vec<_>>());
        let allowed = client.client(from("acme", send(2))).await.unwrap();
        assert_eq!(allowed.into_inner().text, "2");
        let status = client.client(from("acme", send(1))).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
    }
}

#[tokio::test]
async fn a_message_costs_what_the_closure_says() {
    let limiter = Limiter::new(still(), MANY);
    let mut client = charging(limiter.clone()).await;
    let sent = tokio_stream::iter([message("a".repeat(600)), message("b".repeat(400)), message("c")]);
    let (texts, status) = texts(client.bidi(from("acme", sent)).await.unwrap().into_inner()).await;
    assert_eq!(texts.iter().map(String::len).collect::<Vec<_>>(), [600, 400]);
    assert_eq!(status.unwrap().code(), Code::ResourceExhausted);

    let sent = tokio_stream::iter([message("d".repeat(1001))]);
    let status = client.bidi(from("other", sent)).await.unwrap().into_inner().message().await.unwrap_err();
    assert_eq!(status.get_details_error_info().unwrap().reason, "COST_EXCEEDS_LIMIT");
}

#[tokio::test]
async fn nothing_is_charged_for_the_end_and_the_stream_s_own_error_is_passed_on() {
    let limiter = two();
    let messages = tokio_stream::iter([Ok(1), Err(Status::aborted("enough")), Ok(2)]);
    let charged = charge_messages(messages, limiter.clone(), "acme").respond_with(GrpcStatus::new().pushback());
    let results: Vec<_> = charged.map(|it| it.map_err(|status| status.code())).collect().await;
    assert_eq!(results, [Ok(1), Err(Code::Aborted), Ok(2)]);

    let empty = charge_messages(tokio_stream::iter(Vec::<Result<(), Status>>::new()), limiter.clone(), "other");
    assert_eq!(empty.collect::<Vec<_>>().await.len(), 0);
    assert_eq!(limiter.peek("other").await.unwrap().state("two").unwrap().remaining(), 2);
}

#[tokio::test]
async fn the_stream_inside_is_dropped_with_the_denial() {
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    for n in 0..3 {
        sender.send(Ok::<_, Status>(n)).await.unwrap();
    }
    let messages = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut charged = charge_messages(messages, two(), "acme");
    for _ in 0..2 {
        charged.next().await.unwrap().unwrap();
    }
    assert!(!sender.is_closed());
    charged.next().await.unwrap().unwrap_err();
    assert!(sender.is_closed());
    assert!(charged.next().await.is_none());
}
