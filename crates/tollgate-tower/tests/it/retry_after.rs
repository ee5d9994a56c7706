//! Outgoing requests. The clock of tokio is paused.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use tokio::time::{Instant, sleep, timeout};
use tollgate_tower::RetryAfterLayer;
use tower::{Layer, Service, ServiceExt, service_fn, util::BoxCloneService};

use crate::support::request;

/// A remote server with prepared responses, which records when it was called.
struct Server {
    calls: Arc<Mutex<Vec<Duration>>>,
    service: BoxCloneService<Request<()>, Response<String>, Infallible>,
}

fn server(layer: RetryAfterLayer, responses: &'static [(u16, &'static str)]) -> Server {
    late_server(layer, responses, Duration::ZERO)
}

fn late_server(layer: RetryAfterLayer, responses: &'static [(u16, &'static str)], latency: Duration) -> Server {
    let start = Instant::now();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let log = calls.clone();
    let service = layer.layer(service_fn(move |_: Request<()>| {
        let mut log = log.lock().unwrap();
        log.push(start.elapsed());
        let (status, retry_after) = responses.get(log.len() - 1).copied().unwrap_or((200, ""));
        let mut response = Response::builder().status(status);
        if !retry_after.is_empty() {
            response = response.header("retry-after", retry_after);
        }
        async move {
            if !latency.is_zero() {
                sleep(latency).await;
            }
            Ok(response.body(String::new()).unwrap())
        }
    }));
    Server { calls, service: BoxCloneService::new(service) }
}

impl Server {
    async fn call(&self) -> StatusCode {
        let Ok(response) = self.service.clone().oneshot(request()).await;
        response.status()
    }

    fn seconds(&self) -> Vec<u64> {
        self.calls.lock().unwrap().iter().map(Duration::as_secs).collect()
    }
}

const EXACT: RetryAfterLayer = RetryAfterLayer::new().jitter(0.0);

#[tokio::test(start_paused = true)]
async fn requests_are_delayed_until_the_server_accepts_them() {
    let api = server(EXACT, &[(200, ""), (429, "7"), (503, "2")]);
    let statuses = [api.call().await, api.call().await, api.call().await, api.call().await];
    assert_eq!(statuses.map(|it| it.as_u16()), [200, 429, 503, 200]);
    assert_eq!(api.seconds(), [0, 0, 7, 9]);
}

#[tokio::test(start_paused = true)]
async fn no_response_causes_a_delay_above_the_cap() {
    let api = server(EXACT.cap(Duration::from_secs(5)), &[(429, "100000000")]);
    api.call().await;
    api.call().await;
    assert_eq!(api.seconds(), [0, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_503_without_retry_after_causes_the_fallback_delay() {
    let api = server(EXACT.fallback(Duration::from_secs(3)), &[(503, "")]);
    api.call().await;
    api.call().await;
    assert_eq!(api.seconds(), [0, 3]);
}

#[tokio::test(start_paused = true)]
async fn jitter_spreads_requests_and_never_shortens_a_delay() {
    let api = server(RetryAfterLayer::new().jitter(0.5), &[(429, "10")]);
    api.call().await;
    futures_util::future::join_all((0..50).map(|_| api.call())).await;
    let calls = api.calls.lock().unwrap();
    let delayed = &calls[1..];
    assert!(delayed.iter().all(|at| (10_000..=15_002).contains(&at.as_millis())), "{delayed:?}");
    let spread = delayed.iter().max().unwrap().saturating_sub(*delayed.iter().min().unwrap());
    assert!(spread > Duration::from_secs(1), "{spread:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shorter_delay_does_not_end_a_longer_one() {
    // The longer delay arrives first, and then last.
    for responses in [&[(429, "10"), (429, "3")], &[(429, "3"), (429, "10")]] {
        let api = late_server(EXACT, responses, Duration::from_millis(5));
        // Both requests are sent before the first response, and the responses arrive one after the other.
        let first = tokio::spawn(api.service.clone().oneshot(request()));
        sleep(Duration::from_millis(2)).await;
        let second = tokio::spawn(api.service.clone().oneshot(request()));
        sleep(Duration::from_millis(2)).await;
        assert_eq!(api.seconds(), [0, 0]);
        assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(!second.is_finished());
        assert_eq!(second.await.unwrap().unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
        api.call().await;
        assert_eq!(api.seconds(), [0, 0, 10], "{responses:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_follows_a_new_delay() {
    let api = server(EXACT, &[(429, "2"), (429, "5")]);
    api.call().await;
    let (_, _) = tokio::join!(api.call(), async {
        sleep(Duration::from_micros(1)).await;
        api.call().await
    });
    assert_eq!(api.seconds(), [0, 2, 7]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_cancelled_during_its_delay_is_never_sent() {
    let api = server(EXACT, &[(429, "7")]);
    api.call().await;
    assert!(timeout(Duration::from_secs(1), api.call()).await.is_err());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(api.seconds(), [0]);
}

#[tokio::test(start_paused = true)]
async fn the_service_that_was_ready_is_called_after_the_delay() {
    let (inner, mut handle) = tower_test::mock::pair::<Request<()>, Response<String>>();
    let mut service = EXACT.layer(inner);
    handle.allow(2);
    let rejected = tokio::spawn(service.ready().await.unwrap().call(request()));
    let response = Response::builder().status(429).header("retry-after", "1").body(String::new()).unwrap();
    handle.next_request().await.unwrap().1.send_response(response);
    rejected.await.unwrap().unwrap();
    let delayed = tokio::spawn(service.ready().await.unwrap().call(request()));
    handle.next_request().await.unwrap().1.send_response(Response::new("hello".into()));
    assert_eq!(delayed.await.unwrap().unwrap().into_body(), "hello");
}
