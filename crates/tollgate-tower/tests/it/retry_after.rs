//! Calls that go out. Time is tokio's, paused.

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

/// Another side that answers with these in turn, and when it was called.
struct OtherSide {
    calls: Arc<Mutex<Vec<Duration>>>,
    service: BoxCloneService<Request<()>, Response<String>, Infallible>,
}

fn other_side(layer: RetryAfterLayer, answers: &'static [(u16, &'static str)]) -> OtherSide {
    late_side(layer, answers, Duration::ZERO)
}

fn late_side(layer: RetryAfterLayer, answers: &'static [(u16, &'static str)], latency: Duration) -> OtherSide {
    let start = Instant::now();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let log = calls.clone();
    let service = layer.layer(service_fn(move |_: Request<()>| {
        let mut log = log.lock().unwrap();
        log.push(start.elapsed());
        let (status, retry_after) = answers.get(log.len() - 1).copied().unwrap_or((200, ""));
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
    OtherSide { calls, service: BoxCloneService::new(service) }
}

impl OtherSide {
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
async fn calls_are_held_back_until_the_other_side_wants_them() {
    let api = other_side(EXACT, &[(200, ""), (429, "7"), (503, "2")]);
    let statuses = [api.call().await, api.call().await, api.call().await, api.call().await];
    assert_eq!(statuses.map(|it| it.as_u16()), [200, 429, 503, 200]);
    assert_eq!(api.seconds(), [0, 0, 7, 9]);
}

#[tokio::test(start_paused = true)]
async fn no_answer_holds_calls_back_for_longer_than_the_cap() {
    let api = other_side(EXACT.cap(Duration::from_secs(5)), &[(429, "100000000")]);
    api.call().await;
    api.call().await;
    assert_eq!(api.seconds(), [0, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_a_time_holds_calls_back_for_the_fallback() {
    let api = other_side(EXACT.fallback(Duration::from_secs(3)), &[(503, "")]);
    api.call().await;
    api.call().await;
    assert_eq!(api.seconds(), [0, 3]);
}

#[tokio::test(start_paused = true)]
async fn jitter_spreads_calls_and_never_hastens_one() {
    let api = other_side(RetryAfterLayer::new().jitter(0.5), &[(429, "10")]);
    api.call().await;
    futures_util::future::join_all((0..50).map(|_| api.call())).await;
    let calls = api.calls.lock().unwrap();
    let held = &calls[1..];
    assert!(held.iter().all(|at| (10_000..=15_002).contains(&at.as_millis())), "{held:?}");
    let spread = held.iter().max().unwrap().saturating_sub(*held.iter().min().unwrap());
    assert!(spread > Duration::from_secs(1), "{spread:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shorter_wait_does_not_end_a_longer_one() {
    let api = late_side(EXACT, &[(429, "10"), (429, "3")], Duration::from_millis(5));
    // Both are on their way before either is answered.
    let (_, _) = tokio::join!(api.call(), api.call());
    assert_eq!(api.seconds(), [0, 0]);
    api.call().await;
    assert_eq!(api.seconds(), [0, 0, 10]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_hears_of_a_new_wait() {
    let api = other_side(EXACT, &[(429, "2"), (429, "5")]);
    api.call().await;
    let (_, _) = tokio::join!(api.call(), async {
        sleep(Duration::from_micros(1)).await;
        api.call().await
    });
    assert_eq!(api.seconds(), [0, 2, 7]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_while_held_never_goes_out() {
    let api = other_side(EXACT, &[(429, "7")]);
    api.call().await;
    assert!(timeout(Duration::from_secs(1), api.call()).await.is_err());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(api.seconds(), [0]);
}

#[tokio::test(start_paused = true)]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    let (inner, mut handle) = tower_test::mock::pair::<Request<()>, Response<String>>();
    let mut service = EXACT.layer(inner);
    handle.allow(2);
    let refused = tokio::spawn(service.ready().await.unwrap().call(request()));
    let answer = Response::builder().status(429).header("retry-after", "1").body(String::new()).unwrap();
    handle.next_request().await.unwrap().1.send_response(answer);
    refused.await.unwrap().unwrap();
    let held = tokio::spawn(service.ready().await.unwrap().call(request()));
    handle.next_request().await.unwrap().1.send_response(Response::new("well".into()));
    assert_eq!(held.await.unwrap().unwrap().into_body(), "well");
}
