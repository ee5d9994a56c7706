//! Tries a fresh start of a leased policy, by a limiter and by an operator: what is out is taken away, and what
//! processes hold of before is bounded.

use std::time::Duration;

use tollgate::{
    Lease, Limiter, Policy, Quota, RedisStore,
    store::{Exception, ExceptionChange},
};
use tollgate_operator::ExceptionRequest;
use tollgate_tests::{RedisServer, Reply, no_server, wait};

use super::{PATIENCE, operator};

const QUOTA: u64 = 800;

/// The most units that processes hold of it: an eighth.
const HELD: u64 = QUOTA / 8;

/// Returns the limiter of a process. What it holds does not lapse in the course of a test.
async fn process(server: &RedisServer) -> Limiter {
    let lease = Lease::new().generation(Duration::from_secs(60));
    let policy = Policy::window_from_first_hit("daily", Quota::per_day(QUOTA)).leased(lease);
    Limiter::builder(RedisStore::connect(server.url()).await.unwrap())
        .policies(policy)
        .name("search")
        .deadline(PATIENCE)
        .published()
        .build()
}

/// Spends units until `most` are admitted, or one is denied. Returns how many were admitted.
async fn spend(limiter: &Limiter, most: u64) -> u64 {
    for spent in 0..most {
        if limiter.check("acme").await.unwrap().is_denied() {
            return spent;
        }
    }
    most
}

/// Spends until some units are held in advance.
async fn hold(limiter: &Limiter) {
    wait::until_async("held units", PATIENCE, async || {
        limiter.check("acme").await.unwrap().is_leased()
    })
    .await;
}

/// Returns the keys that the server has of the customer.
fn keys(server: &RedisServer) -> Vec<String> {
    let Reply::Array(keys) = server.command(&["KEYS", "tollgate:{acme}*"]) else {
        panic!("KEYS has a list");
    };
    let text = |key: Reply| match key {
        Reply::Bulk(key) => String::from_utf8(key).unwrap(),
        other => panic!("{other:?} is no key"),
    };
    let mut keys: Vec<_> = keys.into_iter().map(text).collect();
    keys.sort();
    keys
}

const STATE: &str = "tollgate:{acme}:daily:h1l1";
const OUT: &str = "tollgate:{acme}:daily:h1l1:o";

/// Returns what all processes are admitted after a fresh start, until all of them are denied.
async fn admitted(processes: [&Limiter; 2]) -> u64 {
    let [first, second] = processes;
    // The first one spends what it holds, and asks for more.
    spend(first, QUOTA / 4).await + spend(second, 2 * QUOTA).await + spend(first, 2 * QUOTA).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_start_by_an_operator_leaves_processes_what_they_hold_and_nothing_more() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let (first, second) = (process(&server).await, process(&server).await);
    hold(&first).await;
    assert_eq!(keys(&server), [STATE, OUT]);
    let operator = operator(&server.url());
    let request = ExceptionRequest::new("search", "acme", "fresh start", "");
    let request = request.by("ann").because("was charged twice");
    wait::until_async("the published limiter", PATIENCE, async || {
        operator.grant_exception(&request).await.is_ok()
    })
    .await;
    assert_eq!(keys(&server), [""; 0]);
    let still_held = first.check("acme").await.unwrap();
    assert!(still_held.is_leased(), "{still_held:?}");
    let admitted = 1 + admitted([&first, &second]).await;
    // What was spent of before does not count against the new start.
    assert!((QUOTA..=QUOTA + HELD).contains(&admitted), "{admitted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_start_by_a_limiter_drops_what_its_own_process_holds() {
    if no_server() {
        return;
    }
    let server = RedisServer::start();
    let (first, second) = (process(&server).await, process(&server).await);
    hold(&first).await;
    assert_eq!(keys(&server), [STATE, OUT]);
    let day = Duration::from_secs(86_400);
    let fresh = Exception::new("daily", "acme", ExceptionChange::FreshStart, day);
    let fresh = fresh.by("ann").because("was charged twice");
    first.grant_exception(fresh).await.unwrap();
    assert_eq!(keys(&server), [""; 0]);
    let asked = first.check("acme").await.unwrap();
    assert!(!asked.is_leased(), "the store was asked: {asked:?}");
    let admitted = 1 + admitted([&first, &second]).await;
    assert_eq!(admitted, QUOTA, "nobody else held any");
}
