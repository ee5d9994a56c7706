//! The adapter that makes a store of bytes under keys, over a map that several processes would
//! share.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{runtime, sync::Barrier};
use tollgate::{
    Cost, Error, ErrorKind, Key, Limiter, Outage, Policy, PolicySet, Quota, Store,
    permits::{Concurrency, Permit},
    reservation::{ReservationId, Settlement},
    store::{Change, Check, Clock, Deadline, KeyValue, KeyValueStore, Snapshot},
    testing::ALGORITHMS,
};
use tollgate_test_support::{Dice, Map, START_US, decided, patient_limiter, policies, remaining};

use crate::suite::decisions::{agree, each_algorithm, in_order, ranks_agree};

fn map() -> Map {
    Map::new(Clock::manual(START_US))
}

#[tokio::test]
async fn decisions_over_a_map_are_those_of_the_in_process_store() {
    let clock = Clock::manual(START_US);
    let store = KeyValueStore::new(Map::new(clock.clone()).with_conflicts(4));
    let memory = tollgate::MemoryStore::builder()
        .clock(clock.clone())
        .build();
    for (seed, algorithm) in (0..).zip(ALGORITHMS) {
        let mut dice = Dice::new(seed);
        for most in [1, 4] {
            let set = policies::set(&mut dice, algorithm, most);
            agree(&set, &store, &memory, &clock, &mut dice, |dice| {
                Key::from((most, seed, dice.below(40)))
            })
            .await;
        }
    }
    let store = KeyValueStore::new(Map::new(clock.clone()).with_conflicts(4));
    ranks_agree(&store, &clock).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_share_a_map_admit_a_burst_exactly() {
    let map = map();
    let processes: Vec<_> = (0..4).map(|_| KeyValueStore::new(map.clone())).collect();
    for policy in each_algorithm(Quota::per_day(100)) {
        let limiters: Vec<_> = processes
            .iter()
            .map(|store| patient_limiter(store.clone(), policy.clone()))
            .collect();
        let check = |at: usize| tokio::spawn(limiters[at % 4].check("hot").into_future());
        let tasks: Vec<_> = (0..600).map(check).collect();
        let mut passed = 0;
        for task in tasks {
            passed += u64::from(
                task.await
                    .expect("a task")
                    .expect("a decision")
                    .is_allowed(),
            );
        }
        assert_eq!(passed, 100, "{policy:?}");
    }
}

#[tokio::test]
async fn checks_that_wait_are_read_and_written_together_and_a_denial_writes_nothing() {
    let map = map();
    let limiter = patient_limiter(
        KeyValueStore::new(map.clone()),
        Policy::token_bucket("api", Quota::per_day(50)),
    );
    let checks = (0..100)
        .map(|_| limiter.check("hot").into_future())
        .collect();
    let decisions = in_order(checks).await;
    let admitted: Vec<_> = decisions
        .iter()
        .map(|decision| decision.is_allowed())
        .collect();
    assert_eq!(
        admitted,
        (0..100).map(|at| at < 50).collect::<Vec<_>>(),
        "in the order in which they came"
    );
    assert_eq!((map.reads(), map.writes()), (1, (1, 0)), "one batch");
    assert!(limiter.check("hot").await.expect("a decision").is_denied());
    assert!(limiter.peek("hot").await.is_ok());
    assert_eq!(
        (map.reads(), map.writes()),
        (3, (1, 0)),
        "a denial and a peek write nothing"
    );
    let state = map.get(b"{hot}:api:t1").expect("a state");
    assert_eq!(
        state.expires_ms,
        (START_US + 86_400_000_000) / 1_000_000 * 1_000 + 1_000,
        "it expires when it is fresh"
    );
}

/// On one worker, as a task that is started runs before those that were woken.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn callers_that_are_answered_together_are_one_batch_again() {
    let (map, start) = (map(), Arc::new(Barrier::new(8)));
    let policy = Policy::token_bucket("api", Quota::per_day(50));
    let limiter = patient_limiter(KeyValueStore::new(map.clone()), policy);
    let caller = |key: u64| {
        let (limiter, start) = (limiter.clone(), Arc::clone(&start));
        tokio::spawn(async move {
            start.wait().await;
            for _ in 0..10 {
                let decision = limiter.check(key).await.expect("a decision");
                assert!(decision.is_allowed());
            }
        })
    };
    let callers: Vec<_> = (0..8).map(caller).collect();
    for caller in callers {
        caller.await.expect("a task");
    }
    // The runtime may look at other tasks in between, once in 61 of them.
    let reads = map.reads();
    assert!((10..=14).contains(&reads), "{reads} batches");
}

