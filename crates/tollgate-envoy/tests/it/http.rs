//! Health and decisions over HTTP.

use std::future::poll_fn;

use bytes::Bytes;
use http::Request;
use tokio::net::TcpStream;
use tollgate_envoy::Component;

use crate::support::{Running, http, service};

const ONCE: &str =
    r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "tenant", "value": "once"}]}]}"#;

#[tokio::test]
async fn json_is_decided_as_grpc_is() {
    let server = Running::start(service()).await;
    let address = server.page("HTTP");
    let (status, body) = http(address, "POST /json", ONCE).await;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, body["overallCode"].as_str()), (200, Some("OK")));
    assert_eq!(body["statuses"][0]["currentLimit"]["requestsPerUnit"], 1);
    assert_eq!(body["statuses"][0]["currentLimit"]["unit"], "DAY");
    let (status, body) = http(address, "POST /json", ONCE).await;
    assert_eq!(status, 429);
    assert!(body.contains(r#""overallCode":"OVER_LIMIT""#), "{body}");
}

#[tokio::test]
async fn json_may_have_the_names_and_the_numbers_of_protobuf() {
    let server = Running::start(service()).await;
    let body = r#"{"domain": "shop", "hits_addend": 2, "descriptors": [
        {"entries": [{"key": "tenant", "value": "a"}], "hitsAddend": "3"},
        {"entries": [{"key": "tenant", "value": "b"}]}]}"#;
    let (status, body) = http(server.page("HTTP"), "POST /json", body).await;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    let left = [0, 1].map(|at| body["statuses"][at]["limitRemaining"].as_u64());
    assert_eq!((status, left), (200, [Some(7), Some(8)]), "{body}");
}

#[tokio::test]
async fn a_request_that_cannot_be_decided_is_refused() {
    let server = Running::start(service()).await;
    let address = server.page("HTTP");
    for body in [
        "",
        "{",
        r#"{"domain": "shop"}"#,
        r#"{"domain": "", "descriptors": [{}]}"#,
        r#"{"dom": "shop"}"#,
        "[]",
        &ONCE.replace(r#""shop""#, "1"),
        &ONCE.replace("domain", "domian"),
        &ONCE.replacen('{', r#"{"hitsAddend": 4294967296, "#, 1),
        &format!("{ONCE} {ONCE}"),
    ] {
        assert_eq!(http(address, "POST /json", body).await.0, 400, "{body}");
    }
    assert_eq!(
        http(address, "POST /json", &" ".repeat(2 << 20)).await.0,
        413
    );
    assert_eq!(http(address, "GET /nothing", "").await.0, 404);
}

/// Sends a body over HTTP/2, whole, before it reads the response. Returns the status.
async fn upload(address: std::net::SocketAddr, mut rest: Bytes) -> Result<u16, h2::Error> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await?;
    tokio::spawn(connection);
    let request = Request::post("http://test/json").body(()).unwrap();
    let (response, mut sent) = client.ready().await?.send_request(request, false)?;
    while !rest.is_empty() {
        sent.reserve_capacity(rest.len());
        let room = poll_fn(|cx| sent.poll_capacity(cx))
            .await
            .expect("the stream is open")?;
        let part = rest.split_to(room.min(rest.len()));
        sent.send_data(part, rest.is_empty())?;
    }
    Ok(response.await?.status().as_u16())
}

#[tokio::test]
async fn a_body_that_is_too_large_gets_its_413_over_http_2() {
    let server = Running::start(service()).await;
    for mebibytes in [2, 10] {
        let body = Bytes::from(vec![b' '; mebibytes << 20]);
        assert_eq!(
            upload(server.page("HTTP"), body).await.unwrap(),
            413,
            "{mebibytes} MiB"
        );
    }
}

#[tokio::test]
async fn the_healthcheck_tells_the_health() {
    let server = Running::start(service()).await;
    let address = server.page("HTTP");
    assert_eq!(
        http(address, "GET /healthcheck", "").await,
        (200, "OK".to_owned())
    );
    for component in [Component::Store, Component::Rules, Component::Running] {
        server.health.set(component, false).await;
        assert_eq!(
            http(address, "GET /healthcheck", "").await.0,
            500,
            "{component:?}"
        );
        server.health.set(component, true).await;
    }
    assert_eq!(http(address, "GET /healthcheck", "").await.0, 200);
}
