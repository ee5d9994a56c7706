//! Clients that open streams and leave them.

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{Method, Request};
use tokio::net::TcpStream;
use tollgate_envoy::proto::ratelimit::rate_limit_response::Code;

use crate::support::{Running, service, tenant};

/// Opens a connection whose answers have room for `window` bytes.
async fn connect(server: &Running, window: u32) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(server.grpc.to_string()).await.unwrap();
    let (client, connection) = Builder::new()
        .initial_window_size(window)
        .handshake(stream)
        .await
        .unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

fn call() -> Request<()> {
    Request::builder()
        .method(Method::POST)
        .uri("http://test/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap()
}

#[tokio::test]
async fn ten_thousand_idle_streams_stop_nobody() {
    let server = Running::start(service()).await;
    let mut held = Vec::new();
    for _ in 0..10 {
        let mut client = connect(&server, 65_535).await;
        for _ in 0..1_000 {
            client = client.ready().await.unwrap();
            held.push(client.send_request(call(), false).unwrap());
        }
    }
    assert_eq!(held.len(), 10_000);
    let response = server
        .client()
        .await
        .should_rate_limit(tenant("acme"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(response.overall_code(), Code::Ok);
    drop(held);
    server.end().await.unwrap();
}

#[tokio::test]
async fn a_client_that_never_reads_stops_nobody_and_not_the_end() {
    use prost::Message;

    let drain = std::time::Duration::from_millis(50);
    let server = Running::start_with(service(), |server| server.drain_timeout(drain)).await;
    let message = tenant("deaf").encode_to_vec();
    let length = u32::try_from(message.len()).unwrap();
    let framed: Bytes = [&[0][..], &length.to_be_bytes(), &message].concat().into();
    let mut client = connect(&server, 0).await;
    let mut held = Vec::new();
    for _ in 0..500 {
        client = client.ready().await.unwrap();
        let (response, mut body) = client.send_request(call(), false).unwrap();
        body.send_data(framed.clone(), true).unwrap();
        held.push(response);
    }
    // The heads of the answers came: the bodies wait for room.
    for response in held.iter_mut().take(10) {
        assert_eq!(response.await.unwrap().status(), 200);
    }
    let response = server
        .client()
        .await
        .should_rate_limit(tenant("acme"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(response.overall_code(), Code::Ok);
    server.end().await.unwrap();
}
