//! The HTTP/2 frames of a denial.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, Request, Response};
use tollgate_tonic::{GrpcStatus, RateLimitInterceptor};
use tollgate_tower::key::Global;
use tonic::{service::LayerExt, transport::Server};

use crate::support::*;

/// Makes a unary call with a plain HTTP/2 client.
async fn call(server: SocketAddr) -> Response<RecvStream> {
    let request = Request::post(format!("http://{server}/echo.Echo/Unary"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (response, mut body) = http2(server).await.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
    response.await.unwrap()
}

/// Calls until a call is denied, and asserts that the denial is one HEADERS frame that ends the
/// stream.
async fn denied(server: SocketAddr) -> HeaderMap {
    for _ in 0..2 {
        let mut allowed = call(server).await;
        assert!(!allowed.body().is_end_stream());
        while allowed.body_mut().data().await.is_some() {}
        let trailers = allowed.body_mut().trailers().await.unwrap().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
    }
    let denied = call(server).await;
    assert_eq!(denied.status(), 200);
    assert!(
        denied.body().is_end_stream(),
        "the denial has more than one frame"
    );
    denied.into_parts().0.headers
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<_> = headers
        .keys()
        .map(http::HeaderName::as_str)
        .filter(|name| *name != "date")
        .collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_denial_around_the_server_is_trailers_only() {
    let layer = tollgate_tonic::layer(limiter(TWO), Global);
    let headers = denied(serve_behind(layer).await).await;
    assert_eq!(headers["grpc-status"], "8");
    assert_eq!(headers["grpc-message"], "rate%20limit%20exceeded");
    assert_eq!(headers["content-type"], "application/grpc");
    assert!(
        !headers["grpc-status-details-bin"]
            .as_bytes()
            .contains(&b'='),
        "the details are sent with base64 padding"
    );
    assert_eq!(
        names(&headers),
        [
            "content-type",
            "grpc-message",
            "grpc-status",
            "grpc-status-details-bin"
        ]
    );
}

#[tokio::test]
async fn a_denial_carries_retry_after_when_it_is_turned_on() {
    let responder = GrpcStatus::new().retry_after(true);
    let layer = tollgate_tonic::builder(limiter(TWO), Global)
        .respond_with(responder)
        .build();
    let headers = denied(serve_behind(layer).await).await;
    assert_eq!(
        (&headers["retry-after"], &headers["cache-control"]),
        (&"30".parse().unwrap(), &"no-store".parse().unwrap())
    );
    assert!(!headers.contains_key("ratelimit"), "{headers:?}");
}

#[tokio::test]
async fn a_denial_around_one_service_is_trailers_only() {
    let layer = tollgate_tonic::builder(limiter(TWO), Global)
        .respond_with(GrpcStatus::new().pushback(true))
        .build();
    let server = Server::builder().add_service(layer.named_layer(EchoServer::new(Echoing)));
    let headers = denied(serve(server).await).await;
    assert_eq!(headers["grpc-status"], "8");
    assert_eq!(headers["grpc-retry-pushback-ms"], "30000");
}

#[tokio::test]
async fn a_denial_of_an_interceptor_is_trailers_only() {
    let interceptor = RateLimitInterceptor::new(limiter(TWO), Global).unwrap();
    let server = Server::builder().add_service(EchoServer::with_interceptor(Echoing, interceptor));
    assert_eq!(denied(serve(server).await).await["grpc-status"], "8");
}
