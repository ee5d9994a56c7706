//! Tests of the service that charges messages, and of the request body that the handler reads.

use std::{
    future::{Ready, ready},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use http::{Request, Response};
use http_body::Body as _;
use tonic::{Status, body::Body};
use tower::Service;

use super::{ScriptedBody, Step, frozen_store, limiter, message, meter};
use crate::{
    messages::{
        charge::Direction,
        denial_signal::denial_channel,
        metered_body::MeteredBody,
        request_body::RequestBody,
        service::{MessageService, Settings},
    },
    status::GrpcStatus,
};

/// Is ready as `ready` says, and answers every call.
struct InnerService {
    ready: Poll<Result<(), &'static str>>,
}

impl Service<Request<Body>> for InnerService {
    type Response = Response<Body>;
    type Error = &'static str;
    type Future = Ready<Result<Response<Body>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        self.ready
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        ready(Ok(Response::default()))
    }
}

fn service(ready: Poll<Result<(), &'static str>>) -> MessageService<InnerService> {
    MessageService::new(InnerService { ready }, Arc::new(Settings::new(Direction::Both, GrpcStatus::new())))
}

#[test]
fn the_service_is_ready_when_the_inner_service_is() {
    for ready in [Poll::Pending, Poll::Ready(Ok(())), Poll::Ready(Err("the inner service failed"))] {
        assert_eq!(service(ready).poll_ready(&mut Context::from_waker(Waker::noop())), ready);
    }
}

/// Answers every call with the error of a handler, and keeps the request.
#[derive(Default)]
struct Failing(Option<Request<Body>>);

impl Service<Request<Body>> for Failing {
    type Response = Response<Body>;
    type Error = &'static str;
    type Future = Ready<Result<Response<Body>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0 = Some(request);
        ready(Ok(Status::aborted("aborted by the handler").into_http()))
    }
}

#[tokio::test]
async fn an_error_of_the_handler_stays_a_single_frame() {
    let settings = Settings::new(Direction::Both, GrpcStatus::new());
    let mut service = MessageService::new(Failing::default(), Arc::new(settings));
    let mut request = Request::post("/echo.Echo/Client").header("content-type", "application/grpc");
    request.extensions_mut().unwrap().insert(limiter(frozen_store(), 1).await);
    let (unread, _) = ScriptedBody::new([Step::Data(message(1))]);
    let response = service.call(request.body(Body::new(unread)).unwrap()).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "10");
    assert!(response.body().is_end_stream());
}

#[test]
fn the_debug_output_of_a_response_hides_the_request() {
    let request = Request::post("/echo.Echo/Unary").header("x-api-key", "acme").body(Body::default()).unwrap();
    let response = service(Poll::Ready(Ok(()))).call(request);
    assert_eq!(format!("{response:?}"), "ResponseFuture { .. }");
}

#[tokio::test]
async fn a_request_body_says_when_it_is_at_its_end() {
    let (sender, _receiver) = denial_channel();
    let (inner, _) = ScriptedBody::new([Step::Data(message(1))]);
    let mut body = pin!(RequestBody::new(MeteredBody::new(inner, meter(limiter(frozen_store(), 1).await)), sender));
    assert!(!body.is_end_stream());
    let frame = body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(frame, Poll::Ready(Some(Ok(_)))));
    assert!(body.is_end_stream());
}
