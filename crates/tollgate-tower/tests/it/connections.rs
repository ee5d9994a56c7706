//! Requests over real connections: servers of axum and hyper, clients of HTTP/1.1 and HTTP/2.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use axum::{Router, body::Body, routing::get};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tollgate::Limiter;
use tollgate_tower::{RateLimitLayer, key::PeerIp};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_http::{
    catch_panic::CatchPanicLayer, cors::CorsLayer, map_response_body::MapResponseBodyLayer,
    timeout::TimeoutLayer, trace::TraceLayer,
};

use crate::support::{TWO, listen, serve, still};

/// Serves a limited service with plain hyper, and inserts the address of the peer.
async fn serve_hyper() -> SocketAddr {
    let (listener, address) = listen().await;
    let hello = service_fn(|request: Request<Incoming>| async move {
        Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::from(format!(
            "{:?}",
            request.version()
        ))))
    });
    let limited = RateLimitLayer::new(Limiter::new(still(), TWO), PeerIp).layer(hello);
    tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            let service = limited
                .clone()
                .map_request(move |mut request: Request<Incoming>| {
                    request.extensions_mut().insert(peer);
                    request
                });
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                server
                    .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
                    .await
            });
        }
    });
    address
}

/// Sends `count` requests, one after the other, and returns their responses.
async fn exchange(
    address: SocketAddr,
    is_http2: bool,
    method: Method,
    count: usize,
) -> Vec<Response<String>> {
    let client = Client::builder(TokioExecutor::new())
        .http2_only(is_http2)
        .build_http::<Full<bytes::Bytes>>();
    let mut responses = Vec::new();
    for _ in 0..count {
        let request = Request::builder()
            .method(method.clone())
            .uri(format!("http://{address}/"));
        let response = client
            .request(request.body(Full::default()).unwrap())
            .await
            .unwrap();
        assert_eq!(
            response.version(),
            if is_http2 {
                Version::HTTP_2
            } else {
                Version::HTTP_11
            }
        );
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        responses.push(Response::from_parts(
            parts,
            String::from_utf8(body.to_vec()).unwrap(),
        ));
    }
    responses
}

fn assert_limited(responses: &[Response<String>]) {
    let statuses: Vec<_> = responses
        .iter()
        .map(|response| response.status().as_u16())
        .collect();
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(responses[0].headers()["ratelimit"], r#""two";r=1;t=30"#);
    let denied = &responses[2];
    assert_eq!(denied.headers()["retry-after"], "30");
    assert_eq!(denied.headers()["cache-control"], "no-store");
    assert_eq!(denied.headers()["ratelimit"], r#""two";r=0;t=30"#);
    assert_eq!(denied.headers()["ratelimit-policy"], r#""two";q=2;w=60"#);
}

#[tokio::test]
async fn axum_is_limited_over_http_1_and_http_2() {
    for is_http2 in [false, true] {
        let layer = RateLimitLayer::new(Limiter::new(still(), TWO), PeerIp);
        let address = serve(Router::new().route("/", get(|| async { "hello" }).layer(layer))).await;
        let responses = exchange(address, is_http2, Method::GET, 3).await;
        assert_limited(&responses);
        assert!(responses[2].body().contains("quota-exceeded"));
    }
}

#[tokio::test]
async fn hyper_is_limited_over_http_1_and_http_2() {
    for is_http2 in [false, true] {
        assert_limited(&exchange(serve_hyper().await, is_http2, Method::GET, 3).await);
    }
}

#[tokio::test]
async fn a_denied_head_request_has_the_headers_of_a_get_request() {
    let axum = || async {
        let layer = RateLimitLayer::new(Limiter::new(still(), TWO), PeerIp);
        serve(Router::new().route("/", get(|| async { "hello" }).layer(layer))).await
    };
    let outside = || async {
        let layer = RateLimitLayer::new(Limiter::new(still(), TWO), PeerIp);
        serve(
            Router::new()
                .route("/", get(|| async { "hello" }))
                .layer(layer),
        )
        .await
    };
    for is_http2 in [false, true] {
        for address in [serve_hyper().await, axum().await, outside().await] {
            exchange(address, is_http2, Method::GET, 2).await;
            let mut get = exchange(address, is_http2, Method::GET, 1).await.remove(0);
            let mut head = exchange(address, is_http2, Method::HEAD, 1).await.remove(0);
            assert_eq!(
                (get.status(), head.status()),
                (StatusCode::TOO_MANY_REQUESTS, StatusCode::TOO_MANY_REQUESTS)
            );
            assert_eq!(head.body(), "");
            assert_eq!(
                get.headers()["content-length"],
                get.body().len().to_string()
            );
            for headers in [get.headers_mut(), head.headers_mut()] {
                headers.remove("date");
            }
            assert_eq!(head.headers(), get.headers(), "HTTP/2: {is_http2}");
        }
    }
}

/// Tests the layers that most services have, outside and inside of the limit.
#[tokio::test]
async fn layers_of_tower_http_work_outside_and_inside_of_the_limit() {
    let limit = || RateLimitLayer::new(Limiter::new(still(), TWO), PeerIp);
    let timeout =
        || TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_secs(600));
    let route = || Router::new().route("/", get(|| async { "hello" }));
    let routers = [
        route()
            .layer(limit())
            .layer(timeout())
            .layer(CorsLayer::permissive())
            .layer(TraceLayer::new_for_http()),
        route()
            .layer(TraceLayer::new_for_http())
            .layer(CorsLayer::permissive())
            .layer(timeout())
            .layer(limit()),
        route().layer(
            ServiceBuilder::new()
                .layer(TraceLayer::new_for_http())
                .layer(CorsLayer::permissive())
                .layer(CatchPanicLayer::new())
                .layer(timeout())
                .layer(limit()),
        ),
        // The responder cannot build the body of `TraceLayer`, so a layer between the two boxes it.
        route().layer(
            ServiceBuilder::new()
                .layer(limit())
                .layer(MapResponseBodyLayer::new(Body::new))
                .layer(TraceLayer::new_for_http())
                .layer(CatchPanicLayer::new())
                .layer(timeout()),
        ),
    ];
    for router in routers {
        assert_limited(&exchange(serve(router).await, false, Method::GET, 3).await);
    }
}

#[tokio::test]
async fn a_panic_in_the_handler_is_refunded_when_a_layer_catches_it() {
    let limiter = Limiter::new(still(), TWO);
    let layer = || {
        RateLimitLayer::builder(limiter.clone(), PeerIp)
            .charge_on(|status| !status.is_server_error())
            .build()
    };
    let route = || {
        Router::new().route(
            "/",
            get(|| async {
                if true {
                    panic!("on purpose")
                }
            }),
        )
    };
    for router in [
        route().layer(layer()).layer(CatchPanicLayer::new()),
        route().layer(CatchPanicLayer::new()).layer(layer()),
    ] {
        let responses = exchange(serve(router).await, false, Method::GET, 4).await;
        assert!(
            responses
                .iter()
                .all(|response| response.status() == StatusCode::INTERNAL_SERVER_ERROR),
            "{responses:?}"
        );
    }
}
