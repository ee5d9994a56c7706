//! gRPC-Web, as tonic-web serves it.

use http::{Request, Response};
use tollgate_tonic::key::Metadata;
use tonic::body::Body;
use tonic_types::StatusExt;
use tonic_web::{GrpcWebClientService, GrpcWebLayer};
use tower::{Layer, Service, ServiceExt};

use crate::support::*;

/// Three calls of a gRPC-Web client; the third must be denied.
async fn third_is_denied<S>(service: S)
where
    S: Service<Request<Body>, Response = Response<Body>, Error = std::convert::Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let service = service.map_request(|request: Request<tonic_web::GrpcWebCall<Body>>| request.map(Body::new));
    let mut client = EchoClient::new(GrpcWebClientService::new(service));
    for _ in 0..2 {
        let reply = client.unary(from("acme", message("hello"))).await.unwrap();
        assert_eq!(reply.into_inner().text, "hello");
    }
    let status = client.unary(from("acme", message("hello"))).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (tonic::Code::ResourceExhausted, "rate limit exceeded"));
    assert_eq!(status.get_details_retry_info().unwrap().retry_delay.unwrap().as_secs(), 30);
}

#[tokio::test]
async fn a_web_client_understands_a_denial_inside_the_translation() {
    let limit = tollgate_tonic::layer(two(), Metadata::new("x-api-key"));
    third_is_denied(GrpcWebLayer::new().layer(limit.layer(EchoServer::new(Echoing)))).await;
}

#[tokio::test]
async fn a_web_client_understands_a_denial_outside_the_translation() {
    let limit = tollgate_tonic::layer(two(), Metadata::new("x-api-key"));
    third_is_denied(limit.layer(GrpcWebLayer::new().layer(EchoServer::new(Echoing)))).await;
}
