//! The copy of a check that a future keeps: one for a store and the limiter that waits for it, and
//! never that of another check.

use std::{
    future::Future,
    sync::{Arc, Mutex},
};

use allocation_counter::measure;
use tokio::runtime::Runtime;
use tollgate::{
    Cost, Decision, Error, ErrorKind, Key, Limiter, Policy, PolicySet, Quota, Store,
    limiter::events::{Event, Observer},
    store::{Check, CheckFuture, Clock, Deadline, KeyValueStore, StoreFuture},
};
use tollgate_test_support::{Map, PATIENCE, START_US, patient_limiter};

const DAY: Policy = Policy::token_bucket("day", Quota::per_day(1_000));

/// Returns a runtime in which time stands still while a task can run.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
}

/// Returns how many allocations a call makes once its like was made before.
fn allocations<F: Future>(runtime: &Runtime, call: impl Fn() -> F) -> u64 {
    (0..8).for_each(|_| drop(runtime.block_on(call())));
    measure(|| drop(runtime.block_on(call()))).count_total
}

/// A store of a user. It answers on the next poll, and keeps the check or lets the limiter copy it.
struct Later {
    keeps: bool,
}

impl Store for Later {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let kept = check.keep();
        let answer = |kept: tollgate::store::KeptCheck| async move {
            tokio::task::yield_now().await;
            let Check { policies, key, .. } = kept.check();
            assert_eq!(key.encoded(), "acme");
            let decided = tollgate::MemoryStore::new();
            decided.check(Check::new(policies, key, Cost::ONE)).await
        };
        match self.keeps {
            true => StoreFuture::keeping(kept.clone(), answer(kept)),
            false => StoreFuture::pending(answer(kept)),
        }
    }

    fn refund(&self, _: Check<'_>, _: Option<&Decision>) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }

    fn reset(&self, _: Check<'_>) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }
}

#[test]
fn a_limiter_shares_the_copy_of_a_users_store() {
    let (runtime, key) = (runtime(), Key::new("acme"));
    let of = |keeps| {
        let limiter = patient_limiter(Later { keeps }, DAY);
        allocations(&runtime, || limiter.check_key(&key).into_future())
    };
    assert_eq!(of(true) + 1, of(false), "the copy");
}

/// The key is copied once: the limiter allocates nothing beside what the store does.
#[test]
fn a_check_of_a_store_of_bytes_is_copied_once() {
    let (runtime, key) = (runtime(), Key::new("acme"));
    for (form, store) in [
        ("in one process", KeyValueStore::new(map())),
        (
            "with remembered denials",
            KeyValueStore::shared(map(), std::num::NonZeroUsize::MIN, PATIENCE),
        ),
    ] {
        let (set, limiter) = (PolicySet::from(DAY), patient_limiter(store.clone(), DAY));
        let alone = allocations(&runtime, || {
            let check = Check::new(&set, &key, Cost::ONE);
            store.check(check.with_deadline(Deadline::after(PATIENCE)))
        });
        let limited = allocations(&runtime, || limiter.check_key(&key).into_future());
        assert_eq!(limited, alone, "{form}");
        // Those of the map in the test, and of the task that decides, are among them.
        assert!(alone <= 36, "{form}: {alone}");
    }
}

fn map() -> Map {
    Map::new(Clock::manual(START_US))
}

/// Asks for another key than its caller did, and never gets an answer.
struct Elsewhere;

impl Store for Elsewhere {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let other = Key::new("other");
        let mut other = Check::new(check.policies, &other, check.cost);
        other.deadline = check.deadline;
        StoreFuture::keeping(other.keep(), async {
            Err(Error::new(ErrorKind::Unavailable, "away"))
        })
    }

    fn refund(&self, _: Check<'_>, _: Option<&Decision>) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }

    fn reset(&self, _: Check<'_>) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }
}

/// Keeps the keys of denials.
#[derive(Clone, Default)]
struct Denied(Arc<Mutex<Vec<String>>>);

impl Observer for Denied {
    fn event(&self, event: &Event<'_>) {
        if let Event::Denied(of) = event {
            self.0
                .lock()
                .expect("no panic")
                .push(of.key().encoded().to_owned());
        }
    }
}

#[tokio::test]
async fn the_copy_of_another_check_is_not_used() {
    let denied = Denied::default();
    let limiter = Limiter::builder(Elsewhere)
        .policies(Policy::fixed_window("day", Quota::per_day(1)))
        .deadline(PATIENCE)
        .observer(denied.clone())
        .build();
    for _ in 0..2 {
        let _ = limiter.check("acme").await.expect("a share decides");
    }
    assert_eq!(*denied.0.lock().expect("no panic"), ["acme"]);
}
