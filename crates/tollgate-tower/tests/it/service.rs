//! The calls of the inner service.

use std::{
    convert::Infallible,
    future::{Ready, poll_fn, ready},
    task::{Context, Poll},
    time::Duration,
};

use crate::support::*;
use http::{Request, Response, StatusCode};
use tollgate::{Limiter, Store};
use tollgate_tower::{RateLimitLayer, key::Global};
use tower::{BoxError, Layer, Service, ServiceExt, util::BoxService};
use tower_test::{assert_request_eq, mock};

/// Panics when it is called before it was ready. A clone has to become ready again.
#[derive(Debug, Default)]
struct Strict {
    is_ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.is_ready),
            "called without being ready"
        );
        ready(Ok(Response::new(String::new())))
    }
}

/// Calls a strict service twice behind a limiter on this store.
async fn call_twice(store: impl Store) {
    let layer = RateLimitLayer::new(Limiter::new(store, TWO), Global);
    let mut service = layer.layer(Strict::default());
    for _ in 0..2 {
        let call = service.ready().await.unwrap().call(request());
        assert_eq!(call.await.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_that_was_ready_is_called_also_after_a_late_decision() {
    call_twice(still()).await;
    call_twice(Late(still())).await;
}

type Boxed = BoxService<Request<()>, Response<String>, BoxError>;

/// Creates a mock behind a limit of one request per minute.
fn mocked(store: impl Store) -> (Boxed, mock::Handle<Request<()>, Response<String>>) {
    let (inner, handle) = mock::pair::<Request<()>, Response<String>>();
    (
        Boxed::new(RateLimitLayer::new(Limiter::new(store, ONE), Global).layer(inner)),
        handle,
    )
}

#[tokio::test]
async fn the_layer_is_ready_only_if_the_service_is() {
    let (mut service, mut handle) = mocked(still());
    let mut is_ready = async || poll_fn(|cx| Poll::Ready(service.poll_ready(cx).is_ready())).await;
    handle.allow(0);
    assert!(!is_ready().await);
    handle.allow(1);
    assert!(is_ready().await);
}

#[tokio::test(start_paused = true)]
async fn denial_does_not_call_inner() {
    for (mut service, mut handle) in [mocked(still()), mocked(Late(still()))] {
        handle.allow(2);
        let first = tokio::spawn(service.ready().await.unwrap().call(request()));
        handle
            .next_request()
            .await
            .unwrap()
            .1
            .send_response(Response::new("inner".to_owned()));
        assert_eq!(first.await.unwrap().unwrap().into_body(), "inner");

        let denied = service
            .ready()
            .await
            .unwrap()
            .call(request())
            .await
            .unwrap();
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
        drop(service);
        assert!(
            handle.next_request().await.is_none(),
            "the inner service was called"
        );
    }
}

#[tokio::test]
async fn an_error_of_the_service_is_returned_unchanged() {
    let (mut service, mut handle) = mocked(still());
    handle.allow(1);
    let future = service.ready().await.unwrap().call(request());
    let answered = tokio::spawn(future);
    handle.next_request().await.unwrap().1.send_error("broken");
    assert_eq!(answered.await.unwrap().unwrap_err().to_string(), "broken");
}

#[tokio::test(start_paused = true)]
async fn the_service_is_called_only_after_the_decision() {
    let (mut service, mut handle) = mocked(Late(still()));
    handle.allow(1);
    let answered = tokio::spawn(service.ready().await.unwrap().call(request()));
    tokio::select! {
        biased;
        _ = handle.next_request() => panic!("called before the decision"),
        () = tokio::time::sleep(Duration::from_millis(4)) => {}
    }
    handle
        .next_request()
        .await
        .unwrap()
        .1
        .send_response(Response::new(String::new()));
    assert_eq!(answered.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_cancelled_before_the_decision_never_reaches_the_service() {
    let (mut service, mut handle) = mocked(Late(still()));
    handle.allow(1);
    let future = service.ready().await.unwrap().call(request());
    assert!(
        tokio::time::timeout(Duration::from_millis(1), future)
            .await
            .is_err()
    );
    drop(service);
    assert!(handle.next_request().await.is_none());
}

#[tokio::test]
async fn the_request_reaches_the_service_unchanged() {
    let layer = RateLimitLayer::new(Limiter::new(still(), ONE), Global);
    let (inner, mut handle) = mock::pair::<String, Response<String>>();
    let inner = inner.map_request(|request: Request<&str>| format!("{request:?}"));
    let mut service = layer.layer(inner);
    handle.allow(1);
    let request = || Request::post("/a?b").header("c", "d").body("e").unwrap();
    let _answered = service.ready().await.unwrap().call(request());
    assert_request_eq!(handle, format!("{:?}", request()))
        .send_response(Response::new(String::new()));
}
