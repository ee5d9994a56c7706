//! Cases about exceptions that operators grant.

use std::time::Duration;

use tollgate::{
    Error, ErrorKind, Limiter, Policy, Quota, Store,
    store::{Exception, ExceptionChange},
};
use tollgate_test_support::{Deployment, PATIENCE};
use tollgate_tests::wait;

/// So slow that no unit accrues while a test runs.
const DAILY: Quota = Quota::per_day(5);
const HOUR: Duration = Duration::from_secs(3_600);

/// Returns the limiter of a replica.
pub(crate) fn replica(store: impl Store) -> Limiter {
    Limiter::builder(store)
        .policies(Policy::window_from_first_hit("daily", DAILY))
        .deadline(PATIENCE)
        .published()
        .build()
}

pub(crate) fn exception(key: &str, change: ExceptionChange, lasts: Duration) -> Exception {
    Exception::new("daily", key, change, lasts)
        .by("ann")
        .because("a move of its data")
}

/// Waits until a key has a quota.
pub(crate) async fn until(limiter: &Limiter, key: &str, quota: Quota) {
    wait::until_async(format!("{quota} for {key}"), PATIENCE, async || {
        let peek = limiter.peek(key).await.expect("a peek");
        peek.state("daily").expect("a state").policy().quota() == quota
    })
    .await;
}

/// Spends a unit, and returns what is left. `None` for a denial.
async fn spend(limiter: &Limiter, key: &str) -> Option<u64> {
    let decision = limiter.check(key).await.expect("a decision");
    let left = decision.state("daily").expect("a state").remaining();
    decision.is_allowed().then_some(left)
}

/// Holds what is promised of exceptions for two replicas of one store.
pub(crate) async fn hold(replicas: [Limiter; 2]) {
    let [here, there] = &replicas;
    for _ in 0..5 {
        assert!(spend(here, "acme").await.is_some());
    }
    assert_eq!(spend(there, "acme").await, None);

    // In force on all replicas, for this key alone. What was spent stays spent.
    let twice = exception("acme", ExceptionChange::Factor(2.0), HOUR);
    assert_eq!(here.grant_exception(twice).await.expect("a grant"), None);
    for replica in &replicas {
        until(replica, "acme", Quota::per_day(10)).await;
        until(replica, "other", DAILY).await;
    }
    assert_eq!(spend(there, "acme").await, Some(4));

    // One that is changed is another one of the same key.
    let seven = ExceptionChange::Quota(Quota::per_day(7));
    let replaced = there.grant_exception(exception("acme", seven, HOUR)).await;
    let replaced = replaced.expect("a change").expect("one before");
    assert_eq!(replaced.change(), ExceptionChange::Factor(2.0));
    until(here, "acme", Quota::per_day(7)).await;
    assert_eq!(spend(here, "acme").await, Some(0));
    let listed = here.exceptions().await.expect("a list");
    let [one] = &listed[..] else {
        panic!("{listed:?}")
    };
    assert_eq!(
        (one.limiter(), one.key(), one.author(), one.change()),
        ("daily", "acme", "ann", seven)
    );
    assert_eq!(one.ends_us() - one.begins_us(), HOUR.as_micros() as u64);

    let withdrawn = here.withdraw_exception("daily", "acme").await;
    let withdrawn = withdrawn.expect("a withdrawal").expect("an exception");
    assert_eq!(withdrawn, *one);
    for replica in &replicas {
        until(replica, "acme", DAILY).await;
    }
    assert_eq!(spend(there, "acme").await, None);
    assert!(here.exceptions().await.expect("a list").is_empty());
    let none = here.withdraw_exception("daily", "acme").await;
    assert_eq!(none.expect("an answer"), None);

    // It ends by itself.
    let short = exception("acme", seven, Duration::from_millis(4_500));
    here.grant_exception(short).await.expect("a grant");
    until(there, "acme", Quota::per_day(7)).await;
    until(there, "acme", DAILY).await;
    until(here, "acme", DAILY).await;
    assert!(there.exceptions().await.expect("a list").is_empty());

    // A fresh start counts for the key alone, once, and everywhere.
    assert!(spend(here, "other").await.is_some());
    let fresh = exception("acme", ExceptionChange::FreshStart, HOUR);
    there.grant_exception(fresh).await.expect("a grant");
    for replica in &replicas {
        wait::until_async("a fresh start", PATIENCE, async || {
            let peek = replica.peek("acme").await.expect("a peek");
            peek.state("daily").expect("a state").remaining() == 5
        })
        .await;
    }
    // A process that has denied the key remembers that for up to a second.
    wait::until_async("the first of five", PATIENCE, async || {
        spend(here, "acme").await == Some(4)
    })
    .await;
    for left in (0..4).rev() {
        assert_eq!(spend(there, "acme").await, Some(left));
    }
    assert_eq!(spend(here, "acme").await, None);
    let peek = here.peek("other").await.expect("a peek");
    assert_eq!(peek.state("daily").expect("a state").remaining(), 4);
    let listed = there.exceptions().await.expect("a list");
    assert!(
        listed.len() == 1 && listed[0].is_fresh_start(),
        "{listed:?}"
    );
    let withdrawn = here.withdraw_exception("daily", "acme").await;
    assert_eq!(
        withdrawn.expect("an answer"),
        None,
        "what has happened stays"
    );

    // A quota of 0 blocks, and what is refused is not granted.
    let blocked = ExceptionChange::Quota(Quota::per_day(0));
    here.grant_exception(exception("bad", blocked, HOUR))
        .await
        .expect("a grant");
    until(there, "bad", Quota::per_day(0)).await;
    assert_eq!(spend(there, "bad").await, None);
    let refused = |outcome: Result<_, Error>| outcome.expect_err("a refusal").kind();
    let past = exception("acme", seven, Duration::ZERO);
    assert_eq!(refused(here.grant_exception(past).await), ErrorKind::Config);
    let unknown = Exception::new("weekly", "acme", seven, HOUR)
        .by("ann")
        .because("a move");
    assert_eq!(
        refused(here.grant_exception(unknown).await),
        ErrorKind::Config
    );
    assert_eq!(here.exceptions().await.expect("a list").len(), 2);
}

pub(super) async fn an_exception_reaches_all_replicas_and_what_was_spent_stays_spent(
    deployment: &Deployment,
) {
    let store = || deployment.builder("except").build().expect("a store");
    hold([replica(store()), replica(store())]).await;
}