/// Refunds, lists, reserves, resets and holds permits. Returns the permits.
pub(crate) async fn everything_beside_checks(store: impl Store + Clone) -> Vec<Permit> {
    let daily = |units| Policy::token_bucket("api", Quota::per_day(units));
    let set = [daily(10), Policy::sliding_log("log", Quota::per_day(20))];
    let limiter = patient_limiter(store.clone(), set);
    let check = limiter.check("acme").cost(Cost::new(4)).tag("ann");
    let decision = check.await.expect("a decision");
    let entries = limiter.entries("acme", 2).await.expect("entries");
    assert_eq!((entries.len(), entries[0].tag()), (2, &b"ann"[..]));
    let refund = limiter.refund("acme", Cost::ONE).of(&decision);
    refund.await.expect("a refund");
    assert_eq!(remaining(&limiter, "acme").await, 7);

    let id = ReservationId::try_new("order-1").expect("an id");
    let reserve = || async {
        let reservation = limiter.reserve("acme", Cost::new(5)).id(id.clone());
        reservation.await.expect("a decision")
    };
    let (first, again) = (reserve().await, reserve().await);
    assert!(first.decision().is_allowed() && again.decision().is_allowed());
    assert_eq!(
        remaining(&limiter, "acme").await,
        2,
        "the same id charges once"
    );
    let settled = first.commit(Cost::new(9)).await.expect("settled");
    assert_eq!(settled, Settlement::Settled);
    let settled = again.commit(Cost::new(1)).await.expect("settled");
    assert_eq!(settled, Settlement::AlreadySettled);
    assert_eq!(remaining(&limiter, "acme").await, 0, "in debt");
    limiter.reset("acme").await.expect("a reset");
    assert_eq!(remaining(&limiter, "acme").await, 10);

    let exports = patient_limiter(store, daily(1)).concurrency(Concurrency::new("exports", 2));
    let mut held = Vec::new();
    while let Ok(permit) = exports.try_acquire("acme").await.expect("an answer") {
        held.push(permit);
    }
    assert_eq!(held.len(), 2);
    held
}

#[tokio::test]
async fn everything_beside_checks_works_over_a_map() {
    let map = map().with_conflicts(3);
    let _held = everything_beside_checks(KeyValueStore::new(map.clone())).await;
    assert!(map.keys().contains(&b"{acme}:exports:p1".to_vec()));
}

#[tokio::test]
async fn a_failure_of_the_map_has_its_kind_and_is_an_outage() {
    for kind in [
        ErrorKind::ConnectionRefused,
        ErrorKind::Busy,
        ErrorKind::Authentication,
    ] {
        let store = KeyValueStore::new(map().failing(kind));
        let policy = Policy::token_bucket("api", Quota::per_day(1));
        let closed = Limiter::builder(store.clone())
            .policies(policy.clone())
            .on_outage(Outage::Closed)
            .build();
        assert_eq!(
            closed.check("acme").await.expect_err("no decision").kind(),
            kind
        );
        let local = Limiter::builder(store)
            .policies(policy)
            .on_outage(Outage::local(1))
            .build();
        let decision = local.check("acme").await.expect("a decision of the outage");
        assert_eq!(decision.degraded(), Some(kind));
    }
}

#[tokio::test]
async fn a_check_that_others_are_always_faster_than_ends_at_its_deadline() {
    let store = KeyValueStore::new(map().with_conflicts(1));
    let (policies, key) = (
        PolicySet::from(Policy::token_bucket("api", Quota::per_day(1))),
        Key::new("acme"),
    );
    let check = Check::new(&policies, &key, Cost::ONE);
    let error = store
        .check(check.with_deadline(Deadline::after(Duration::from_millis(5))))
        .await
        .expect_err("late");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let error = store
        .check(check)
        .await
        .expect_err("it ends without a deadline, too");
    assert_eq!(
        (error.kind(), error.kind().is_unavailable()),
        (ErrorKind::Overloaded, true)
    );
}

