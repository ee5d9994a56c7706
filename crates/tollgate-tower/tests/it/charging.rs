//! Charges and refunds.

use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use tollgate::{Cost, Limiter, Policy, Quota};
use tollgate_tower::{Outcome, RateLimitLayer, key::Global};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

use crate::support::*;

/// Returns the remaining units of [`TWO`].
async fn left(limiter: &Limiter) -> u64 {
    remaining(limiter, "all", "two").await
}

/// Creates a limiter with a store that answers at once, and one with a store that answers later.
fn both() -> [Limiter; 2] {
    [Limiter::new(still(), TWO), Limiter::new(Late(still()), TWO)]
}

/// Waits until the background refunds of a late store are done. The clock of tokio is paused.
async fn refunds_are_done() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// Sends one request to a service, for up to `patience`. Returns the outcomes that the layer has
/// seen.
async fn outcomes<S>(limiter: &Limiter, service: S, patience: Duration) -> Vec<String>
where
    S: Service<Request<()>, Response = Response<String>, Error = BoxError, Future: Send> + Clone,
{
    let seen = Arc::new(Mutex::new(Vec::new()));
    let outcomes = seen.clone();
    let layer = RateLimitLayer::builder(limiter.clone(), Global)
        .final_cost(move |outcome, charged| {
            assert_eq!(charged, Cost::ONE);
            let name = match outcome {
                Outcome::Response(parts) => parts.status.to_string(),
                other => format!("{other:?}"),
            };
            outcomes.lock().unwrap().push(format!(
                "{name} {:?}",
                outcome.status().map(|status| status.as_u16())
            ));
            Cost::ZERO
        })
        .build();
    let response = AssertUnwindSafe(layer.layer(service).oneshot(request())).catch_unwind();
    let _ = tokio::time::timeout(patience, response).await;
    refunds_are_done().await;
    seen.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn every_outcome_settles_the_charge_once() {
    const PATIENT: Duration = Duration::from_secs(60);
    for limiter in both() {
        let answers = service_fn(|_| async { Ok(Response::new(String::new())) });
        assert_eq!(
            outcomes(&limiter, answers, PATIENT).await,
            ["200 OK Some(200)"]
        );
        assert_eq!(left(&limiter).await, 2);

        let fails = service_fn(|_| async { Err("broken".into()) });
        assert_eq!(
            outcomes(&limiter, fails, PATIENT).await,
            ["Failed Some(500)"]
        );
        assert_eq!(left(&limiter).await, 2);

        let panics = service_fn(|_| async { panic!("in the future") });
        assert_eq!(
            outcomes(&limiter, panics, PATIENT).await,
            ["Panicked Some(500)"]
        );
        assert_eq!(left(&limiter).await, 2);

        let panics_at_once = service_fn(|_| -> std::future::Ready<_> { panic!("in the call") });
        assert_eq!(
            outcomes(&limiter, panics_at_once, PATIENT).await,
            ["Panicked Some(500)"]
        );
        assert_eq!(left(&limiter).await, 2);

        let hangs = service_fn(|_| std::future::pending());
        assert_eq!(
            outcomes(&limiter, hangs, Duration::from_secs(1)).await,
            ["Cancelled None"]
        );
        assert_eq!(left(&limiter).await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn charge_on_does_not_refund_a_cancelled_request() {
    let limiter = Limiter::new(still(), TWO);
    let layer = RateLimitLayer::builder(limiter.clone(), Global)
        .charge_on(|_| false)
        .build();
    let hangs =
        service_fn(|_: Request<()>| std::future::pending::<Result<Response<String>, Infallible>>());
    let _ = tokio::time::timeout(
        Duration::from_secs(1),
        layer.layer(hangs).oneshot(request()),
    )
    .await;
    assert_eq!(left(&limiter).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_cancelled_before_the_decision_has_no_charge_to_settle() {
    let limiter = Limiter::new(Late(still()), TWO);
    let layer = RateLimitLayer::builder(limiter.clone(), Global)
        .final_cost(|_, _| panic!("there is no charge"))
        .build();
    let service = layer.layer(hello());
    assert!(
        tokio::time::timeout(Duration::from_millis(1), service.oneshot(request()))
            .await
            .is_err()
    );
}

/// Responds after 10 ms with the status in the body of the request.
fn log_in()
-> impl Service<Request<u16>, Response = Response<String>, Error = Infallible, Future: Send> + Clone
{
    service_fn(|request: Request<u16>| async move {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok(Response::builder()
            .status(*request.body())
            .body(String::new())
            .unwrap())
    })
}

/// Sends requests at once that the service answers with `status`. Returns the number of responses
/// with each status.
async fn at_once<S>(service: &S, status: u16, count: usize) -> (usize, usize)
where
    S: Service<Request<u16>, Response = Response<String>, Error = Infallible> + Clone,
{
    let calls = (0..count).map(|_| service.clone().oneshot(Request::new(status)));
    let responses = futures_util::future::join_all(calls).await;
    refunds_are_done().await;
    let count = |status| {
        responses
            .iter()
            .filter(|response| response.as_ref().unwrap().status() == status)
            .count()
    };
    (
        count(StatusCode::from_u16(status).unwrap()),
        count(StatusCode::TOO_MANY_REQUESTS),
    )
}

#[tokio::test(start_paused = true)]
async fn thirty_right_log_ins_at_once_all_pass_with_charge_after_and_not_with_charge_on() {
    for limiter in both() {
        let is_wrong = |status| status == StatusCode::UNAUTHORIZED;
        let after = RateLimitLayer::builder(limiter.clone(), Global)
            .charge_after(is_wrong)
            .build()
            .layer(log_in());
        assert_eq!(at_once(&after, 200, 30).await, (30, 0));
        assert_eq!(left(&limiter).await, 2);

        let before = RateLimitLayer::builder(limiter.clone(), Global)
            .charge_on(is_wrong)
            .build()
            .layer(log_in());
        assert_eq!(at_once(&before, 200, 30).await, (2, 28));
        assert_eq!(left(&limiter).await, 2);

        // Wrong log-ins one after the other never exceed the quota, and then even a right one is
        // denied.
        for expected in [(1, 0), (1, 0), (0, 1)] {
            assert_eq!(at_once(&after, 401, 1).await, expected);
        }
        assert_eq!(at_once(&after, 200, 1).await, (0, 1));
        assert_eq!(left(&limiter).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn charge_after_exceeds_the_quota_by_the_concurrent_requests_minus_one_at_most() {
    for limiter in both() {
        let layer = RateLimitLayer::builder(limiter.clone(), Global)
            .charge_after(|_| true)
            .build();
        let service = layer.layer(log_in());
        assert_eq!(at_once(&service, 401, 1).await, (1, 0));
        // One unit is left, and five requests see it.
        assert_eq!(at_once(&service, 401, 5).await, (5, 0));
        assert_eq!(at_once(&service, 401, 5).await, (0, 5));
    }
}

#[tokio::test(start_paused = true)]
async fn charge_after_denies_with_the_exact_wait_and_the_headers_of_the_limiter() {
    for limiter in both() {
        let layer = RateLimitLayer::builder(limiter.clone(), Global)
            .charge_after(|_| true)
            .build();
        let response = send(&layer, request()).await;
        assert_eq!(header(&response, "ratelimit"), Some(r#""two";r=2"#));
        refunds_are_done().await;
        assert_eq!(left(&limiter).await, 1);
        let _ = limiter.check("all").await.unwrap();
        let response = send(&layer, request()).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(header(&response, "retry-after"), Some("30"));
        assert_eq!(header(&response, "ratelimit"), Some(r#""two";r=0;t=30"#));
        let never = RateLimitLayer::builder(limiter, Global)
            .cost(|_| Cost::new(3))
            .charge_after(|_| true)
            .build();
        assert_eq!(
            send(&never, request()).await.status(),
            StatusCode::PAYLOAD_TOO_LARGE
        );
    }
}

#[tokio::test(start_paused = true)]
async fn charge_after_charges_a_request_that_fails_or_is_cancelled() {
    for limiter in both() {
        let layer = RateLimitLayer::builder(limiter.clone(), Global)
            .charge_after(|status| status != 200)
            .build();
        let fails = service_fn(|_: Request<()>| async {
            Err::<Response<String>, BoxError>("broken".into())
        });
        assert!(layer.layer(fails).oneshot(request()).await.is_err());
        refunds_are_done().await;
        assert_eq!(left(&limiter).await, 1);
        let hangs = service_fn(|_: Request<()>| {
            std::future::pending::<Result<Response<String>, Infallible>>()
        });
        assert!(
            tokio::time::timeout(
                Duration::from_secs(1),
                layer.layer(hangs).oneshot(request())
            )
            .await
            .is_err()
        );
        refunds_are_done().await;
        assert_eq!(left(&limiter).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_charging_option_replaces_those_before() {
    let limiter = Limiter::new(still(), TWO);
    let before = RateLimitLayer::builder(limiter.clone(), Global)
        .charge_after(|_| true)
        .charge_on(|_| false)
        .build();
    assert_eq!(at_once(&before.layer(log_in()), 200, 5).await, (2, 3));
    assert_eq!(left(&limiter).await, 2);
    let after = RateLimitLayer::builder(limiter.clone(), Global)
        .charge_on(|_| true)
        .charge_after(|_| false)
        .build();
    assert_eq!(at_once(&after.layer(log_in()), 200, 5).await, (5, 0));
    let costs_one = |_: Outcome<'_>, _| Cost::ONE;
    let general = RateLimitLayer::builder(limiter.clone(), Global)
        .charge_after(|_| false)
        .final_cost(costs_one)
        .build();
    assert_eq!(at_once(&general.layer(log_in()), 200, 5).await, (2, 3));
    assert_eq!(left(&limiter).await, 0);
}

/// The closure of the option reads the response, and must not change it.
#[tokio::test]
async fn the_response_keeps_its_headers_and_extensions_when_its_cost_is_read() {
    #[derive(Clone, Debug, PartialEq)]
    struct Mark(u8);
    let limiter = Limiter::new(still(), TWO);
    let layer = RateLimitLayer::builder(limiter, Global)
        .final_cost(|outcome, charged| {
            let head = outcome.response().unwrap();
            assert_eq!(
                (head.extensions.get(), &head.headers["x-mark"]),
                (Some(&Mark(7)), &"seven".parse().unwrap())
            );
            assert_eq!(
                (head.status, head.version),
                (StatusCode::ACCEPTED, http::Version::HTTP_2)
            );
            charged
        })
        .build();
    let service = service_fn(|_: Request<()>| async {
        let response = Response::builder()
            .status(202)
            .version(http::Version::HTTP_2);
        Ok::<_, Infallible>(
            response
                .header("x-mark", "seven")
                .extension(Mark(7))
                .body("body".to_owned())
                .unwrap(),
        )
    });
    let Ok(response) = layer.layer(service).oneshot(request()).await;
    assert_eq!(response.extensions().get(), Some(&Mark(7)));
    assert_eq!(header(&response, "x-mark"), Some("seven"));
    assert_eq!(header(&response, "ratelimit"), Some(r#""two";r=1;t=30"#));
    assert_eq!(
        (response.status(), response.version()),
        (StatusCode::ACCEPTED, http::Version::HTTP_2)
    );
    assert_eq!(response.body(), "body");
}

#[tokio::test]
async fn a_denial_in_shadow_mode_has_no_cost_to_settle() {
    let limiter = Limiter::new(still(), TWO);
    let calls = Arc::new(Mutex::new(0));
    let counted = calls.clone();
    let layer = RateLimitLayer::builder(limiter.clone(), Global)
        .shadow(true)
        .final_cost(move |_, charged| {
            *counted.lock().unwrap() += 1;
            charged
        })
        .build();
    assert_eq!(statuses(&layer, 5).await, [StatusCode::OK; 5]);
    assert_eq!(*calls.lock().unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn costs_that_name_no_policy_are_a_wrong_set_up_also_when_the_store_answers_late() {
    for limiter in both() {
        let layer = RateLimitLayer::builder(limiter, Global)
            .costs(|_| [("three", 1)])
            .charge_after(|_| true)
            .build();
        assert_eq!(
            statuses(&layer, 1).await,
            [StatusCode::INTERNAL_SERVER_ERROR]
        );
    }
}

/// The statuses of one key, of which each is what the service answers to the request.
async fn answers(layer: &RateLimitLayer<Global>, asked: &[u16]) -> Vec<u16> {
    let service = layer.layer(service_fn(|request: Request<u16>| async move {
        Ok::<_, Infallible>(
            Response::builder()
                .status(*request.body())
                .body(String::new())
                .unwrap(),
        )
    }));
    let mut answers = Vec::new();
    for &status in asked {
        answers.push(
            service
                .clone()
                .oneshot(Request::new(status))
                .await
                .unwrap()
                .status()
                .as_u16(),
        );
        refunds_are_done().await;
    }
    answers
}

const LOCKOUT: Policy = Policy::lockout(
    "login",
    Quota::new(3, Duration::from_secs(600)),
    Duration::from_secs(60),
    Duration::from_secs(3_600),
);

#[tokio::test(start_paused = true)]
async fn a_success_clears_the_lockout_and_leaves_other_policies() {
    let set = || [LOCKOUT, TWO.with_quota(Quota::per_day(100)).unwrap()];
    let both = [
        Limiter::new(still(), set()),
        Limiter::new(Late(still()), set()),
    ];
    for (limiter, after) in both.into_iter().zip([false, true]) {
        let layer = RateLimitLayer::builder(limiter.clone(), Global)
            .clear_on(|status| status == StatusCode::OK);
        let failed = |status| status == StatusCode::UNAUTHORIZED;
        // The order of the options does not matter.
        let layer = if after {
            layer.charge_after(failed).build()
        } else {
            layer.charge_on(failed).build()
        };
        assert_eq!(
            answers(&layer, &[401, 401, 200, 401, 500, 401, 401, 200]).await,
            [401, 401, 200, 401, 500, 401, 401, 429]
        );
        assert_eq!(remaining(&limiter, "all", "login").await, 0);
        assert_eq!(left(&limiter).await, 95);
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_that_was_under_way_forgives_the_lockout_of_the_failures_beside_it() {
    let limiter = Limiter::new(still(), LOCKOUT);
    let layer = RateLimitLayer::builder(limiter.clone(), Global)
        .charge_on(|status| status == StatusCode::UNAUTHORIZED)
        .clear_on(|status| status == StatusCode::OK)
        .build();
    let gate = Arc::new(tokio::sync::Notify::new());
    let service = layer.layer(service_fn(|request: Request<u16>| {
        let gate = Arc::clone(&gate);
        async move {
            if *request.body() == 200 {
                gate.notified().await;
            }
            Ok::<_, Infallible>(
                Response::builder()
                    .status(*request.body())
                    .body(String::new())
                    .unwrap(),
            )
        }
    }));
    let status = async |status: u16| {
        service
            .clone()
            .oneshot(Request::new(status))
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    let rest = async {
        // The attempt that is under way counts until its response, so two failures lock the key.
        let seen = [status(401).await, status(401).await, status(401).await];
        gate.notify_one();
        seen
    };
    let (success, seen) = tokio::join!(status(200), rest);
    assert_eq!((success, seen), (200, [401, 401, 429]));
    assert_eq!(remaining(&limiter, "all", "login").await, 3);
}
