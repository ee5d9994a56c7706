//! gRPC-Web clients, with tonic-web.

use tollgate_tonic::key::Metadata;
use tonic_web::GrpcWebLayer;
use tower::Layer;

use crate::support::*;

/// Makes three calls, and asserts that the third is denied.
async fn assert_third_is_denied(mut client: WebClient) {
    for _ in 0..2 {
        let reply = client
            .unary(request_from("acme", message("hello")))
            .await
            .unwrap();
        assert_eq!(reply.into_inner().text, "hello");
    }
    let status = denial(&mut client).await;
    assert_eq!(
        (status.code(), status.message()),
        (tonic::Code::ResourceExhausted, "rate limit exceeded")
    );
    assert_eq!(retry_secs(&status), 30);
}

#[tokio::test]
async fn a_web_client_understands_a_denial_from_inside_the_grpc_web_layer() {
    let limit = tollgate_tonic::layer(limiter(TWO), Metadata::new("x-api-key"));
    assert_third_is_denied(web_client(
        GrpcWebLayer::new().layer(limit.layer(EchoServer::new(Echoing))),
    ))
    .await;
}

#[tokio::test]
async fn a_web_client_understands_a_denial_from_outside_the_grpc_web_layer() {
    let limit = tollgate_tonic::layer(limiter(TWO), Metadata::new("x-api-key"));
    assert_third_is_denied(web_client(
        limit.layer(GrpcWebLayer::new().layer(EchoServer::new(Echoing))),
    ))
    .await;
}
