//! The stack for calls to another service. The clock of tokio is paused.

use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::time::{Instant, sleep, timeout};
use tollgate::{
    Decision, Key, Limiter, MemoryStore, Outage, Policy, Quota, Store,
    store::{Check, CheckFuture, StoreFuture},
};
use tollgate_outgoing::{CopyBody, OutgoingBuilder, OutgoingLayer, RetryAfterLayer};
use tollgate_tower::key::{Global, Header};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::*;

/// Ten calls a second, 100 ms apart.
const TEN: Policy = Policy::leaky_bucket("api", Quota::per_second(10).with_burst(1_000));

/// A service with prepared answers, which records when it was called, by its own clock.
#[derive(Clone)]
struct Api {
    calls: Arc<Mutex<Vec<(Duration, String)>>>,
    answers: &'static [(u16, &'static [(&'static str, &'static str)])],
    latency: Duration,
    start: Instant,
}

type Answers = &'static [(u16, &'static [(&'static str, &'static str)])];

impl Api {
    fn new(answers: Answers) -> Self {
        Self {
            calls: Arc::default(),
            answers,
            latency: Duration::ZERO,
            start: Instant::now(),
        }
    }

    fn late(self, latency: Duration) -> Self {
        Self { latency, ..self }
    }

    /// Returns a client of the service. Calls beyond the prepared answers get the last one.
    fn client(
        &self,
    ) -> impl Service<Request<String>, Response = Response<String>, Error = Infallible, Future: Send>
    + Clone
    + use<> {
        let api = self.clone();
        service_fn(move |request: Request<String>| {
            let mut calls = api.calls.lock().unwrap();
            let id = request
                .headers()
                .get("x-id")
                .map_or("", |id| id.to_str().unwrap())
                .to_owned();
            calls.push((api.start.elapsed(), id + request.body()));
            let &(status, fields) = &api.answers[(calls.len() - 1).min(api.answers.len() - 1)];
            let mut response = Response::builder().status(status);
            for (name, value) in fields {
                response = response.header(*name, *value);
            }
            let (response, latency) =
                (response.body(calls.len().to_string()).unwrap(), api.latency);
            async move {
                if !latency.is_zero() {
                    sleep(latency).await;
                }
                Ok(response)
            }
        })
    }

    /// Returns the times of the calls in milliseconds.
    fn millis(&self) -> Vec<u128> {
        self.calls
            .lock()
            .unwrap()
            .iter()
            .map(|(at, _)| at.as_millis())
            .collect()
    }
}

/// The stores of two replicas that share their state: in the process, and one that answers later.
fn shared_stores() -> [[Arc<dyn Store>; 2]; 2] {
    let (near, far) = (Arc::new(tokio_clock_store()), Arc::new(tokio_clock_store()));
    [
        [near.clone(), near],
        [Arc::new(Late(far.clone())), Arc::new(Late(far))],
    ]
}

fn builder(store: impl Store) -> OutgoingBuilder<Global> {
    OutgoingLayer::builder(Limiter::new(store, TEN), Global)
}

#[allow(clippy::ptr_arg, reason = "the type of the body")]
fn copy(body: &String) -> Option<String> {
    Some(body.clone())
}

fn post(body: &str) -> Request<String> {
    Request::post("/").body(body.to_owned()).unwrap()
}

async fn call<K, C: CopyBody<String>>(
    layer: &OutgoingLayer<K, C>,
    api: &Api,
    request: Request<String>,
) -> Response<String>
where
    K: tollgate_tower::KeyExtractor,
{
    let Ok(response) = layer.layer(api.client()).oneshot(request).await;
    response
}

const WAIT_7: (u16, &[(&str, &str)]) = (429, &[("retry-after", "7")]);
const FINE: (u16, &[(&str, &str)]) = (200, &[]);

/// The time that a late store may take for the trips of one call.
const TRIPS: u128 = 40;

