//! The places in axum and tower where the layer can be added.

use std::{convert::Infallible, mem::size_of, net::SocketAddr};

use crate::support::*;
use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, connect_info::MockConnectInfo},
    routing::get,
};
use http::{Request, Response, StatusCode};
use tollgate::Limiter;
use tollgate_tower::{
    KeyExtractor, RateLimit, RateLimitLayer,
    future::ResponseFuture,
    key::{Global, MatchedRoute, PeerIp},
    rejection::Problem,
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, util::option_layer};

fn layer() -> RateLimitLayer<Global> {
    RateLimitLayer::new(Limiter::new(still(), ONE), Global)
}

async fn get_twice(router: Router, path: &str) -> [StatusCode; 2] {
    let get = async || {
        let request = Request::get(path).body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap().status()
    };
    [get().await, get().await]
}

const LIMITED: [StatusCode; 2] = [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS];
const UNLIMITED: [StatusCode; 2] = [StatusCode::OK; 2];

#[tokio::test]
async fn router_layer_limits_all_routes_together() {
    let router = || Router::new().route("/a", get(|| async {})).layer(layer());
    assert_eq!(get_twice(router(), "/a").await, LIMITED);
    assert_eq!(
        get_twice(router(), "/nowhere").await,
        [StatusCode::NOT_FOUND, StatusCode::TOO_MANY_REQUESTS]
    );
}

#[tokio::test]
async fn router_route_layer_limits_what_was_added_before_it() {
    let router = || {
        Router::new()
            .route("/a", get(|| async {}))
            .route_layer(layer())
            .route("/b", get(|| async {}))
    };
    assert_eq!(get_twice(router(), "/a").await, LIMITED);
    assert_eq!(get_twice(router(), "/b").await, UNLIMITED);
    assert_eq!(
        get_twice(router(), "/nowhere").await,
        [StatusCode::NOT_FOUND; 2]
    );
}

#[tokio::test]
async fn method_router_layer_limits_one_route() {
    let router = || {
        Router::new()
            .route("/a", get(|| async {}).layer(layer()))
            .route("/b", get(|| async {}))
    };
    assert_eq!(get_twice(router(), "/a").await, LIMITED);
    assert_eq!(get_twice(router(), "/b").await, UNLIMITED);
}

#[tokio::test]
async fn a_mocked_peer_of_axum_is_the_peer_unless_the_server_knows_it() {
    let mock = |last| MockConnectInfo(SocketAddr::from(([192, 0, 2, last], 80)));
    let layer = RateLimitLayer::new(Limiter::new(still(), ONE), PeerIp);
    let router = Router::new().route("/a", get(|| async {})).layer(layer);
    assert_eq!(
        get_twice(router.clone(), "/a").await,
        [StatusCode::INTERNAL_SERVER_ERROR; 2]
    );
    assert_eq!(
        get_twice(router.clone().layer(mock(7)), "/a").await,
        LIMITED
    );
    assert_eq!(
        get_twice(router.clone().layer(mock(8)), "/a").await,
        LIMITED
    );
    // As with the extractor of axum, the real address comes first.
    let mut request = Request::get("/a").body(Body::empty()).unwrap();
    request
        .extensions_mut()
        .insert(ConnectInfo(SocketAddr::from(([192, 0, 2, 9], 80))));
    assert_eq!(
        router
            .layer(mock(7))
            .oneshot(request)
            .await
            .unwrap()
            .status(),
        StatusCode::OK
    );
}

#[tokio::test]
async fn an_unknown_path_is_404_also_where_the_key_is_the_route() {
    let router = |key: tollgate_tower::key::BoxedKey| {
        let layer = RateLimitLayer::new(Limiter::new(still(), ONE), key);
        Router::new()
            .route("/a/{id}", get(|| async {}))
            .layer(layer)
    };
    assert_eq!(
        get_twice(router(MatchedRoute.boxed()), "/a/1").await,
        LIMITED
    );
    assert_eq!(
        get_twice(router(MatchedRoute.boxed()), "/nowhere").await,
        [StatusCode::NOT_FOUND; 2]
    );
    // The key of unknown paths, and their exemption.
    let or_global = router(MatchedRoute.or(Global).boxed());
    assert_eq!(
        get_twice(or_global, "/nowhere").await,
        [StatusCode::NOT_FOUND, StatusCode::TOO_MANY_REQUESTS]
    );
    let fallback = router(MatchedRoute.or_exempt().boxed()).fallback(|| async { "a file" });
    assert_eq!(get_twice(fallback, "/nowhere").await, UNLIMITED);
}

