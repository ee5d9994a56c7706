//! Limits a tonic service for each client address: 5 calls per second, at most 10 at once.
//!
//! ```text
//! cargo run --example grpc_server
//! cargo run --example grpc_client      # in another terminal
//! ```
//!
//! The client prints ten replies at once, then waits as long as the server says. `LISTEN` is the
//! address to listen on, 127.0.0.1:50051 by default. To share one limit, start a second server with
//! another `LISTEN`, and set the same `REDIS_URL` for both. Health and reflection are not limited,
//! so `grpcurl -plaintext 127.0.0.1:50051 list` always works.
//!
//! Features: the defaults of `tollgate` and `tollgate-tonic`.

use tollgate::{Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen_or, stopped, store};
use tollgate_examples_grpc::{
    DESCRIPTORS, Greeting, helloworld::greeter_server::GreeterServer, without_delay,
};
use tollgate_tonic::{health_and_reflection, key::PeerIp};
use tonic::transport::Server;
use tonic_reflection::server::Builder as Reflection;

const GREETER: Policy = Policy::token_bucket("greeter", Quota::per_second(5).with_burst(10));

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let limiter = Limiter::new(store()?, GREETER);
    let layer = tollgate_tonic::builder(limiter, PeerIp)
        .exempt(health_and_reflection())
        .build();

    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<GreeterServer<Greeting>>().await;
    let reflection = || {
        Reflection::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };

    let listener = listen_or("127.0.0.1:50051").await?;
    println!(
        "Listening on http://{}, limited for each client address:",
        listener.local_addr()?
    );
    println!("  helloworld.Greeter/SayHello        5 per second, at most 10 at once,");
    println!("  helloworld.Greeter/SayHelloStream  counted together");
    println!("  health and reflection              not limited");
    println!("Try: cargo run --example grpc_client");
    Server::builder()
        .layer(layer)
        .add_service(health_service)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .add_service(GreeterServer::new(Greeting))
        .serve_with_incoming_shutdown(without_delay(listener), stopped())
        .await?;
    println!("Stopped.");
    Ok(())
}