#[track_caller]
fn assert_near(found: &[u128], expected: &[u128]) {
    let is_near =
        |(&found, &expected): (&u128, &u128)| (expected..=expected + TRIPS).contains(&found);
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(is_near),
        "{found:?} != {expected:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_one_replica_is_answered_is_obeyed_by_all() {
    for stores in shared_stores() {
        let replicas = stores.map(|store| builder(store).build());
        let api = Api::new(&[WAIT_7, FINE]);
        assert_eq!(call(&replicas[0], &api, post("")).await.status(), 429);
        // Time for the pause to reach the store, and less than until the next turn.
        sleep(Duration::from_millis(50)).await;
        for replica in [1, 0] {
            assert_eq!(call(&replicas[replica], &api, post("")).await.status(), 200);
        }
        assert_near(&api.millis(), &[0, 7_000, 7_100]);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_waited_for_the_end_of_a_pause_leave_with_the_spacing_of_the_limit() {
    for stores in shared_stores() {
        let replicas = stores.map(|store| builder(store).build());
        // The second call of each replica has its turn before the first answer.
        let api = Api::new(&[WAIT_7, FINE]).late(Duration::from_millis(50));
        let calls = (0..20).map(|at| call(&replicas[at % 2], &api, post("")));
        let statuses: Vec<u16> = join_all(calls)
            .await
            .iter()
            .map(|response| response.status().as_u16())
            .collect();
        assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 1);
        let millis = api.millis();
        assert_eq!(millis.len(), 20);
        assert!(millis[1] >= 7_050, "{millis:?}");
        for pair in millis[1..].windows(2) {
            assert!(pair[1] - pair[0] >= 100 - TRIPS, "{millis:?}");
        }
        assert!(
            millis[19] <= 7_050 + 20 * 100 + TRIPS,
            "no turn is lost: {millis:?}"
        );
    }
}

/// Answers its third check late, as a server does that stands still for a moment.
struct LateOnce(MemoryStore, AtomicUsize);

impl Store for LateOnce {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let latency = if self.1.fetch_add(1, Ordering::Relaxed) == 2 {
            300
        } else {
            5
        };
        let decision = self.0.check(check);
        StoreFuture::pending(async move {
            sleep(Duration::from_millis(latency)).await;
            decision.await
        })
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.0.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.0.reset(check)
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_late_answer_of_the_store_no_call_leaves_before_its_turn() {
    let layer = builder(LateOnce(tokio_clock_store(), AtomicUsize::new(0))).build();
    let api = Api::new(&[FINE]);
    join_all((0..5).map(|_| call(&layer, &api, post("")))).await;
    let millis = api.millis();
    assert!(
        millis
            .windows(2)
            .all(|pair| pair[1] - pair[0] >= 100 - TRIPS),
        "{millis:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_left_pauses_and_some_left_does_not() {
    for (fields, expected) in [
        (&[("ratelimit", r#""a";r=0;t=3"#)], [0, 3_000]),
        (&[("ratelimit", r#""a";r=3;t=3"#)], [0, 100]),
        (&[("retry-after", "7")], [0, 100]),
    ] as [(&'static [(&str, &str)], [u128; 2]); 3]
    {
        let layer = builder(tokio_clock_store()).build();
        let api = Api::new(Box::leak(Box::new([(200, fields), FINE])));
        call(&layer, &api, post("")).await;
        call(&layer, &api, post("")).await;
        assert_near(&api.millis(), &expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shorter_pause_does_not_end_a_longer_one_of_another_replica() {
    const LONG_FIRST: Answers = &[
        (429, &[("retry-after", "9")]),
        (429, &[("retry-after", "2")]),
        FINE,
    ];
    const SHORT_FIRST: Answers = &[
        (429, &[("retry-after", "2")]),
        (429, &[("retry-after", "9")]),
        FINE,
    ];
    for answers in [LONG_FIRST, SHORT_FIRST] {
        for stores in shared_stores() {
            let replicas = stores.map(|store| builder(store).build());
            // Both calls are under way before the first answer arrives.
            let api = Api::new(answers).late(Duration::from_millis(300));
            tokio::join!(
                call(&replicas[0], &api, post("")),
                call(&replicas[1], &api, post(""))
            );
            sleep(Duration::from_millis(50)).await;
            for replica in &replicas {
                assert_eq!(call(replica, &api, post("")).await.status(), 200);
            }
            let millis = api.millis();
            let ends = if answers == LONG_FIRST {
                300 + 9_000
            } else {
                400 + 9_000
            };
            assert!((ends..ends + 2 * TRIPS).contains(&millis[2]), "{millis:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_that_are_refused_at_once_pause_as_long_as_one() {
    let store = Arc::new(tokio_clock_store());
    let replicas = [(); 8].map(|()| builder(Late(store.clone())).build());
    let api = Api::new(&[WAIT_7]);
    // All answers arrive in the same instant.
    let wave = |from: &'static str| {
        join_all(
            replicas
                .iter()
                .map(|replica| call(replica, &api, post(from))),
        )
    };
    let late = api.clone().late(Duration::from_secs(2));
    join_all(
        replicas
            .iter()
            .map(|replica| call(replica, &late, post(""))),
    )
    .await;
    let first = api.millis().len();
    assert_eq!(first, 8);
    wave("").await;
    assert!(
        api.millis()[8] <= 2_000 + 7_000 + 800 + TRIPS,
        "pauses do not add up: {:?}",
        api.millis()
    );
    assert!(api.millis()[8] >= 9_000, "{:?}", api.millis());
}

#[tokio::test(start_paused = true)]
async fn a_hostile_or_missing_time_is_bounded() {
    for (fields, expected) in [
        (&[("retry-after", "99999999999999")], 60_000),
        (&[("retry-after", "99999999999999999999999")], 60_000),
        (&[("retry-after", "")], 1_000),
        (&[("retry-after", "-1")], 1_000),
        (&[("retry-after", "soon\u{7f}")], 1_000),
        (&[("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")], 60_000),
        (&[("x-other", "")], 1_000),
        // In the past: the limit alone spaces the calls.
        (&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], 100),
        (&[("retry-after", "0")], 100),
    ] as [(&'static [(&str, &str)], u128); 9]
    {
        let fields: &'static [(&str, &str)] = match http::HeaderValue::from_str(fields[0].1) {
            Ok(_) => fields,
            Err(_) => continue,
        };
        let layer = builder(tokio_clock_store())
            .wait(Duration::from_secs(100))
            .build();
        let api = Api::new(Box::leak(Box::new([(429, fields), FINE])));
        call(&layer, &api, post("")).await;
        assert_eq!(
            call(&layer, &api, post("")).await.status(),
            200,
            "{fields:?}"
        );
        assert_near(&api.millis(), &[0, expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_repeated_with_its_body_after_the_pause() {
    let layer = builder(tokio_clock_store()).retries(2, copy).build();
    let api = Api::new(&[WAIT_7, (429, &[]), FINE]);
    let mut request = post("order");
    request.headers_mut().insert("x-id", "7 ".parse().unwrap());
    let response = call(&layer, &api, request).await;
    assert_eq!(
        (response.status(), response.body().as_str()),
        (StatusCode::OK, "3")
    );
    assert_near(&api.millis(), &[0, 7_000, 8_000]);
    assert!(
        api.calls
            .lock()
            .unwrap()
            .iter()
            .all(|(_, seen)| seen == "7 order")
    );
}

#[tokio::test(start_paused = true)]
async fn only_refusals_that_are_safe_to_repeat_are_repeated() {
    let after: &'static [(&str, &str)] = &[("retry-after", "1")];
    let forbids = RetryAfterLayer::new().delay_on_forbidden(true);
    for (method, status, fields, answers, expected) in [
        (Method::POST, 429, after, RetryAfterLayer::new(), 2),
        (Method::POST, 429, &[], RetryAfterLayer::new(), 2),
        (Method::PUT, 503, after, RetryAfterLayer::new(), 2),
        (Method::POST, 503, after, RetryAfterLayer::new(), 1),
        (Method::GET, 503, &[], RetryAfterLayer::new(), 1),
        (Method::GET, 500, after, RetryAfterLayer::new(), 1),
        (Method::GET, 403, after, RetryAfterLayer::new(), 1),
        (Method::GET, 403, after, forbids, 2),
        (Method::GET, 403, &[], forbids, 1),
        (Method::GET, 200, after, RetryAfterLayer::new(), 1),
    ] {
        let layer = builder(tokio_clock_store())
            .retry_after(answers)
            .retries(1, copy)
            .build();
        let api = Api::new(Box::leak(Box::new([(status, fields), FINE])));
        let request = Request::builder()
            .method(&method)
            .body(String::new())
            .unwrap();
        let response = call(&layer, &api, request).await;
        assert_eq!(api.millis().len(), expected, "{method} {status} {fields:?}");
        assert_eq!(
            response.status().as_u16(),
            if expected == 2 { 200 } else { status }
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_sent_again_is_sent_once() {
    let layer = builder(tokio_clock_store())
        .retries(5, |body: &String| (body != "stream").then(|| body.clone()))
        .build();
    let api = Api::new(&[WAIT_7, FINE]);
    assert_eq!(call(&layer, &api, post("stream")).await.status(), 429);
    assert_eq!(api.millis().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_last_answer_of_the_service_is_returned() {
    let fields: &'static [(&str, &str)] = &[("retry-after", "2"), ("x-from", "service")];
    let layer = builder(tokio_clock_store()).retries(3, copy).build();
    let api = Api::new(Box::leak(Box::new([(429, fields)])));
    let response = call(&layer, &api, post("")).await;
    assert_eq!(
        (
            response.status().as_u16(),
            response.headers().contains_key("x-from")
        ),
        (429, true)
    );
    assert_eq!((api.millis().len(), response.body().as_str()), (4, "4"));
}

#[tokio::test(start_paused = true)]
async fn no_attempt_begins_after_the_longest_wait() {
    for stores in shared_stores() {
        let [store, _] = stores;
        let layer = builder(store)
            .wait(Duration::from_secs(10))
            .retries(9, copy)
            .build();
        let api = Api::new(&[(429, &[("retry-after", "4"), ("x-from", "service")])]);
        let response = call(&layer, &api, post("")).await;
        // A third repetition would begin after 12 s. The caller need not wait for the end of the 10
        // s.
        assert_near(&api.millis(), &[0, 4_000, 8_000]);
        assert!(response.headers().contains_key("x-from"));
        assert!(api.start.elapsed() < Duration::from_millis(8_100));

        let layer = builder(tokio_clock_store())
            .wait(Duration::from_secs(10))
            .retries(9, copy)
            .build();
        let api = Api::new(&[(429, &[("retry-after", "60"), ("x-from", "service")])]);
        assert!(
            call(&layer, &api, post(""))
                .await
                .headers()
                .contains_key("x-from")
        );
        // The layer answers at once, and says when the end of the pause is within reach.
        let refused = call(&layer, &api, post("")).await;
        assert_eq!(
            (refused.status().as_u16(), header(&refused, "retry-after")),
            (429, Some("50"))
        );
        assert_eq!(api.millis().len(), 1);
        assert!(api.start.elapsed() < Duration::from_secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejection_by_an_inner_layer_is_no_answer_of_the_service() {
    let slow = Policy::leaky_bucket(
        "account",
        Quota::one_every(Duration::from_secs(5)).with_burst(100),
    );
    let accounts = Limiter::new(tokio_clock_store(), slow);
    let inner = OutgoingLayer::builder(accounts, Header::new("account"))
        .wait(Duration::from_secs(1))
        .build();
    let outer = builder(tokio_clock_store()).retries(5, copy).build();
    let api = Api::new(&[FINE]);
    let client = outer.layer(inner.layer(api.client()));
    let mut statuses = Vec::new();
    for account in ["sales", "sales", "support"] {
        let request = Request::builder()
            .header("account", account)
            .body(String::new())
            .unwrap();
        let Ok(response) = client.clone().oneshot(request).await;
        statuses.push(response.status().as_u16());
    }
    // The account has no turn, and calls of other accounts go on.
    assert_eq!(statuses, [200, 429, 200]);
    assert_near(&api.millis(), &[0, 200]);
}

#[tokio::test(start_paused = true)]
async fn the_turns_of_all_attempts_come_within_one_wait() {
    let slow = Policy::leaky_bucket(
        "api",
        Quota::one_every(Duration::from_secs(5)).with_burst(100),
    );
    let limiter = Limiter::new(tokio_clock_store(), slow);
    let layer = OutgoingLayer::builder(limiter, Global)
        .wait(Duration::from_secs(6))
        .retries(9, copy)
        .build();
    let api = Api::new(&[(429, &[("retry-after", "0")])]);
    // The third turn would come after 10 s, within reach in 4 s.
    let refused = call(&layer, &api, post("")).await;
    assert_eq!(
        (refused.status().as_u16(), header(&refused, "retry-after")),
        (429, Some("4"))
    );
    assert_near(&api.millis(), &[0, 5_000]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_an_end_is_a_long_one() {
    let layer = builder(tokio_clock_store())
        .wait(Duration::MAX)
        .retries(50, copy)
        .build();
    let api = Api::new(&[(429, &[("retry-after", "60")])]);
    call(&layer, &api, post("")).await;
    assert_eq!(api.millis().len(), 51);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_refuses_everything_gets_no_storm() {
    // The service does not even ask for a pause.
    let api = Api::new(&[(429, &[("retry-after", "0")])]);
    let policy = Policy::token_bucket("api", Quota::per_second(100_000));
    let limiter = Limiter::new(tokio_clock_store(), policy);
    let layer = OutgoingLayer::builder(limiter, Global)
        .retries(10, copy)
        .budget(0.2, 2)
        .build();
    join_all((0..500).map(|_| call(&layer, &api, post("")))).await;
    // Two in each of ten seconds.
    assert_eq!(api.millis().len(), 500 + 20);
}

#[tokio::test(start_paused = true)]
async fn accepted_calls_earn_retries() {
    const MIXED: Answers = &[FINE; 50];
    let mut answers = MIXED.to_vec();
    answers.push((429, &[("retry-after", "0")]));
    let api = Api::new(Box::leak(answers.into_boxed_slice()));
    let policy = Policy::token_bucket("api", Quota::per_second(100_000));
    let limiter = Limiter::new(tokio_clock_store(), policy);
    let layer = OutgoingLayer::builder(limiter, Global)
        .retries(10, copy)
        .budget(0.1, 0)
        .build();
    join_all((0..50).map(|_| call(&layer, &api, post("")))).await;
    join_all((0..50).map(|_| call(&layer, &api, post("")))).await;
    assert_eq!(api.millis().len(), 100 + 5);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_in_a_pause_is_never_sent() {
    let layer = builder(tokio_clock_store()).build();
    let api = Api::new(&[WAIT_7]);
    call(&layer, &api, post("")).await;
    assert!(
        timeout(Duration::from_secs(1), call(&layer, &api, post("")))
            .await
            .is_err()
    );
    sleep(Duration::from_secs(60)).await;
    assert_eq!(api.millis(), [0]);
}

#[tokio::test(start_paused = true)]
async fn keys_pause_by_themselves_and_a_reset_ends_a_pause() {
    let limiter = Limiter::new(tokio_clock_store(), TEN);
    let layer = OutgoingLayer::new(limiter.clone(), Header::new("account"));
    let with = |account: &str| {
        Request::builder()
            .header("account", account)
            .body(String::new())
            .unwrap()
    };
    let api = Api::new(&[(429, &[("retry-after", "7")]), FINE]);
    call(&layer, &api, with("sales")).await;
    call(&layer, &api, with("support")).await;
    let pause = Policy::leaky_bucket(
        "api/pause",
        Quota::per_second(1_000_000).with_burst(61_000_000),
    );
    let pauses = limiter.with_policies(pause);
    let left = pauses
        .peek("sales")
        .await
        .unwrap()
        .state("api/pause")
        .unwrap()
        .reset_after();
    assert_eq!(left, Duration::from_secs(7));
    pauses.reset("sales").await.unwrap();
    call(&layer, &api, with("sales")).await;
    assert_near(&api.millis(), &[0, 0, 100]);
    assert_eq!(call(&layer, &api, post("")).await.status(), 400);
}

#[tokio::test(start_paused = true)]
async fn the_pause_of_an_outer_level_is_that_of_the_limit() {
    let limiter = Limiter::new(tokio_clock_store(), TEN.at_level(1));
    let key = tollgate_tower::key_fn(|parts| Ok(Some(Key::new("acme").child(parts.uri.path()))));
    let layer = OutgoingLayer::new(limiter, key);
    let api = Api::new(&[WAIT_7, FINE]);
    for path in ["/ann", "/bob"] {
        call(
            &layer,
            &api,
            Request::get(path).body(String::new()).unwrap(),
        )
        .await;
    }
    assert_near(&api.millis(), &[0, 7_000]);
}

#[tokio::test]
async fn in_an_outage_a_replica_obeys_what_it_was_answered_itself() {
    // The stand-in for the store has the real time.
    let local = Outage::Local {
        replicas: tollgate::limiter::Replicas::Fixed(std::num::NonZeroU32::MIN),
    };
    for outage in [Outage::Open, local] {
        let layer = OutgoingLayer::builder(unavailable(outage), Global).build();
        let api = Api::new(&[(429, &[("retry-after-ms", "200")]), FINE]);
        call(&layer, &api, post("")).await;
        assert_eq!(call(&layer, &api, post("")).await.status(), 200);
        assert!(api.millis()[1] >= 200, "{:?}", api.millis());
    }
    let layer = OutgoingLayer::new(unavailable(Outage::Closed), Global);
    let api = Api::new(&[FINE]);
    assert_eq!(call(&layer, &api, post("")).await.status(), 503);
    assert!(api.millis().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_client_that_was_ready_is_called_after_the_turn() {
    let (inner, mut handle) = tower_test::mock::pair::<Request<String>, Response<String>>();
    let mut service = builder(tokio_clock_store()).build().layer(inner);
    handle.allow(1);
    let answer = tokio::spawn(service.ready().await.unwrap().call(post("")));
    handle
        .next_request()
        .await
        .unwrap()
        .1
        .send_response(Response::new("hello".into()));
    assert_eq!(answer.await.unwrap().unwrap().into_body(), "hello");
}

#[test]
fn options_that_make_no_sense_are_refused_with_their_value() {
    let builder = || builder(MemoryStore::new());
    let message = |build: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(build)).unwrap_err();
        panic.downcast_ref::<String>().cloned().unwrap()
    };
    let cap = |cap| drop(builder().retry_after(RetryAfterLayer::new().cap(cap)));
    let texts = [
        message(&|| cap(Duration::ZERO)),
        message(&|| cap(Duration::from_secs(86_401))),
        message(&|| drop(builder().budget(1.5, 1))),
        message(&|| drop(builder().budget(f32::NAN, 1))),
        message(&|| drop(builder().budget(0.1, 1_001))),
    ];
    assert_eq!(
        texts,
        [
            "the cap of a pause must be above 0 and at most 1 day, got 0ns",
            "the cap of a pause must be above 0 and at most 1 day, got 86401s",
            "the budget must be a share of 0 to 1, got 1.5",
            "the budget must be a share of 0 to 1, got NaN",
            "the budget must be at most 1000 retries per second, got 1001",
        ]
    );
    let _ = builder()
        .retry_after(RetryAfterLayer::new().cap(Duration::from_secs(86_400)))
        .build();
    let _ = builder().budget(0.0, 0).budget(1.0, 1_000).build();
    let long = Policy::leaky_bucket(
        "a-name-of-sixty-four-characters-which-is-the-most-that-is-allowe",
        Quota::per_second(1),
    );
    let _ = OutgoingLayer::new(Limiter::new(MemoryStore::new(), long), Global);
}

#[cfg(feature = "metrics")]
#[test]
fn pauses_and_retries_are_counted() {
    let series = tollgate_tests::Series::of(async {
        tokio::time::pause();
        let layer = builder(tokio_clock_store())
            .wait(Duration::from_secs(10))
            .retries(1, copy)
            .budget(0.0, 1)
            .build();
        let api = Api::new(&[(429, &[("retry-after", "2")])]);
        call(&layer, &api, post("")).await;
        let api = Api::new(&[(429, &[("retry-after", "60")])]);
        call(&layer, &api, post("")).await;
        call(&layer, &api, post("")).await;
        let api = Api::new(&[(429, &[("retry-after", "0")])]);
        let layer = builder(tokio_clock_store())
            .retries(1, copy)
            .budget(0.0, 0)
            .build();
        call(&layer, &api, post("")).await;
    });
    let count = |name: &str| series.count(name);
    assert_eq!(count("tollgate_outgoing_pauses_total limiter=api"), 3);
    for (outcome, expected) in [("repeated", 1), ("spent", 1), ("late", 1), ("no_budget", 1)] {
        assert_eq!(
            count(&format!(
                "tollgate_outgoing_retries_total limiter=api outcome={outcome}"
            )),
            expected,
            "{outcome}"
        );
    }
    assert_eq!(
        count("tollgate_decisions_total policy=api outcome=allowed"),
        4
    );
    assert_eq!(count("tollgate_rejections_total reason=denied"), 1);
}

/// Real clients and a real server.
mod clients {
    use axum::{Router, body::Body, extract::State, http::HeaderValue, routing::any};
    use hyper_util::{client::legacy::Client, rt::TokioExecutor};
    use tower::ServiceBuilder;

    use super::*;

    type Bodies = Arc<Mutex<Vec<(String, http::Version)>>>;

    /// Refuses every second call, and records the bodies.
    async fn refusing() -> (String, Bodies) {
        let bodies = Bodies::default();
        async fn answer(
            State(bodies): State<Bodies>,
            request: Request<Body>,
        ) -> (StatusCode, HeaderMap, &'static str) {
            let version = request.version();
            let body = axum::body::to_bytes(request.into_body(), 1 << 20)
                .await
                .unwrap();
            let mut bodies = bodies.lock().unwrap();
            bodies.push((String::from_utf8(body.to_vec()).unwrap(), version));
            match bodies.len() % 2 {
                0 => (StatusCode::OK, HeaderMap::new(), "hello"),
                _ => {
                    let fields = HeaderMap::from_iter([(
                        http::header::RETRY_AFTER,
                        HeaderValue::from_static("0"),
                    )]);
                    (StatusCode::TOO_MANY_REQUESTS, fields, "refused")
                }
            }
        }
        let address = serve(
            Router::new()
                .fallback(any(answer))
                .with_state(bodies.clone()),
        )
        .await;
        (format!("http://{address}/"), bodies)
    }

    #[tokio::test]
    async fn a_client_of_hyper_speaks_http_1_and_2() {
        for is_2 in [false, true] {
            let (url, bodies) = refusing().await;
            let client = Client::builder(TokioExecutor::new())
                .http2_only(is_2)
                .build_http::<Body>();
            let layer = builder(MemoryStore::new())
                .retries(1, |body: &Body| {
                    axum::body::HttpBody::is_end_stream(body).then(Body::empty)
                })
                .build();
            let client = ServiceBuilder::new()
                .layer(layer)
                .map_response(|response: Response<hyper::body::Incoming>| response.map(Body::new))
                .service(client);
            let send = |request: Request<Body>| client.clone().oneshot(request);
            assert_eq!(
                send(Request::get(&url).body(Body::empty()).unwrap())
                    .await
                    .unwrap()
                    .status(),
                200
            );
            // The body cannot be copied: the second of two is refused, and not repeated.
            assert_eq!(
                send(Request::post(&url).body(Body::from("once")).unwrap())
                    .await
                    .unwrap()
                    .status(),
                429
            );
            let expected = if is_2 {
                http::Version::HTTP_2
            } else {
                http::Version::HTTP_11
            };
            let bodies = bodies.lock().unwrap();
            assert_eq!(
                bodies
                    .iter()
                    .map(|(body, _)| body.as_str())
                    .collect::<Vec<_>>(),
                ["", "", "once"]
            );
            assert!(bodies.iter().all(|(_, version)| *version == expected));
        }
    }

    #[cfg(feature = "reqwest")]
    #[tokio::test]
    async fn a_client_of_reqwest_keeps_its_types_and_options() {
        use tollgate_outgoing::ReqwestClient;

        let (url, bodies) = refusing().await;
        let client = reqwest::Client::new();
        let layer = builder(MemoryStore::new())
            .retries(3, ReqwestClient::copy_body)
            .build();
        let api = layer.layer(ReqwestClient::new(client.clone()));
        let request = client
            .post(&url)
            .header("x-id", "7")
            .body("order 7")
            .build()
            .unwrap();
        let response = api.execute(request).await.unwrap();
        assert_eq!(response.url().as_str(), url);
        assert_eq!(
            (
                response.status().as_u16(),
                response.text().await.unwrap().as_str()
            ),
            (200, "hello")
        );
        let seen: Vec<_> = bodies
            .lock()
            .unwrap()
            .iter()
            .map(|(body, _)| body.clone())
            .collect();
        assert_eq!(seen, ["order 7", "order 7"]);

        // A stream is sent once.
        let stream = reqwest::Body::wrap(http_body_util::BodyExt::boxed(
            http_body_util::Full::new(bytes::Bytes::from("once")),
        ));
        let response = api
            .execute(client.post(&url).body(stream).build().unwrap())
            .await
            .unwrap();
        assert_eq!(response.status(), 429);
        assert_eq!(bodies.lock().unwrap().len(), 3);

        // The layer answers in the place of the service.
        let blocked = Policy::leaky_bucket("api", Quota::per_second(10))
            .with_quota("0/s".parse().unwrap())
            .unwrap();
        let limiter = Limiter::new(MemoryStore::new(), blocked);
        let never = OutgoingLayer::new(limiter, Global).layer(ReqwestClient::new(client.clone()));
        let response = never
            .execute(client.get(&url).build().unwrap())
            .await
            .unwrap();
        assert_eq!(
            (response.status().as_u16(), response.url().as_str()),
            (429, url.as_str())
        );

        // The timeout of a request is kept.
        let (listener, address) = listen().await;
        let request = client
            .get(format!("http://{address}/"))
            .timeout(Duration::from_millis(1))
            .build()
            .unwrap();
        assert!(api.execute(request).await.unwrap_err().is_timeout());
        drop(listener);
    }
}
