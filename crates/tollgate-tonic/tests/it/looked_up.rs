//! Limits that are looked up: in layers, tables of methods and interceptors.

use tollgate::{
    Limiter, LimiterHandle, Policy, Quota,
    limiter::Selection,
    tenants::{SourceOutage, TenantLimiters},
};
use tollgate_tonic::{
    AsyncRateLimitInterceptor, MethodLimiters, RateLimitInterceptor,
    key::Metadata,
    messages::{MessageCharge, MessageLayer},
};
use tollgate_tower::LimiterSource;
use tonic::{Code, transport::Server};
use tonic_async_interceptor::async_interceptor;

use crate::support::*;

const ONE: Policy = Policy::token_bucket("one", Quota::per_minute(1));

fn key() -> Metadata {
    Metadata::new("x-api-key")
}

/// Fetches the limits of a caller. The source fails for the caller `away`.
fn tenants(default: Limiter, outage: SourceOutage) -> LimiterSource {
    let fetch = async |tenant: String| {
        tokio::task::yield_now().await;
        match &*tenant {
            "acme" => Ok(TWO.into()),
            "staff" => Ok(Selection::Exempt),
            "away" => Err("the database is away"),
            _ => Ok(Selection::Default),
        }
    };
    let tenants = TenantLimiters::builder(default, fetch)
        .on_outage(outage)
        .build();
    LimiterSource::by_tenant(tenants, |parts| {
        Some(parts.headers.get("x-api-key")?.to_str().ok()?.to_owned())
    })
}

/// Asserts what each caller gets where the default allows one call.
async fn assert_limits_of_tenants(client: &mut EchoClient<tonic::transport::Channel>) {
    assert_eq!(codes(client, "acme", 3).await, TWO_OF_THREE);
    assert_eq!(
        codes(client, "other", 2).await,
        [Code::Ok, Code::ResourceExhausted]
    );
    assert_eq!(codes(client, "staff", 3).await, [Code::Ok; 3]);
    assert_eq!(codes(client, "away", 2).await, [Code::Unavailable; 2]);
    let status = denial(client).await;
    assert_eq!(quota_of(&status), "two");
    let status = client
        .unary(request_from("away", message("hello")))
        .await
        .unwrap_err();
    assert!(!status.message().contains("database"), "{status:?}");
}

#[tokio::test]
async fn a_layer_limits_each_tenant_by_its_own_quota() {
    for default in [limiter(ONE), remote_limiter(ONE)] {
        let layer = tollgate_tonic::layer(tenants(default, SourceOutage::Closed), key());
        assert_limits_of_tenants(&mut client_behind(layer).await).await;
    }
}

#[tokio::test]
async fn an_asynchronous_interceptor_limits_each_tenant_by_its_own_quota() {
    for default in [limiter(ONE), remote_limiter(ONE)] {
        let interceptor =
            AsyncRateLimitInterceptor::new(tenants(default, SourceOutage::Closed), key());
        let server = Server::builder()
            .layer(async_interceptor(interceptor))
            .add_service(EchoServer::new(Echoing));
        assert_limits_of_tenants(&mut client(serve(server).await).await).await;
    }
}

#[tokio::test]
async fn a_table_of_methods_takes_limits_that_are_looked_up() {
    let handle = LimiterHandle::new(limiter(ONE));
    let methods = MethodLimiters::new(tenants(limiter(ONE), SourceOutage::Default))
        .method("/echo.Echo/Server", handle.clone());
    let mut client = client_behind(tollgate_tonic::layer(methods, key())).await;
    assert_eq!(codes(&mut client, "acme", 3).await, TWO_OF_THREE);
    assert_eq!(stream_code(&mut client, "acme").await, Code::Ok);
    assert_eq!(
        stream_code(&mut client, "acme").await,
        Code::ResourceExhausted
    );
    handle.replace_policies(MANY);
    assert_eq!(stream_code(&mut client, "acme").await, Code::Ok);
}

#[tokio::test]
async fn a_synchronous_interceptor_follows_a_handle() {
    let handle = LimiterHandle::new(limiter(ONE));
    let interceptor = RateLimitInterceptor::new(handle.clone(), key()).unwrap();
    let server = Server::builder().add_service(EchoServer::with_interceptor(Echoing, interceptor));
    let mut client = client(serve(server).await).await;
    assert_eq!(
        codes(&mut client, "acme", 2).await,
        [Code::Ok, Code::ResourceExhausted]
    );
    handle.replace_policies(MANY);
    assert_eq!(codes(&mut client, "acme", 2).await, [Code::Ok; 2]);
}

#[tokio::test]
async fn messages_are_charged_to_the_limiter_of_the_tenant() {
    let calls = tollgate_tonic::builder(tenants(limiter(ONE), SourceOutage::Default), key());
    let layer = MessageLayer::new(calls, MessageCharge::sent());
    let mut client = client(serve_behind(layer).await).await;
    // The call pays for the first message, and its quota for one more.
    let mut stream = client
        .server(request_from("acme", message(5)))
        .await
        .unwrap()
        .into_inner();
    let mut received = 0;
    let status = loop {
        match stream.message().await {
            Ok(Some(_)) => received += 1,
            Ok(None) => panic!("the stream ends without a denial"),
            Err(status) => break status,
        }
    };
    assert_eq!((received, status.code()), (2, Code::ResourceExhausted));
    assert_eq!(quota_of(&status), "two");
}
