//! Contains the service that the gRPC examples limit: `helloworld.Greeter`.

use std::pin::Pin;

use tokio::net::TcpListener;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, transport::server::TcpIncoming};

/// Contains the Rust code for `helloworld.proto`.
///
/// The generated code is committed, so that only cargo is needed to build it. A test of
/// tollgate-tonic generates it again and compares.
#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
#[rustfmt::skip]
pub mod helloworld;

/// The descriptors of `helloworld.proto`, for the reflection service.
pub const DESCRIPTORS: &[u8] = include_bytes!("helloworld.bin");

/// Sets `TCP_NODELAY` on each accepted connection.
///
/// tonic sets the option when it opens the port itself, but not on connections that it is given.
/// Without the option, a response waits until the client has acknowledged an earlier write. The
/// client may delay its acknowledgement by 40 ms.
#[must_use]
pub fn without_delay(listener: TcpListener) -> TcpIncoming {
    TcpIncoming::from(listener).with_nodelay(Some(true))
}

/// Greets each caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Greeting;

#[tonic::async_trait]
impl helloworld::greeter_server::Greeter for Greeting {
    async fn say_hello(
        &self,
        request: Request<helloworld::HelloRequest>,
    ) -> Result<Response<helloworld::HelloReply>, Status> {
        let name = request.into_inner().name;
        Ok(Response::new(helloworld::HelloReply {
            message: format!("Hello {name}!"),
        }))
    }

    type SayHelloStreamStream =
        Pin<Box<dyn Stream<Item = Result<helloworld::HelloReply, Status>> + Send>>;

    async fn say_hello_stream(
        &self,
        request: Request<helloworld::HelloRequest>,
    ) -> Result<Response<Self::SayHelloStreamStream>, Status> {
        let name = request.into_inner().name;
        let replies = (1..=3).map(move |n| {
            Ok(helloworld::HelloReply {
                message: format!("Hello {name}, {n} of 3!"),
            })
        });
        Ok(Response::new(Box::pin(tokio_stream::iter(replies))))
    }
}

/// Compiles the code of the pages in `docs` that need gRPC with the tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../docs/denied_bodies.md")]
    struct DeniedBodies;
    #[doc = include_str!("../../docs/reservations.md")]
    struct Reservations;
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;
    use tokio_stream::StreamExt;

    use super::*;

    #[tokio::test]
    async fn accepted_connections_send_without_delay() -> std::io::Result<()> {
        let mut incoming = without_delay(TcpListener::bind("127.0.0.1:0").await?);
        let _client = TcpStream::connect(incoming.local_addr()?).await?;
        let connection = incoming.next().await.transpose()?;
        assert!(
            connection.is_some_and(|connection| connection.nodelay().is_ok_and(|is_set| is_set))
        );
        Ok(())
    }
}
