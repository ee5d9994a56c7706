//! Messages in compression, in frames of any size, and in gRPC-Web.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request as HttpRequest;
use http_body_util::BodyExt;
use tokio::net::TcpStream;
use tollgate_tonic::Messages as Charged;
use tonic::{codec::CompressionEncoding, service::LayerExt, transport::Server};
use tonic_web::{GrpcWebClientService, GrpcWebLayer};
use tower::{Layer, ServiceExt};

use super::*;

#[tokio::test]
async fn a_compressed_message_is_one() {
    let gzip = CompressionEncoding::Gzip;
    let service = EchoServer::new(Echoing).accept_compressed(gzip).send_compressed(gzip);
    let limiter = five();
    let service = layer(limiter.clone(), Charged::both()).named_layer(service);
    let client = client(serve(Server::builder().add_service(service)).await).await;
    let mut client = client.accept_compressed(gzip).send_compressed(gzip);
    let long = || message("0123456789".repeat(10_000));
    let (all, status) =
        texts(client.bidi(from("acme", tokio_stream::iter([long(), long()]))).await.unwrap().into_inner()).await;
    assert_eq!((all.len(), status.is_none()), (2, true));
    assert_eq!(left(&limiter, "acme").await, 2);
}

/// A call whose request is sent in these DATA frames, by a client that knows nothing of gRPC; the code it ends with.
async fn in_frames(server: SocketAddr, frames: impl IntoIterator<Item = Bytes>) -> (String, usize) {
    let stream = TcpStream::connect(server).await.unwrap();
    let (send, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = HttpRequest::post(format!("http://{server}/echo.Echo/Bidi"))
        .header("content-type", "application/grpc")
        .header("x-api-key", "acme")
        .body(())
        .unwrap();
    let (response, mut body) = send.ready().await.unwrap().send_request(request, false).unwrap();
    for frame in frames {
        // The server may have ended the call.
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
    let status = |headers: &http::HeaderMap| Some(headers.get("grpc-status")?.to_str().unwrap().to_owned());
    (trailers.as_ref().or(Some(response.headers())).and_then(status).unwrap(), length)
}

#[tokio::test]
async fn messages_are_counted_however_they_are_framed() {
    // Two bytes of content: field 1, an empty text.
    let bytes = |count: usize| [0, 0, 0, 0, 2, 0x0a, 0].repeat(count);
    for (count, code) in [(5, "0"), (6, "8")] {
        for size in [1, 2, 4, 5, 6, 7, 8, 13, 1000] {
            let layer = layer(five(), Charged::received());
            let server = serve(Server::builder().layer(layer).add_service(EchoServer::new(Echoing))).await;
            let frames: Vec<_> = bytes(count).chunks(size).map(Bytes::copy_from_slice).collect();
            let (seen, length) = in_frames(server, frames).await;
            assert_eq!(seen, code, "{count} messages in frames of {size}");
            assert!(length <= 5 * 5, "{count} messages in frames of {size}: {length} bytes");
        }
    }
}

#[tokio::test]
async fn behind_the_translation_of_grpc_web_messages_are_charged() {
    let service = layer(five(), Charged::sent()).layer(EchoServer::new(Echoing));
    web(GrpcWebLayer::new().layer(service)).await;
}

#[tokio::test]
async fn in_front_of_the_translation_of_grpc_web_binary_messages_are_charged() {
    let service = layer(five(), Charged::both()).layer(GrpcWebLayer::new().layer(EchoServer::new(Echoing)));
    web(service).await;
}

/// A gRPC-Web client is sent five messages, and the denial of the sixth.
async fn web<S>(service: S)
where
    S: tower::Service<
            HttpRequest<tonic::body::Body>,
            Response = http::Response<tonic::body::Body>,
            Error = std::convert::Infallible,
        > + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let service = service.map_request(|request: HttpRequest<tonic_web::GrpcWebCall<tonic::body::Body>>| {
        request.map(tonic::body::Body::new)
    });
    let mut client = EchoClient::new(GrpcWebClientService::new(service));
    // The trailers come in a frame of their own, which is no message.
    let (all, status) = texts(client.server(from("other", message(5))).await.unwrap().into_inner()).await;
    assert_eq!((all.len(), status.map(|status| status.code())), (5, None));
    let (some, status) = texts(client.server(from("acme", message(9))).await.unwrap().into_inner()).await;
    assert_eq!(some, ["0", "1", "2", "3", "4"]);
    is_told_all(&status.unwrap());
}

fn web_text(path: &str) -> HttpRequest<tonic::body::Body> {
    use base64::{Engine, prelude::BASE64_STANDARD};
    // Field 1, the text "9".
    let body = BASE64_STANDARD.encode([0, 0, 0, 0, 3, 0x0a, 1, b'9']);
    HttpRequest::post(path)
        .header("content-type", "application/grpc-web-text")
        .header("accept", "application/grpc-web-text")
        .header("x-api-key", "acme")
        .body(tonic::body::Body::new(http_body_util::Full::new(Bytes::from(body))))
        .unwrap()
}

#[tokio::test]
async fn messages_in_base64_are_charged_behind_the_translation_and_refused_in_front_of_it() {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let charged = || layer(five(), Charged::sent());
    let behind = GrpcWebLayer::new().layer(charged().layer(EchoServer::new(Echoing)));
    let mut body = behind.oneshot(web_text("/echo.Echo/Server")).await.unwrap().into_body();
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        text.extend(BASE64_STANDARD.decode(frame.unwrap().into_data().unwrap()).unwrap());
    }
    let messages = text.windows(2).filter(|field| field == b"\x0a\x01").count();
    assert_eq!(messages, 5);
    assert!(String::from_utf8_lossy(&text).contains("grpc-status:8"));

    let before = charged().layer(GrpcWebLayer::new().layer(EchoServer::new(Echoing)));
    let refused = before.oneshot(web_text("/echo.Echo/Server")).await.unwrap();
    assert_eq!(refused.headers()["grpc-status"], "13");
    assert_eq!(refused.headers()["content-type"], "application/grpc-web-text+proto");
}
