//! Limits in interceptors.

use std::time::Duration;

use tollgate::{Limiter, RedisStore};
use tollgate_tests::RedisServer;
use tollgate_tonic::{
    AsyncRateLimitInterceptor, RateLimitInterceptor,
    key::{Metadata, Method, key_of},
};
use tollgate_tower::{HeaderFormat, key::Global};
use tonic::{Code, transport::Server};
use tonic_async_interceptor::async_interceptor;
use tonic_types::StatusExt;

use crate::support::*;

#[tokio::test]
async fn with_a_store_in_process_an_interceptor_limits_calls() {
    let interceptor = RateLimitInterceptor::new(limiter(TWO), Metadata::new("x-api-key")).unwrap();
    let server = Server::builder().add_service(EchoServer::with_interceptor(Echoing, interceptor));
    let mut client = client(serve(server).await).await;
    assert_eq!(codes(&mut client, "acme", 3).await, TWO_OF_THREE);
    assert_eq!(codes(&mut client, "other", 3).await, TWO_OF_THREE);
    let status = client.unary(request_from("acme", message("hello"))).await.unwrap_err();
    assert_eq!(status.get_details_retry_info().unwrap().retry_delay.unwrap().as_secs(), 30);
    let status = client.unary(message("hello")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "metadata x-api-key is missing"));
}

#[tokio::test]
async fn a_limiter_over_redis_is_refused_and_the_error_names_the_alternatives() {
    let limiter = Limiter::new(RedisStore::open("redis://127.0.0.1:1/").unwrap(), TWO);
    let error = RateLimitInterceptor::new(limiter, Global).unwrap_err().to_string();
    for alternative in ["tollgate_tonic::layer", "named_layer", "AsyncRateLimitInterceptor", "after_layer"] {
        assert!(error.contains(alternative), "{error}");
    }
}

#[tokio::test]
async fn behind_a_layer_an_interceptor_enforces_the_decisions_of_the_layer() {
    let layer = tollgate_tonic::builder(remote_limiter(TWO), Metadata::new("x-api-key"))
        .shadow(true)
        .expose_decisions(true)
        .header_format(HeaderFormat::None)
        .build();
    let interceptor = RateLimitInterceptor::after_layer();
    let server = Server::builder().layer(layer).add_service(EchoServer::with_interceptor(Echoing, interceptor));
    let mut client = client(serve(server).await).await;
    assert_eq!(codes(&mut client, "acme", 3).await, TWO_OF_THREE);
    let status = client.unary(request_from("acme", message("hello"))).await.unwrap_err();
    assert_eq!(status.get_details_quota_failure().unwrap().violations[0].quota_id, "two");
}

#[tokio::test]
async fn an_async_interceptor_waits_for_a_remote_store() {
    let interceptor = AsyncRateLimitInterceptor::new(remote_limiter(TWO), Metadata::new("x-api-key"));
    let server = Server::builder().layer(async_interceptor(interceptor)).add_service(EchoServer::new(Echoing));
    let mut client = client(serve(server).await).await;
    assert_eq!(codes(&mut client, "acme", 3).await, TWO_OF_THREE);
    let status = client.unary(message("hello")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "metadata x-api-key is missing"));
}

#[tokio::test]
async fn an_interceptor_that_keys_by_method_is_an_internal_error() {
    let interceptor = RateLimitInterceptor::new(limiter(TWO), Method).unwrap();
    let server = Server::builder().add_service(EchoServer::with_interceptor(Echoing, interceptor));
    let status = client(serve(server).await).await.unary(message("hello")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "internal error"));
}

#[test]
fn a_handler_that_keys_by_method_is_an_internal_error() {
    let status = key_of(&tonic::Request::new(()), &Method).unwrap_err();
    assert_eq!(status.code(), Code::Internal);
}

#[tokio::test]
async fn an_interceptor_passes_the_request_on_unchanged() {
    use tonic::service::Interceptor;
    let mut request = request_from("acme", ());
    request.extensions_mut().insert("an extension");
    let before = format!("{request:?}");
    let mut interceptor = RateLimitInterceptor::new(limiter(TWO), Metadata::new("x-api-key")).unwrap();
    assert_eq!(format!("{:?}", interceptor.call(request).unwrap()), before);
}

#[tokio::test]
async fn over_redis_an_async_interceptor_and_an_interceptor_behind_a_layer_limit_calls() {
    let redis = RedisServer::start();
    let limiter = async || {
        let store = RedisStore::connect(redis.url()).await.unwrap();
        Limiter::builder(store).policies(TWO).deadline(Duration::from_secs(30)).build()
    };
    // The fourth call is denied from the cache of denials in process.
    let expected = [Code::Ok, Code::Ok, Code::ResourceExhausted, Code::ResourceExhausted];

    let layer = tollgate_tonic::builder(limiter().await, Metadata::new("x-api-key"));
    let layer = layer.shadow(true).expose_decisions(true).build();
    let interceptor = RateLimitInterceptor::after_layer();
    let server = Server::builder().layer(layer).add_service(EchoServer::with_interceptor(Echoing, interceptor));
    assert_eq!(codes(&mut client(serve(server).await).await, "acme", 4).await, expected);

    let interceptor = AsyncRateLimitInterceptor::new(limiter().await, Metadata::new("x-api-key"));
    let server = Server::builder().layer(async_interceptor(interceptor)).add_service(EchoServer::new(Echoing));
    assert_eq!(codes(&mut client(serve(server).await).await, "other", 4).await, expected);
}
