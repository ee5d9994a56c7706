//! Contains the service that the gRPC examples limit: `helloworld.Greeter`.

use std::pin::Pin;

use tokio_stream::Stream;
use tonic::{Request, Response, Status};

/// Contains the Rust code for `helloworld.proto`.
///
/// The generated code is committed, so that only cargo is needed to build it. A test of tollgate-tonic generates it again and
/// compares.
#[allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
#[rustfmt::skip]
pub mod helloworld;

/// The descriptors of `helloworld.proto`, for the reflection service.
pub const DESCRIPTORS: &[u8] = include_bytes!("helloworld.bin");

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
        Ok(Response::new(helloworld::HelloReply { message: format!("Hello {name}!") }))
    }

    type SayHelloStreamStream = Pin<Box<dyn Stream<Item = Result<helloworld::HelloReply, Status>> + Send>>;

    async fn say_hello_stream(
        &self,
        request: Request<helloworld::HelloRequest>,
    ) -> Result<Response<Self::SayHelloStreamStream>, Status> {
        let name = request.into_inner().name;
        let replies = (1..=3).map(move |n| Ok(helloworld::HelloReply { message: format!("Hello {name}, {n} of 3!") }));
        Ok(Response::new(Box::pin(tokio_stream::iter(replies))))
    }
}