#[tokio::test]
async fn option_layer_accepts_the_layer() {
    let router = |it: Option<RateLimitLayer<Global>>| {
        Router::new()
            .route("/a", get(|| async {}))
            .layer(option_layer(it))
    };
    assert_eq!(get_twice(router(Some(layer())), "/a").await, LIMITED);
    assert_eq!(get_twice(router(None), "/a").await, UNLIMITED);
}

#[tokio::test]
async fn service_builder_accepts_the_layer() {
    let router = Router::new().route("/a", get(|| async {})).layer(
        ServiceBuilder::new()
            .layer(layer())
            .map_request(|it: Request<Body>| it),
    );
    assert_eq!(get_twice(router, "/a").await, LIMITED);

    let service = ServiceBuilder::new().layer(layer()).service(hello());
    let service = ServiceBuilder::new()
        .option_layer(Some(layer()))
        .service(service);
    let response: Result<Response<String>, Infallible> = service
        .oneshot(request())
        .await
        .map_err(|error| panic!("{error}"));
    assert_eq!(response.map(|it| it.status()), Ok(StatusCode::OK));
}

/// The type of the layer has two parameters, and its size is one pointer.
#[derive(Clone)]
struct Holder {
    layer: RateLimitLayer<PeerIp, Problem>,
}

#[test]
fn the_layer_is_one_pointer_wide_and_always_cloneable() {
    struct Neither;
    fn clone_send_sync<T: Clone + Send + Sync + 'static>() {}
    clone_send_sync::<Holder>();
    clone_send_sync::<RateLimit<(), PeerIp>>();
    fn clone<T: Clone>() {}
    clone::<RateLimitLayer<Neither, Neither>>();
    assert_eq!(size_of::<RateLimitLayer<PeerIp>>(), size_of::<usize>());
    assert_eq!(size_of::<RateLimit<(), PeerIp>>(), size_of::<usize>());
    let _ = Holder {
        layer: RateLimitLayer::new(Limiter::new(still(), ONE), PeerIp),
    }
    .layer
    .clone();
}

#[test]
fn the_future_can_be_named_and_sent() {
    type Future = ResponseFuture<BoxedService, RateLimitLayer<Global>, ()>;
    fn send<T: Send>(_: &T) {}
    let mut service: RateLimit<BoxedService, Global> = layer().layer(BoxedService::new(hello()));
    let future: Future = service.call(request());
    send(&future);
}

#[tokio::test]
async fn matched_path_has_one_quota_for_each_route() {
    let layer = RateLimitLayer::new(Limiter::new(still(), ONE), MatchedRoute);
    let router = Router::new()
        .route("/users/{id}", get(|| async {}))
        .route("/b", get(|| async {}))
        .nest("/v1", Router::new().route("/users/{id}", get(|| async {})));
    let router = router.route_layer(layer.clone());
    assert_eq!(get_twice(router.clone(), "/users/1").await, LIMITED);
    assert_eq!(
        get_twice(router.clone(), "/users/2").await,
        [StatusCode::TOO_MANY_REQUESTS; 2]
    );
    assert_eq!(get_twice(router.clone(), "/v1/users/1").await, LIMITED);
    assert_eq!(get_twice(router.clone(), "/b").await, LIMITED);
    assert_eq!(
        get_twice(router, "/nowhere").await,
        [StatusCode::NOT_FOUND; 2]
    );

    let everywhere = Router::new().route("/a", get(|| async {})).layer(layer);
    assert_eq!(
        get_twice(everywhere, "/nowhere").await,
        [StatusCode::NOT_FOUND; 2]
    );
}
