//! The layer around a server, around a service, and on one port with HTTP.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    routing::{get, post},
};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use tollgate_tonic::{
    GrpcStatus, MethodLimiters,
    key::{Metadata, RpcMethod, RpcService},
};
use tollgate_tower::{
    HeaderFormat, Rejection, Respond,
    key::{Global, Networks, PeerIp},
    rejection::{Empty, Problem},
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

#[tokio::test]
async fn a_denied_network_is_not_permitted() {
    let denied = Networks::parse("", "127.0.0.0/8").unwrap();
    let layer = tollgate_tonic::builder(limiter(TWO), Metadata::new("x-api-key"))
        .networks(denied.clone(), |parts| PeerIp.address(parts))
        .build();
    let mut client = client_behind(layer).await;
    assert_eq!(
        codes(&mut client, "acme", 2).await,
        [Code::PermissionDenied; 2]
    );
    denied.replace([], []).unwrap();
    assert_eq!(codes(&mut client, "acme", 3).await, TWO_OF_THREE);
}

#[tokio::test]
async fn one_service_of_many_is_limited_and_keeps_its_name() {
    fn name<S: NamedService>(_: &S) -> &'static str {
        S::NAME
    }
    let echo = tollgate_tonic::layer(limiter(TWO), Global).named_layer(EchoServer::new(Echoing));
    assert_eq!(name(&echo), "echo.Echo");

    let (_, health) = tonic_health::server::health_reporter();
    let address = serve(Server::builder().add_service(health).add_service(echo)).await;
    assert_eq!(
        codes(&mut client(address).await, "acme", 3).await,
        TWO_OF_THREE
    );
    let mut health = HealthClient::new(channel(address).await);
    for _ in 0..3 {
        assert!(health.check(HealthCheckRequest::default()).await.is_ok());
    }
}

#[tokio::test]
async fn each_method_has_its_own_quota_from_the_table() {
    let store = frozen_store();
    let limiter = |policy| tollgate::Limiter::new(store.clone(), policy);
    let one = tollgate::Policy::token_bucket("one", tollgate::Quota::per_minute(1));
    // Two calls that no other entry of the table limits.
    let others = tollgate::Policy::token_bucket("others", tollgate::Quota::per_minute(2));
    let methods = MethodLimiters::new(limiter(others))
        .service("echo.Echo", limiter(TWO))
        .method("/echo.Echo/Server", limiter(one))
        .exempt("/echo.Echo/Client");
    let mut client =
        client_behind(tollgate_tonic::layer(methods, Metadata::new("x-api-key"))).await;

    assert_eq!(codes(&mut client, "acme", 3).await, TWO_OF_THREE);
    assert_eq!(stream_code(&mut client, "acme").await, Code::Ok);
    assert_eq!(stream_code(&mut client, "acme").await, TWO_OF_THREE[2]);
    for _ in 0..5 {
        assert!(
            client
                .client(request_from("acme", tokio_stream::iter([message(1)])))
                .await
                .is_ok()
        );
    }
    assert_eq!(codes(&mut client, "other", 3).await, TWO_OF_THREE);
}

#[tokio::test]
async fn a_tuple_gives_each_caller_a_quota_for_each_method_or_service() {
    let mut client = client_behind(tollgate_tonic::layer(
        limiter(TWO),
        (PeerIp, Metadata::new("x-api-key"), RpcMethod),
    ))
    .await;
    for caller in ["acme", "other"] {
        assert_eq!(codes(&mut client, caller, 3).await, TWO_OF_THREE);
        assert_eq!(stream_code(&mut client, caller).await, Code::Ok);
    }
    let mut client = client_behind(tollgate_tonic::layer(limiter(TWO), (PeerIp, RpcService))).await;
    assert_eq!(codes(&mut client, "acme", 2).await, TWO_OF_THREE[..2]);
    assert_eq!(stream_code(&mut client, "other").await, TWO_OF_THREE[2]);
}

#[tokio::test]
async fn calls_outside_the_table_have_the_default_limiter() {
    let methods = MethodLimiters::new(limiter(TWO)).service("echo.Other", limiter(MANY));
    let mut client = client_behind(tollgate_tonic::layer(methods, Global)).await;
    assert_eq!(codes(&mut client, "acme", 3).await, TWO_OF_THREE);
}

/// Returns gRPC and HTTP behind one limit of two calls.
pub(crate) fn one_port() -> Router {
    let layer = tollgate_tonic::builder(limiter(TWO), Metadata::new("x-api-key"))
        .respond_with(GrpcStatus::new().or_http(Problem::new()))
        .header_format(HeaderFormat::Ietf08)
        .build();
    let grpc = Routes::new(EchoServer::new(Echoing)).into_axum_router();
    Router::new()
        .route("/", get(|| async { "hello" }))
        .merge(grpc)
        .layer(layer)
}

