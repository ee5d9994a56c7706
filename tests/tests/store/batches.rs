//! Checks of many tasks are gathered into batches, and each is answered and charged by itself.

use std::{collections::BTreeMap, future::poll_fn, ops::Range, pin::Pin, task::Poll};

use tollgate::{Cost, Decision, Error, Limiter, Policy, Quota};
use tollgate_test_support::{connected_store, decided, decided_at, patient_limiter, remaining};
use tollgate_tests::RedisServer;

type Check = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>;

/// Hot keys, single keys, several sets and several costs, from many tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_checks_from_many_tasks_spend_exactly_the_quotas() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let bucket = |name, amount| Policy::token_bucket(name, Quota::per_day(amount));
    let daily = Policy::fixed_window("daily", Quota::per_day(500));
    let limiter = |policies: Vec<Policy>| patient_limiter(store.clone(), policies);
    let limiters = [
        limiter(vec![bucket("a", 300)]),
        limiter(vec![bucket("b", 400), daily.clone()]),
        limiter(vec![daily]),
    ];
    let before = server.calls("evalsha") + server.calls("eval");
    let tasks: Vec<_> = (0..3_000_u64)
        .map(|at| {
            let limiter = limiters[at as usize % 3].clone();
            let cost = Cost::new(1 + at % 2);
            tokio::spawn(async move {
                let key = if at % 5 == 0 {
                    "hot".to_owned()
                } else {
                    format!("key {}", at % 7)
                };
                let decision = decided_at(&limiter, key.as_str(), cost).await;
                (
                    key,
                    at % 3,
                    if decision.is_allowed() {
                        cost.units()
                    } else {
                        0
                    },
                )
            })
        })
        .collect();
    let mut spent = BTreeMap::<_, u64>::new();
    for task in tasks {
        let (key, limiter, units) = task.await.expect("a task");
        *spent.entry((key, limiter)).or_default() += units;
    }
    for ((key, limiter), units) in &spent {
        let of = |limiter| {
            spent
                .get(&(key.clone(), limiter))
                .copied()
                .unwrap_or_default()
        };
        let left = limiters[*limiter as usize]
            .peek(key.as_str())
            .await
            .expect("a decision");
        for state in left.states() {
            let expected = match state.policy().name() {
                "a" => 300 - of(0),
                "b" => 400 - of(1),
                _ => 500 - of(1) - of(2),
            };
            assert_eq!(
                state.remaining(),
                expected,
                "{key} {limiter} {units} {state:?}"
            );
        }
    }
    let calls = server.calls("evalsha") + server.calls("eval") - before;
    assert!(
        calls < 3_000,
        "{calls} calls for 3000 checks: they were gathered"
    );
}

/// Lets so many callers check keys of their own, one after the other. Returns the calls of scripts
/// for each check.
async fn calls_per_check(
    server: &RedisServer,
    limiter: &Limiter,
    callers: u64,
    checks: u64,
) -> f64 {
    let calls = || server.calls("evalsha") + server.calls("eval");
    let before = calls();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                for at in 0..checks {
                    assert!(decided(&limiter, (caller, at)).await.is_allowed());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a caller");
    }
    (calls() - before) as f64 / (callers * checks) as f64
}

/// A few callers send their own checks, which is sooner than to share calls. With more, calls are
/// worth sharing.
#[tokio::test]
async fn callers_share_their_calls_when_they_are_more_than_a_few() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let limiter = patient_limiter(store, Policy::fixed_window("p", Quota::per_day(1_000_000)));
    // The worker starts with the first check.
    assert!(decided(&limiter, "first").await.is_allowed());
    let few = calls_per_check(&server, &limiter, 16, 200).await;
    let many = calls_per_check(&server, &limiter, 48, 200).await;
    // After the many, few callers send their own checks again.
    calls_per_check(&server, &limiter, 4, 200).await;
    let again = calls_per_check(&server, &limiter, 4, 200).await;
    assert!(
        few > 0.9 && many < 0.6 && again > 0.9,
        "{few} {many} {again}"
    );
}

/// The answers to two batches arrive together. The callers of the first run before the second is
/// settled, so their next checks are under way while the client works on it.
#[tokio::test]
async fn the_callers_of_a_batch_run_before_the_next_batch_is_settled() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let limiter = patient_limiter(store, Policy::fixed_window("p", Quota::per_day(1_000_000)));
    assert!(decided(&limiter, "first").await.is_allowed());
    // The worker and this task take turns.
    let callers = tokio::spawn(async move {
        let is_ready = async |check: &mut Check| {
            poll_fn(|cx| Poll::Ready(check.as_mut().poll(cx).is_ready())).await
        };
        let sent = async |keys: Range<u64>| {
            let mut checks: Vec<Check> = Vec::new();
            for key in keys {
                checks.push(Box::pin(limiter.check(key).into_future()));
                assert!(!is_ready(checks.last_mut().expect("a check")).await);
            }
            for _ in 0..64 {
                tokio::task::yield_now().await;
            }
            checks
        };
        server.pause();
        // So many callers that the last ones do not send their checks themselves.
        let mut first = sent(0..40).await;
        let mut second = sent(40..48).await;
        server.resume();
        let answer = first.pop().expect("a check").await;
        let is_settled = is_ready(second.last_mut().expect("a check")).await;
        assert!(answer.is_ok() && !is_settled);
    });
    callers.await.expect("the callers");
}

#[tokio::test]
async fn a_check_that_was_never_polled_is_not_charged() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let limiter = patient_limiter(store, Policy::token_bucket("p", Quota::per_hour(100)));
    let _ = limiter.check("warm").await.expect("a decision");
    // A future that was never polled has sent nothing.
    drop(limiter.check("acme").into_future());
    assert_eq!(remaining(&limiter, "acme").await, 100);
}

#[tokio::test]
async fn dropped_futures_do_not_change_the_answers_of_others() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let limiter = patient_limiter(store, Policy::fixed_window("p", Quota::per_day(1_000_000)));
    for round in 0..50_u64 {
        let tasks: Vec<_> = (0..100_u64)
            .map(|at| {
                let limiter = limiter.clone();
                // Each key has a cost of its own, so that an answer to the wrong caller is found.
                tokio::spawn(async move {
                    let cost = 1 + at;
                    let decision = decided_at(&limiter, (round, at), Cost::new(cost)).await;
                    let left = decision.states().next().expect("a state").remaining();
                    assert_eq!(left, 1_000_000 - cost);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        for (at, task) in tasks.iter().enumerate() {
            if (at as u64 + round).is_multiple_of(3) {
                task.abort();
            }
        }
        for task in tasks {
            assert!(
                task.await
                    .map_or_else(|error| error.is_cancelled(), |()| true),
                "a wrong answer"
            );
        }
    }
    assert!(limiter.check("last").await.is_ok());
}