/// Another process changes the state of one key before each of the first writes.
struct Disturbed(Map, Mutex<(u32, Vec<usize>)>);

impl KeyValue for Disturbed {
    type Read = <Map as KeyValue>::Read;

    async fn read(&self, keys: &[Vec<u8>]) -> Result<Snapshot<Self::Read>, Error> {
        self.1.lock().expect("no panic").1.push(keys.len());
        self.0.read(keys).await
    }

    async fn write(&self, read: Self::Read, changes: Vec<Change>) -> Result<Vec<bool>, Error> {
        {
            let mut left = self.1.lock().expect("no panic");
            if left.0 > 0 {
                left.0 -= 1;
                self.0.plant(b"{hot}:api:t1", b"");
            }
        }
        self.0.write(read, changes).await
    }
}

#[tokio::test]
async fn calls_that_others_were_faster_than_are_decided_again_alone() {
    let map = map();
    let store = KeyValueStore::new(Disturbed(map.clone(), Mutex::new((2, Vec::new()))));
    let api = Policy::token_bucket("api", Quota::per_day(3));
    let plan = Policy::token_bucket("plan", Quota::per_day(9));
    let (one, two) = (
        patient_limiter(store.clone(), api.clone()),
        patient_limiter(store.clone(), [api, plan]),
    );
    let mut checks: Vec<_> = (0..20_u64)
        .map(|key| one.check(key).into_future())
        .collect();
    checks.extend((0..4).map(|_| one.check("hot").into_future()));
    checks.push(two.check("hot").into_future());
    checks.push(two.check("cold").into_future());
    let decisions = in_order(checks).await;
    let denied: Vec<_> = (0..26).filter(|at| decisions[*at].is_denied()).collect();
    assert_eq!(denied, [23, 24], "the fourth and the fifth of three units");
    let reads = store.backend().1.lock().expect("no panic").1.clone();
    // The states of 20 keys, of two policies of `cold` and of `hot`; then those of `hot` alone.
    assert_eq!(reads, [24, 2, 2]);
    assert!(map.get(b"{cold}:plan:t1").is_some());
}

/// Does not answer the first time.
struct Stuck(Map, AtomicBool);

impl KeyValue for Stuck {
    type Read = <Map as KeyValue>::Read;

    async fn read(&self, keys: &[Vec<u8>]) -> Result<Snapshot<Self::Read>, Error> {
        if !self.1.swap(true, Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.0.read(keys).await
    }

    async fn write(&self, read: Self::Read, changes: Vec<Change>) -> Result<Vec<bool>, Error> {
        self.0.write(read, changes).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_map_that_does_not_answer_holds_its_lane_until_the_last_deadline() {
    let store = KeyValueStore::new(Stuck(map(), AtomicBool::new(false)));
    let limiter = Limiter::builder(store).policies(Policy::token_bucket("api", Quota::per_day(5)));
    let limiter = limiter.on_outage(Outage::Closed).build();
    assert_eq!(
        limiter.check("acme").await.expect_err("no answer").kind(),
        ErrorKind::Timeout
    );
    assert_eq!(
        decided(&limiter, "acme")
            .await
            .states()
            .next()
            .expect("one")
            .remaining(),
        4
    );
}

#[test]
fn the_adapter_needs_a_runtime_and_outlives_the_one_that_it_was_first_used_on() {
    let store = KeyValueStore::new(map());
    let (policies, key) = (
        PolicySet::from(Policy::token_bucket("api", Quota::per_day(9))),
        Key::new("acme"),
    );
    let check = || store.check(Check::new(&policies, &key, Cost::ONE));
    let mut outside = Box::pin(check());
    let polled = outside
        .as_mut()
        .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    assert!(
        matches!(polled, std::task::Poll::Ready(Err(error)) if error.kind() == ErrorKind::NoRuntime)
    );
    for spent in 1..=3 {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let decision = runtime.block_on(check()).expect("a decision");
        assert_eq!(
            decision.states().next().expect("a state").remaining(),
            9 - spent
        );
    }
}