/// Sends a request to the router in process: a gRPC call when it has a content type, else `POST /`.
pub(crate) async fn send(router: &Router, content_type: Option<&str>) -> http::Response<Body> {
    let mut request = Request::post(if content_type.is_some() {
        "/echo.Echo/Unary"
    } else {
        "/"
    });
    request = request.header("x-api-key", "acme");
    if let Some(content_type) = content_type {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    router
        .clone()
        .oneshot(request.body(Body::from(&[0; 5][..])).unwrap())
        .await
        .unwrap()
}

#[tokio::test]
async fn on_one_port_each_client_is_denied_in_its_own_protocol() {
    let router = one_port();
    for _ in 0..2 {
        assert!(
            send(&router, Some("application/grpc"))
                .await
                .headers()
                .contains_key("ratelimit")
        );
    }

    for (sent, received) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc+proto", "application/grpc"),
        ("Application/GRPC;v=1", "application/grpc"),
        ("application/grpc ; v=1", "application/grpc"),
        ("application/grpc-web", "application/grpc-web+proto"),
        ("application/grpc-web+proto", "application/grpc-web+proto"),
        ("application/gRPC-Web", "application/grpc-web+proto"),
        (
            "application/grpc-web-text",
            "application/grpc-web-text+proto",
        ),
        (
            "application/grpc-web-text+proto",
            "application/grpc-web-text+proto",
        ),
        (
            "Application/gRPC-Web-Text",
            "application/grpc-web-text+proto",
        ),
    ] {
        let denied = send(&router, Some(sent)).await;
        assert_eq!(denied.status(), StatusCode::OK);
        assert_eq!(denied.headers()["content-type"], received);
        assert_eq!(denied.headers()["grpc-status"], "8");
        assert!(!denied.headers().contains_key("retry-after"));
        assert!(!denied.headers().contains_key("cache-control"));
        assert_eq!(denied.headers()["ratelimit"], r#""two";r=0;t=30"#);
        assert!(
            denied
                .into_body()
                .collect()
                .await
                .unwrap()
                .to_bytes()
                .is_empty()
        );
    }

    for content_type in [
        None,
        Some(""),
        Some("application/json"),
        Some("application/grpcurl"),
        Some("application/grpc-webby"),
        Some("application/gr"),
    ] {
        let denied = send(&router, content_type).await;
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(denied.headers()["content-type"], "application/problem+json");
        assert_eq!(denied.headers()["retry-after"], "30");
        assert_eq!(denied.headers()["cache-control"], "no-store");
        assert!(!denied.headers().contains_key("grpc-status"));
        let body = denied.into_body().collect().await.unwrap().to_bytes();
        assert!(body.starts_with(b"{\"type\":"), "{body:?}");
    }
}

/// Answers HTTP requests in a form that has its own field for the wait.
struct OwnForm;

impl Respond<Body> for OwnForm {
    fn respond(&self, rejection: &Rejection<'_>) -> http::Response<Body> {
        Empty.respond(rejection)
    }

    fn adds_retry_after(&self, _: &Rejection<'_>) -> bool {
        false
    }
}

#[tokio::test]
async fn an_http_responder_can_keep_retry_after_off_its_responses() {
    let responder = GrpcStatus::new()
        .retry_after(true)
        .or_http(Arc::new(OwnForm));
    let layer = tollgate_tonic::builder(limiter(TWO), Global)
        .respond_with(responder)
        .build();
    let router: Router = Router::new()
        .route("/echo.Echo/Unary", post(|| async {}))
        .route("/", post(|| async {}));
    let router = router.layer(layer);
    for _ in 0..2 {
        send(&router, None).await;
    }
    let http = send(&router, None).await;
    assert_eq!(http.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(
        !http.headers().contains_key("retry-after")
            && !http.headers().contains_key("cache-control")
    );
    let grpc = send(&router, Some("application/grpc")).await;
    assert_eq!(grpc.headers()["retry-after"], "30");
}

#[tokio::test]
async fn without_an_http_responder_http_clients_receive_the_plain_status() {
    let layer = tollgate_tonic::layer(limiter(TWO), Global);
    let router: Router = Router::new().route("/", get(|| async {})).layer(layer);
    let get_root = async || {
        router
            .clone()
            .oneshot(Request::get("/").body(Body::empty()).unwrap())
            .await
            .unwrap()
    };
    assert_eq!(get_root().await.status(), StatusCode::OK);
    assert!(!get_root().await.headers().contains_key("ratelimit"));
    let denied = get_root().await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.headers()["retry-after"], "30");
}
