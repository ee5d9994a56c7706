//! `charge_stream` in a handler.

use tokio_stream::StreamExt;
use tollgate::{Cost, Limiter};
use tollgate_tonic::{
    GrpcStatus,
    key::{Metadata, key_of},
    messages::charge_stream,
};
use tonic::{Code, Request, Response, Status, Streaming, transport::Server};

use crate::support::*;

/// Charges each message of the request stream and of the response stream.
struct ChargingHandler {
    limiter: Limiter,
}

#[tonic::async_trait]
impl Echo for ChargingHandler {
    async fn unary(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type ServerStream = MessageStream;

    async fn server(&self, request: Request<Message>) -> Result<Response<MessageStream>, Status> {
        let key = key_of(&request, &Metadata::new("x-api-key"))?.unwrap();
        let messages = Echoing.server(request).await?.into_inner();
        Ok(Response::new(Box::pin(charge_stream(
            messages,
            self.limiter.clone(),
            key,
        ))))
    }

    async fn client(
        &self,
        request: Request<Streaming<Message>>,
    ) -> Result<Response<Message>, Status> {
        let key = key_of(&request, &Metadata::new("x-api-key"))?.unwrap();
        let mut messages = charge_stream(request.into_inner(), self.limiter.clone(), key);
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
        let key = key_of(&request, &Metadata::new("x-api-key"))?.unwrap();
        let messages = charge_stream(request.into_inner(), self.limiter.clone(), key)
            .cost(|message: &Message| Cost::new(message.text.len() as u64));
        Ok(Response::new(Box::pin(messages)))
    }
}

/// Starts a server whose handler charges messages, and returns a client of it.
async fn charging_client(limiter: Limiter) -> EchoClient<tonic::transport::Channel> {
    client(serve(Server::builder().add_service(EchoServer::new(ChargingHandler { limiter }))).await)
        .await
}

#[tokio::test]
async fn a_response_stream_ends_with_the_status_of_a_denial() {
    for limiter in [limiter(TWO), remote_limiter(TWO)] {
        let mut client = charging_client(limiter).await;
        let (texts, status) = streamed(&mut client, "acme", 5).await;
        assert_eq!(texts, ["0", "1"]);
        let status = status.unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(retry_secs(&status), 30);
        assert_eq!(quota_of(&status), "two");
    }
}

#[tokio::test]
async fn a_request_stream_ends_with_the_status_of_a_denial() {
    for limiter in [limiter(TWO), remote_limiter(TWO)] {
        let mut client = charging_client(limiter).await;
        let allowed = client
            .client(request_from("acme", messages(2)))
            .await
            .unwrap();
        assert_eq!(allowed.into_inner().text, "2");
        let status = client
            .client(request_from("acme", messages(1)))
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
    }
}

#[tokio::test]
async fn a_message_costs_what_the_closure_returns() {
    let limiter = limiter(MANY);
    let mut client = charging_client(limiter.clone()).await;
    let sent = tokio_stream::iter([
        message("a".repeat(600)),
        message("b".repeat(400)),
        message("c"),
    ]);
    let (texts, status) = texts(
        client
            .bidi(request_from("acme", sent))
            .await
            .unwrap()
            .into_inner(),
    )
    .await;
    assert_eq!(
        texts.iter().map(String::len).collect::<Vec<_>>(),
        [600, 400]
    );
    assert_eq!(status.unwrap().code(), Code::ResourceExhausted);

    let sent = tokio_stream::iter([message("d".repeat(1001))]);
    let status = client
        .bidi(request_from("other", sent))
        .await
        .unwrap()
        .into_inner()
        .message()
        .await
        .unwrap_err();
    assert_eq!(reason_of(&status), "COST_EXCEEDS_LIMIT");
}

#[tokio::test]
async fn errors_and_the_end_of_the_inner_stream_pass_at_no_cost() {
    let limiter = limiter(TWO);
    let messages =
        tokio_stream::iter([Ok(1), Err(Status::aborted("aborted by the handler")), Ok(2)]);
    let charged = charge_stream(messages, limiter.clone(), "acme")
        .respond_with(GrpcStatus::new().pushback(true));
    let results: Vec<_> = charged
        .map(|it| it.map_err(|status| status.code()))
        .collect()
        .await;
    assert_eq!(results, [Ok(1), Err(Code::Aborted), Ok(2)]);

    let empty = charge_stream(
        tokio_stream::iter(Vec::<Result<(), Status>>::new()),
        limiter.clone(),
        "other",
    );
    assert_eq!(empty.collect::<Vec<_>>().await.len(), 0);
    assert_eq!(remaining(&limiter, "other").await, 2);
}

#[tokio::test]
async fn the_status_of_a_stream_has_the_options_of_its_responder() {
    let messages = tokio_stream::iter([1, 2, 3].map(Ok::<_, Status>));
    let charged = charge_stream(messages, limiter(TWO), "acme")
        .respond_with(GrpcStatus::new().pushback(true));
    let status = charged
        .collect::<Vec<_>>()
        .await
        .pop()
        .unwrap()
        .unwrap_err();
    assert_eq!(
        status.metadata().get("grpc-retry-pushback-ms").unwrap(),
        "30000"
    );
}

#[tokio::test]
async fn a_denial_drops_the_inner_stream() {
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    for n in 0..3 {
        sender.send(Ok::<_, Status>(n)).await.unwrap();
    }
    let messages = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut charged = charge_stream(messages, limiter(TWO), "acme");
    for _ in 0..2 {
        charged.next().await.unwrap().unwrap();
    }
    assert!(!sender.is_closed());
    charged.next().await.unwrap().unwrap_err();
    assert!(sender.is_closed());
    assert!(charged.next().await.is_none());
}
