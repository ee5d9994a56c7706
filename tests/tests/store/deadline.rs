//! The deadline that a limiter hands to its store.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tollgate::{
    Check, CheckFuture, Decision, Error, Key, Limiter, MemoryStore, Outage, Policy, PolicySet, Quota, Store,
    StoreFuture,
};

/// Notes the deadlines, and never answers.
struct Silent {
    is_in_process: bool,
    deadlines: Arc<Mutex<Vec<Option<Instant>>>>,
}

impl Store for Silent {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.deadlines.lock().expect("the list").push(check.deadline);
        StoreFuture::pending(std::future::pending())
    }

    fn refund(&self, _: Check<'_>, _: Option<&Decision>) -> StoreFuture<()> {
        StoreFuture::ready(Err(Error::unavailable("nobody is there")))
    }

    fn reset(&self, _: &PolicySet, _: &Key) -> StoreFuture<()> {
        StoreFuture::ready(Err(Error::unavailable("nobody is there")))
    }

    fn is_in_process(&self) -> bool {
        self.is_in_process
    }
}

const DEADLINE: Duration = Duration::from_millis(40);

fn limiter(is_in_process: bool) -> (Limiter, Arc<Mutex<Vec<Option<Instant>>>>) {
    let deadlines = Arc::default();
    let store = Silent { is_in_process, deadlines: Arc::clone(&deadlines) };
    let policy = Policy::token_bucket("p", Quota::per_hour(5));
    (Limiter::builder(store).policies(policy).deadline(DEADLINE).on_outage(Outage::Closed).build(), deadlines)
}

#[tokio::test(start_paused = true)]
async fn it_is_absolute_and_counts_from_the_call() {
    let (limiter, deadlines) = limiter(false);
    let called = tokio::time::Instant::now();
    let check = limiter.check("acme");
    assert_eq!(*deadlines.lock().expect("the list"), [Some((called + DEADLINE).into_std())]);
    // Time that passes before the first poll is gone.
    tokio::time::advance(DEADLINE / 2).await;
    let error = check.await.expect_err("nobody answers");
    assert_eq!((error.reason(), error.to_string().as_str()), ("timeout", "the store did not answer within 40ms"));
    let waited = called.elapsed();
    assert!(waited >= DEADLINE && waited < DEADLINE * 3 / 2, "{waited:?}");
}

#[tokio::test]
async fn a_store_in_process_is_told_none() {
    let (limiter, deadlines) = limiter(true);
    drop(limiter.check("acme"));
    assert_eq!(*deadlines.lock().expect("the list"), [None]);
    assert!(Limiter::new(MemoryStore::new(), Policy::token_bucket("p", Quota::per_hour(5))).check("a").await.is_ok());
}
