//! Handlers that hide a denial, and handlers that hold resources.

use std::future::pending;

use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Code, Request, Response, Status, Streaming};

use super::*;

/// Hides the error of its request stream from the client, in one of several ways.
#[derive(Clone, Copy, Debug)]
enum HidingHandler {
    /// Answers with success.
    Ignores,
    /// Answers with another error.
    Replaces,
    /// Never answers.
    Hangs,
    /// Reads in another task, and never answers.
    ReadsInTask,
}

#[tonic::async_trait]
impl Echo for HidingHandler {
    async fn unary(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        Echoing.unary(request).await
    }

    type ServerStream = MessageStream;

    async fn server(&self, request: Request<Message>) -> Result<Response<MessageStream>, Status> {
        Echoing.server(request).await
    }

    async fn client(
        &self,
        request: Request<Streaming<Message>>,
    ) -> Result<Response<Message>, Status> {
        let mut messages = request.into_inner();
        if matches!(self, Self::ReadsInTask) {
            tokio::spawn(async move { while let Some(Ok(_)) = messages.next().await {} });
            return pending().await;
        }
        while let Some(result) = messages.next().await {
            if let Err(status) = result {
                assert_eq!(status.code(), Code::ResourceExhausted);
                match self {
                    Self::Ignores => break,
                    Self::Replaces => return Err(Status::internal("replaced by the handler")),
                    Self::Hangs | Self::ReadsInTask => return pending().await,
                }
            }
        }
        Ok(Response::new(message("done")))
    }

    type BidiStream = MessageStream;

    async fn bidi(
        &self,
        request: Request<Streaming<Message>>,
    ) -> Result<Response<MessageStream>, Status> {
        let this = *self;
        let (send, receive) = mpsc::channel(4);
        let mut messages = request.into_inner();
        tokio::spawn(async move {
            while let Some(result) = messages.next().await {
                match (result, this) {
                    (Ok(message), _) => drop(send.send(Ok(message)).await),
                    (Err(_), Self::Ignores) => return,
                    (Err(_), Self::Replaces) => {
                        return drop(
                            send.send(Err(Status::internal("replaced by the handler")))
                                .await,
                        );
                    }
                    // Keeps the response open.
                    (Err(_), _) => return send.closed().await,
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receive))))
    }
}

#[tokio::test]
async fn the_client_receives_the_denial_even_if_the_handler_hides_it() {
    for handler in [
        HidingHandler::Ignores,
        HidingHandler::Replaces,
        HidingHandler::Hangs,
        HidingHandler::ReadsInTask,
    ] {
        let mut client = client_of(handler, layer(limiter(FIVE), MessageCharge::received())).await;
        assert_denied_with_details(
            &client
                .client(request_from("acme", messages(9)))
                .await
                .unwrap_err(),
        );
        let (some, status) = texts(
            client
                .bidi(request_from("other", messages(9)))
                .await
                .unwrap()
                .into_inner(),
        )
        .await;
        assert!(some.len() <= 5, "{handler:?}: {some:?}");
        assert_denied_with_details(&status.unwrap());
        assert_eq!(codes(&mut client, "third", 1).await, [Code::Ok]);
    }
}

/// Sends a signal when its response stream or its future is dropped.
#[derive(Clone)]
struct SignallingHandler(mpsc::Sender<()>);

#[tonic::async_trait]
impl Echo for SignallingHandler {
    async fn unary(&self, request: Request<Message>) -> Result<Response<Message>, Status> {
        Echoing.unary(request).await
    }

    type ServerStream = MessageStream;

    /// Sends one message and then nothing, or messages without end when `text` is `endless`.
    async fn server(&self, request: Request<Message>) -> Result<Response<MessageStream>, Status> {
        let dropped = DropSignal(self.0.clone());
        let messages: MessageStream = match request.into_inner().text.as_str() {
            "endless" => Box::pin(tokio_stream::iter((0..).map(|at: u32| Ok(message(at))))),
            _ => Box::pin(tokio_stream::once(Ok(message("one"))).chain(tokio_stream::pending())),
        };
        Ok(Response::new(Box::pin(messages.map(move |message| {
            let _ = &dropped;
            message
        }))))
    }

    /// Also sends a signal when it starts.
    async fn client(
        &self,
        request: Request<Streaming<Message>>,
    ) -> Result<Response<Message>, Status> {
        let _dropped = DropSignal(self.0.clone());
        self.0
            .send(())
            .await
            .map_err(|_| Status::aborted("the test is over"))?;
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

/// Sends a signal when it is dropped.
struct DropSignal(mpsc::Sender<()>);

impl Drop for DropSignal {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

#[tokio::test]
async fn a_denial_or_a_cancelled_call_drops_what_the_handler_holds() {
    let (signal, mut signals) = mpsc::channel(1);
    for limiter in [limiter(FIVE), remote_limiter(FIVE)] {
        let mut client = client_of(
            SignallingHandler(signal.clone()),
            layer(limiter, MessageCharge::both()),
        )
        .await;
        let endless = client
            .server(request_from("acme", message("endless")))
            .await
            .unwrap()
            .into_inner();
        let (some, status) = texts(endless).await;
        assert_eq!(some.len(), 5);
        assert_denied_with_details(&status.unwrap());
        signals.recv().await.unwrap();

        let mut quiet = client
            .server(request_from("other", message("quiet")))
            .await
            .unwrap()
            .into_inner();
        quiet.message().await.unwrap().unwrap();
        drop(quiet);
        signals.recv().await.unwrap();

        let (send, receive) = mpsc::channel(1);
        send.send(message(1)).await.unwrap();
        let call = tokio::spawn({
            let mut client = client.clone();
            async move {
                client
                    .client(request_from("third", ReceiverStream::new(receive)))
                    .await
                    .map(drop)
            }
        });
        signals.recv().await.unwrap();
        call.abort();
        signals.recv().await.unwrap();
    }
}
