//! Charges for compressed messages, for messages in frames of any size, and for gRPC-Web.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request as HttpRequest;
use http_body_util::BodyExt;
use tollgate_tests::Log;
use tonic::{codec::CompressionEncoding, service::LayerExt, transport::Server};
use tonic_web::GrpcWebLayer;
use tower::{Layer, ServiceExt};
use tracing::Level;

use super::*;

#[tokio::test]
async fn a_compressed_message_costs_one_unit() {
    let gzip = CompressionEncoding::Gzip;
    let service = EchoServer::new(Echoing)
        .accept_compressed(gzip)
        .send_compressed(gzip);
    let limiter = limiter(FIVE);
    let service = layer(limiter.clone(), MessageCharge::both()).named_layer(service);
    let client = client(serve(Server::builder().add_service(service)).await).await;
    let mut client = client.accept_compressed(gzip).send_compressed(gzip);
    let long = || message("0123456789".repeat(10_000));
    let (all, status) = texts(
        client
            .bidi(request_from("acme", tokio_stream::iter([long(), long()])))
            .await
            .unwrap()
            .into_inner(),
    )
    .await;
    assert_eq!((all.len(), status.is_none()), (2, true));
    assert_eq!(remaining(&limiter, "acme").await, 2);
}

/// Makes a call with a plain HTTP/2 client that sends the request in these DATA frames. Returns the
/// code and the length of the response.
async fn call_in_frames(
    server: SocketAddr,
    frames: impl IntoIterator<Item = Bytes>,
) -> (String, usize) {
    let request = HttpRequest::post(format!("http://{server}/echo.Echo/Bidi"))
        .header("content-type", "application/grpc")
        .header("x-api-key", "acme")
        .body(())
        .unwrap();
    let (response, mut body) = http2(server).await.send_request(request, false).unwrap();
    for frame in frames {
        // Fails when the server has ended the call already.
        let _ = body.send_data(frame, false);
        tokio::task::yield_now().await;
    }
    let _ = body.send_data(Bytes::new(), true);
    let mut response = response.await.unwrap();
    let mut length = 0;
    while let Some(data) = response.body_mut().data().await {
        length += data.unwrap().len();
        let _ = response.body_mut().flow_control().release_capacity(length);
    }
    let trailers = response.body_mut().trailers().await.unwrap();
    let status =
        |headers: &http::HeaderMap| Some(headers.get("grpc-status")?.to_str().unwrap().to_owned());
    (
        trailers
            .as_ref()
            .or(Some(response.headers()))
            .and_then(status)
            .unwrap(),
        length,
    )
}

#[tokio::test]
async fn messages_are_charged_in_frames_of_any_size() {
    // The content is two bytes: field 1, an empty text.
    let bytes = |count: usize| [0, 0, 0, 0, 2, 0x0a, 0].repeat(count);
    for (count, code) in [(5, "0"), (6, "8")] {
        for size in [1, 2, 4, 5, 6, 7, 8, 13, 1000] {
            let layer = layer(limiter(FIVE), MessageCharge::received());
            let server = serve_behind(layer).await;
            let frames: Vec<_> = bytes(count)
                .chunks(size)
                .map(Bytes::copy_from_slice)
                .collect();
            let (seen, length) = call_in_frames(server, frames).await;
            assert_eq!(seen, code, "{count} messages in frames of {size}");
            assert!(
                length <= 5 * 5,
                "{count} messages in frames of {size}: {length} bytes"
            );
        }
    }
}

#[tokio::test]
async fn inside_the_grpc_web_layer_messages_are_charged() {
    let service = layer(limiter(FIVE), MessageCharge::sent()).layer(EchoServer::new(Echoing));
    assert_sixth_is_denied(web_client(GrpcWebLayer::new().layer(service))).await;
}

#[tokio::test]
async fn outside_the_grpc_web_layer_binary_messages_are_charged() {
    let service = layer(limiter(FIVE), MessageCharge::both())
        .layer(GrpcWebLayer::new().layer(EchoServer::new(Echoing)));
    assert_sixth_is_denied(web_client(service)).await;
}

/// Asserts that a gRPC-Web client receives five messages, and then a denial.
async fn assert_sixth_is_denied(mut client: WebClient) {
    // gRPC-Web sends the trailers in the form of a message, which must cost nothing.
    let (all, status) = streamed(&mut client, "other", 5).await;
    assert_eq!((all.len(), status.map(|status| status.code())), (5, None));
    let (some, status) = streamed(&mut client, "acme", 9).await;
    assert_eq!(some, ["0", "1", "2", "3", "4"]);
    assert_denied_with_details(&status.unwrap());
}

fn web_text(path: &str) -> HttpRequest<tonic::body::Body> {
    use base64::{Engine, prelude::BASE64_STANDARD};
    // The content is field 1, the text "9".
    let body = BASE64_STANDARD.encode([0, 0, 0, 0, 3, 0x0a, 1, b'9']);
    HttpRequest::post(path)
        .header("content-type", "application/grpc-web-text")
        .header("accept", "application/grpc-web-text")
        .header("x-api-key", "acme")
        .body(tonic::body::Body::new(http_body_util::Full::new(
            Bytes::from(body),
        )))
        .unwrap()
}

#[tokio::test]
async fn base64_messages_are_charged_inside_the_grpc_web_layer_and_rejected_outside_it() {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let charging = || layer(limiter(FIVE), MessageCharge::sent());
    let inside = GrpcWebLayer::new().layer(charging().layer(EchoServer::new(Echoing)));
    let mut body = inside
        .oneshot(web_text("/echo.Echo/Server"))
        .await
        .unwrap()
        .into_body();
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        text.extend(
            BASE64_STANDARD
                .decode(frame.unwrap().into_data().unwrap())
                .unwrap(),
        );
    }
    let messages = text.windows(2).filter(|field| field == b"\x0a\x01").count();
    assert_eq!(messages, 5);
    assert!(String::from_utf8_lossy(&text).contains("grpc-status:8"));

    let (log, _guard) = Log::of_this_thread_from(Level::DEBUG);
    let outside = charging().layer(GrpcWebLayer::new().layer(EchoServer::new(Echoing)));
    for _ in 0..3 {
        let rejected = outside
            .clone()
            .oneshot(web_text("/echo.Echo/Server"))
            .await
            .unwrap();
        assert_eq!(rejected.headers()["grpc-status"], "13");
        assert_eq!(
            rejected.headers()["content-type"],
            "application/grpc-web-text+proto"
        );
    }
    let exempt =
        tollgate_tonic::builder(limiter(FIVE), Metadata::new("x-api-key")).exempt(|_| true);
    let exempt = MessageLayer::new(exempt, MessageCharge::sent());
    let exempt = exempt.layer(GrpcWebLayer::new().layer(EchoServer::new(Echoing)));
    assert!(
        !exempt
            .oneshot(web_text("/echo.Echo/Server"))
            .await
            .unwrap()
            .headers()
            .contains_key("grpc-status")
    );
    // The mistake is the same for every call, so it is logged once.
    let log = log.text();
    assert_eq!(
        log.matches("cannot read application/grpc-web-text").count(),
        1,
        "{log}"
    );
}
