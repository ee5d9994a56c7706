//! What interceptors can do, and what they say they cannot.

use std::time::Duration;

use tollgate::{Limiter, RedisStore};
use tollgate_tests::RedisServer;
use tollgate_tonic::{
    AsyncRateLimitInterceptor, GrpcStatus, RateLimitInterceptor,
    key::{Metadata, Method, key_of},
};
use tollgate_tower::{HeaderFormat, key::Global};
use tonic::{Code, transport::Server};
use tonic_async_interceptor::async_interceptor;
use tonic_types::StatusExt;

use crate::support::*;

const LIMITED: [Code; 3] = [Code::Ok, Code::Ok, Code::ResourceExhausted];

#[tokio::test]
async fn in_process_an_interceptor_decides_on_the_spot() {
    let interceptor = RateLimitInterceptor::new(two(), Metadata::new("x-api-key")).unwrap();
    let server = Server::builder().add_service(EchoServer::with_interceptor(Echoing, interceptor));
    let mut client = client(serve(server).await).await;
    assert_eq!(codes(&mut client, "acme", 3).await, LIMITED);
    assert_eq!(codes(&mut client, "other", 3).await, LIMITED);
    let status = client.unary(from("acme", message("hello"))).await.unwrap_err();
    assert_eq!(status.get_details_retry_info().unwrap().retry_delay.unwrap().as_secs(), 30);
    let status = client.unary(message("hello")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "metadata x-api-key is missing"));
}

#[tokio::test]
async fn over_redis_an_interceptor_is_refused_and_the_error_says_what_to_use() {
    let limiter = Limiter::new(RedisStore::open("redis://127.0.0.1:1/").unwrap(), TWO);
    let error = RateLimitInterceptor::new(limiter, Global).unwrap_err().to_string();
    for instead in ["tollgate_tonic::layer", "named_layer", "AsyncRateLimitInterceptor", "after_layer"] {
        assert!(error.contains(instead), "{error}");
    }
}

#[tokio::test]
async fn after_a_layer_an_interceptor_enforces_what_the_layer_decided() {
    let limiter = Limiter::new(Late(still()), TWO);
    let layer = tollgate_tonic::builder(limiter, Metadata::new("x-api-key"))
        .shadow(true)
        .expose_decisions(true)
        .header_format(HeaderFormat::None)
        .build();
    let interceptor = RateLimitInterceptor::after_layer(GrpcStatus::new());
    let server = Server::builder().layer(layer).add_service(EchoServer::with_interceptor(Echoing, interceptor));
    let mut client = client(serve(server).await).await;
    assert_eq!(codes(&mut client, "acme", 3).await, LIMITED);
    let status = client.unary(from("acme", message("hello"))).await.unwrap_err();
    assert_eq!(status.get_details_quota_failure().unwrap().violations[0].quota_id, "two");
}

#[tokio::test]
async fn an_interceptor_that_waits_decides_by_a_store_that_answers_later() {
    let limiter = Limiter::new(Late(still()), TWO);
    let interceptor = AsyncRateLimitInterceptor::new(limiter, Metadata::new("x-api-key"));
    let server = Server::builder().layer(async_interceptor(interceptor)).add_service(EchoServer::new(Echoing));
    let mut client = client(serve(server).await).await;
    assert_eq!(codes(&mut client, "acme", 3).await, LIMITED);
    let status = client.unary(message("hello")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "metadata x-api-key is missing"));
}

#[tokio::test]
async fn an_interceptor_does_not_see_the_method_and_says_so_in_the_log_only() {
    let interceptor = RateLimitInterceptor::new(two(), Method).unwrap();
    let server = Server::builder().add_service(EchoServer::with_interceptor(Echoing, interceptor));
    let status = client(serve(server).await).await.unary(message("hello")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "internal error"));
}

#[test]
fn a_handler_does_not_see_the_method_either() {
    let status = key_of(&tonic::Request::new(()), &Method).unwrap_err();
    assert_eq!(status.code(), Code::Internal);
}

#[tokio::test]
async fn what_an_interceptor_passes_on_is_what_came_in() {
    use tonic::service::Interceptor;
    let mut request = from("acme", ());
    request.extensions_mut().insert("an extension");
    let before = format!("{request:?}");
    let mut interceptor = RateLimitInterceptor::new(two(), Metadata::new("x-api-key")).unwrap();
    assert_eq!(format!("{:?}", interceptor.call(request).unwrap()), before);
}

#[tokio::test]
async fn over_redis_a_layer_or_an_interceptor_that_waits_decides_and_an_interceptor_enforces_it() {
    let redis = RedisServer::start();
    let limiter = async || {
        let store = RedisStore::connect(redis.url()).await.unwrap();
        Limiter::builder(store).policies(TWO).deadline(Duration::from_secs(30)).build()
    };
    // The fourth call finds the denial of the third remembered in the process.
    let limited = [LIMITED[0], LIMITED[1], LIMITED[2], LIMITED[2]];

    let layer = tollgate_tonic::builder(limiter().await, Metadata::new("x-api-key"));
    let layer = layer.shadow(true).expose_decisions(true).build();
    let interceptor = RateLimitInterceptor::after_layer(GrpcStatus::new());
    let server = Server::builder().layer(layer).add_service(EchoServer::with_interceptor(Echoing, interceptor));
    assert_eq!(codes(&mut client(serve(server).await).await, "acme", 4).await, limited);

    let interceptor = AsyncRateLimitInterceptor::new(limiter().await, Metadata::new("x-api-key"));
    let server = Server::builder().layer(async_interceptor(interceptor)).add_service(EchoServer::new(Echoing));
    assert_eq!(codes(&mut client(serve(server).await).await, "other", 4).await, limited);
}
