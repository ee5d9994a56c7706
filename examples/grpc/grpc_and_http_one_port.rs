//! Serves gRPC and HTTP on one port behind one limit. Each client gets denials in its own protocol.
//!
//! ```text
//! cargo run --example grpc_and_http_one_port
//! cargo run --example grpc_client http://127.0.0.1:3000
//! for i in $(seq 12); do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3000/; done
//! ```
//!
//! After ten calls the gRPC client gets `RESOURCE_EXHAUSTED` and waits. curl gets 429. Both have
//! the same address and share one quota, so curl gets 429 from the first request on if it runs
//! directly after the gRPC client.
//!
//! Features: `axum` of `tollgate-tonic`, beside the defaults.

use axum::{Router, routing::get};
use tollgate::{Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_examples_grpc::{Greeting, helloworld::greeter_server::GreeterServer};
use tollgate_tonic::{GrpcStatus, key::PeerIp};
use tollgate_tower::{HeaderFormat, rejection::Problem};
use tonic::service::Routes;

const EVERYTHING: Policy = Policy::token_bucket("everything", Quota::per_second(5).with_burst(10));

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let limiter = Limiter::new(store()?, EVERYTHING);
    let layer = tollgate_tonic::builder(limiter, PeerIp)
        .respond_with(GrpcStatus::new().or_http(Problem::new()))
        .header_format(HeaderFormat::Ietf08)
        .build();

    let grpc = Routes::new(GreeterServer::new(Greeting)).into_axum_router();
    let router = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .merge(grpc)
        .layer(layer);

    let listener = listen().await?;
    println!(
        "Listening on http://{}, limited to 5 per second for each client address, at most 10 at once:",
        listener.local_addr()?
    );
    println!("  GET /                   HTTP, denied with 429");
    println!("  helloworld.Greeter/...  gRPC, denied with RESOURCE_EXHAUSTED");
    serve(listener, router).await
}
