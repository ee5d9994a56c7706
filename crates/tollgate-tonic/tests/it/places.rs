//! Where the layer fits.

use axum::{Router, body::Body, routing::get};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use tollgate_tonic::{
    GrpcStatus, MethodLimiters, health_and_reflection,
    key::{Metadata, Method, Service},
};
use tollgate_tower::{
    HeaderFormat,
    key::{Global, PeerIp},
    rejection::Problem,
};
use tonic::{
    Code,
    server::NamedService,
    service::{LayerExt, Routes},
    transport::Server,
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower::ServiceExt;

use crate::support::*;

const LIMITED: [Code; 3] = [Code::Ok, Code::Ok, Code::ResourceExhausted];

#[tokio::test]
async fn the_whole_server_is_limited() {
    let mut client = limited(tollgate_tonic::layer(two(), Metadata::new("x-api-key"))).await;
    assert_eq!(codes(&mut client, "acme", 3).await, LIMITED);
    assert_eq!(codes(&mut client, "other", 3).await, LIMITED);
}

#[tokio::test]
async fn the_whole_server_is_limited_by_a_store_that_answers_later() {
    let limiter = tollgate::Limiter::new(Late(still()), TWO);
    let mut client = limited(tollgate_tonic::layer(limiter, Metadata::new("x-api-key"))).await;
    assert_eq!(codes(&mut client, "acme", 3).await, LIMITED);
}

#[tokio::test]
async fn one_service_of_many_is_limited_and_keeps_its_name() {
    fn name<S: NamedService>(_: &S) -> &'static str {
        S::NAME
    }
    let echo = tollgate_tonic::layer(two(), Global).named_layer(EchoServer::new(Echoing));
    assert_eq!(name(&echo), "echo.Echo");

    let (_, health) = tonic_health::server::health_reporter();
    let address = serve(Server::builder().add_service(health).add_service(echo)).await;
    assert_eq!(codes(&mut client(address).await, "acme", 3).await, LIMITED);
    let mut health = HealthClient::new(channel(address).await);
    for _ in 0..3 {
        assert!(health.check(HealthCheckRequest::default()).await.is_ok());
    }
}

#[tokio::test]
async fn health_is_exempt_in_one_line() {
    let (_, health) = tonic_health::server::health_reporter();
    let layer = tollgate_tonic::builder(two(), Global).exempt(health_and_reflection()).build();
    let address = serve(Server::builder().layer(layer).add_service(health).add_service(EchoServer::new(Echoing))).await;
    let mut health = HealthClient::new(channel(address).await);
    for _ in 0..5 {
        assert!(health.check(HealthCheckRequest::default()).await.is_ok());
    }
    assert_eq!(codes(&mut client(address).await, "acme", 3).await, LIMITED);
}

#[tokio::test]
async fn each_method_has_the_quota_that_is_named_for_it() {
    let store = still();
    let limiter = |policy| tollgate::Limiter::new(store.clone(), policy);
    let one = tollgate::Policy::token_bucket("one", tollgate::Quota::per_minute(1));
    let methods = MethodLimiters::new(limiter(MANY))
        .service("echo.Echo", limiter(TWO))
        .method("/echo.Echo/Server", limiter(one))
        .exempt("/echo.Echo/Client");
    let mut client = limited(tollgate_tonic::layer(methods, Metadata::new("x-api-key"))).await;

    assert_eq!(codes(&mut client, "acme", 3).await, LIMITED);
    assert!(client.server(from("acme", message(1))).await.is_ok());
    assert_eq!(client.server(from("acme", message(1))).await.unwrap_err().code(), Code::ResourceExhausted);
    for _ in 0..5 {
        assert!(client.client(from("acme", tokio_stream::iter([message(1)]))).await.is_ok());
    }
    assert_eq!(codes(&mut client, "other", 3).await, LIMITED);
}

#[tokio::test]
async fn a_tuple_gives_each_caller_a_quota_for_each_method_or_service() {
    let mut client = limited(tollgate_tonic::layer(two(), (PeerIp::new(), Metadata::new("x-api-key"), Method))).await;
    for caller in ["acme", "other"] {
        assert_eq!(codes(&mut client, caller, 3).await, LIMITED);
        assert!(client.server(from(caller, message(1))).await.is_ok());
    }
    let mut client = limited(tollgate_tonic::layer(two(), (PeerIp::new(), Service))).await;
    assert_eq!(codes(&mut client, "acme", 2).await, LIMITED[..2]);
    assert_eq!(client.server(from("other", message(1))).await.unwrap_err().code(), LIMITED[2]);
}

#[tokio::test]
async fn what_is_not_named_has_the_limiter_of_the_others() {
    let methods = MethodLimiters::new(two()).service("echo.Other", tollgate::Limiter::new(still(), MANY));
    let mut client = limited(tollgate_tonic::layer(methods, Global)).await;
    assert_eq!(codes(&mut client, "acme", 3).await, LIMITED);
}

/// gRPC and HTTP behind one limit of two calls, without a network.
pub(crate) fn one_port() -> Router {
    let layer = tollgate_tonic::builder(two(), Metadata::new("x-api-key"))
        .respond_with(GrpcStatus::new().or_http(Problem::new()))
        .header_format(HeaderFormat::Ietf08)
        .build();
    let grpc = Routes::new(EchoServer::new(Echoing)).into_axum_router();
    Router::new().route("/", get(|| async { "hello" })).merge(grpc).layer(layer)
}

pub(crate) async fn ask(router: &Router, content_type: Option<&str>) -> http::Response<Body> {
    let mut request = Request::post(if content_type.is_some() { "/echo.Echo/Unary" } else { "/" });
    request = request.header("x-api-key", "acme");
    if let Some(content_type) = content_type {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    router.clone().oneshot(request.body(Body::from(&[0; 5][..])).unwrap()).await.unwrap()
}

#[tokio::test]
async fn on_one_port_each_client_is_refused_in_its_own_language() {
    let router = one_port();
    for _ in 0..2 {
        assert!(ask(&router, Some("application/grpc")).await.headers().contains_key("ratelimit"));
    }

    for (asked, answered) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc+proto", "application/grpc"),
        ("application/grpc-web", "application/grpc-web+proto"),
        ("application/grpc-web-text", "application/grpc-web-text+proto"),
    ] {
        let denied = ask(&router, Some(asked)).await;
        assert_eq!(denied.status(), StatusCode::OK);
        assert_eq!(denied.headers()["content-type"], answered);
        assert_eq!(denied.headers()["grpc-status"], "8");
        assert_eq!(denied.headers()["retry-after"], "30");
        assert_eq!(denied.headers()["ratelimit"], r#""two";r=0;t=30"#);
        assert!(denied.into_body().collect().await.unwrap().to_bytes().is_empty());
    }

    for asked in [None, Some("application/json"), Some("application/grpcurl")] {
        let denied = ask(&router, asked).await;
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(denied.headers()["content-type"], "application/problem+json");
        assert!(!denied.headers().contains_key("grpc-status"));
        let body = denied.into_body().collect().await.unwrap().to_bytes();
        assert!(body.starts_with(b"{\"type\":"), "{body:?}");
    }
}

#[tokio::test]
async fn without_a_responder_for_http_its_clients_are_told_the_status() {
    let layer = tollgate_tonic::layer(two(), Global);
    let router: Router = Router::new().route("/", get(|| async {})).layer(layer);
    let ask = async || router.clone().oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(ask().await.status(), StatusCode::OK);
    assert!(!ask().await.headers().contains_key("ratelimit"));
    let denied = ask().await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.headers()["retry-after"], "30");
}
