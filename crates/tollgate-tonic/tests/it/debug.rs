//! The `Debug` output of the public types: it names the policies, and it holds no key.

use std::fmt::Debug;

use tollgate_tonic::{
    AsyncRateLimitInterceptor, GrpcStatus, MethodLimiters, RateLimitInterceptor,
    key::Metadata,
    messages::{MessageCharge, MessageLayer, charge_stream},
};
use tonic::{Code, Status};
use tonic_async_interceptor::AsyncInterceptor;
use tower::Layer;

use crate::support::*;

/// Asserts that the output contains these words, in this order.
fn assert_words(value: &impl Debug, words: &[&str]) {
    let output = format!("{value:?}");
    let mut rest = output.as_str();
    for word in words {
        let at = rest.find(word);
        assert!(at.is_some(), "{word} is missing: {output}");
        rest = at.map_or("", |at| &rest[at + word.len()..]);
    }
    assert!(!output.contains("acme"), "{output}");
}

#[test]
fn responders_name_their_options() {
    let responder = GrpcStatus::new()
        .code(Code::Unavailable)
        .domain("greeter.example.com")
        .pushback(true);
    let words = [
        "GrpcStatus",
        "Unavailable",
        "greeter.example.com",
        "pushback: true",
        "retry_after: false",
    ];
    assert_words(&responder, &words);
    assert_words(
        &GrpcStatus::new().retry_after(true),
        &["GrpcStatus", "ResourceExhausted", "retry_after: true"],
    );
}

#[test]
fn interceptors_name_their_limiter() {
    let interceptor = RateLimitInterceptor::new(limiter(TWO), Metadata::new("x-api-key")).unwrap();
    assert_words(&interceptor, &["RateLimitInterceptor", "two: TokenBucket"]);
    assert_words(
        &RateLimitInterceptor::after_layer(),
        &["RateLimitInterceptor", "None"],
    );

    let mut interceptor = AsyncRateLimitInterceptor::new(limiter(TWO), Metadata::new("x-api-key"));
    assert_words(
        &interceptor,
        &["AsyncRateLimitInterceptor", "two: TokenBucket"],
    );
    assert_words(
        &interceptor.call(request_from("acme", ())),
        &["InterceptFuture"],
    );
}

#[test]
fn tables_and_layers_name_their_limiters() {
    let methods = MethodLimiters::new(limiter(TWO))
        .service("echo.Echo", limiter(MANY))
        .exempt("other.Service");
    assert_words(
        &methods,
        &[
            "MethodLimiters",
            "two: TokenBucket",
            "echo.Echo",
            "many: TokenBucket",
            "other.Service",
            "None",
        ],
    );

    let builder = tollgate_tonic::builder(limiter(TWO), Metadata::new("x-api-key"));
    let layer = MessageLayer::new(builder, MessageCharge::sent());
    assert_words(&layer, &["MessageLayer", "Sent"]);
    let service = layer.layer(EchoServer::new(Echoing));
    assert_words(&service, &["MessageService", "Sent"]);
}

#[test]
fn a_charged_stream_names_its_limiter() {
    let stream = charge_stream(
        tokio_stream::iter([Ok::<_, Status>("acme")]),
        limiter(TWO),
        "acme",
    );
    assert_words(&stream, &["ChargedStream", "two: TokenBucket"]);
}
