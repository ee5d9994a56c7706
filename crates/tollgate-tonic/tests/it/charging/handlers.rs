//! Handlers that make of a denial what they like, and what becomes of what they hold.

use std::future::pending;

use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tollgate::Limiter;
use tollgate_tonic::Messages as Charged;
use tonic::{Code, Request, Response, Status, Streaming};

use super::*;

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
