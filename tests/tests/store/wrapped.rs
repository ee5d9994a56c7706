//! A store behind a pointer, or behind a wrapper that forwards, behaves as the store itself.

use std::{sync::Arc, time::Duration};

use tollgate::{
    Cost, Decision, ErrorKind, Key, Limiter, Outage, Policy, Quota, RedisStore, Store,
    limiter::Entry,
    reservation::Settlement,
    store::{Check, CheckFuture, Publication, ReplicaGroup, StoreFuture},
};
use tollgate_test_support::{PATIENCE, connected_store, patient_limiter};
use tollgate_tests::{Mode, Proxy, RedisServer, wait};

const LOG: Policy = Policy::sliding_log("log", Quota::per_hour(3));

/// Names the store inside, as a user's wrapper does.
struct Wrapper(Arc<dyn Store>);

impl Store for Wrapper {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.0.check(check)
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.0.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.0.reset(check)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }
}

/// Returns the store itself, behind each pointer, and behind a wrapper.
fn forms(store: &RedisStore) -> [(&'static str, Box<dyn Store>); 4] {
    [
        ("bare", Box::new(store.clone())),
        (
            "Arc<dyn Store>",
            Box::new(Arc::new(store.clone()) as Arc<dyn Store>),
        ),
        (
            "Box<dyn Store>",
            Box::new(Box::new(store.clone()) as Box<dyn Store>),
        ),
        ("a wrapper", Box::new(Wrapper(Arc::new(store.clone())))),
    ]
}

#[tokio::test]
async fn every_method_reaches_the_store_inside() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    for (form, wrapped) in forms(&store) {
        assert!(!wrapped.is_in_process(), "{form}");
        let count = wrapped
            .replicas(ReplicaGroup::new("log", &LOG.into()))
            .expect("the store counts");
        wait::until_async("a count", PATIENCE, async || count.get().is_some()).await;
        let limits = Publication::new(form, LOG, None);
        wrapped.publish(&limits);
        let shown =
            || server.command(&["ZSCORE", "tollgate:{replicas}:limits", &limits.to_string()]);
        wait::until_async("the limits to be shown", PATIENCE, async || {
            !shown().is_nil()
        })
        .await;
        let limiter = patient_limiter(wrapped, LOG);
        let decision = limiter.check(form).tag("ann").await.expect("a decision");
        assert!(decision.is_allowed(), "{form}");
        let entries = limiter.entries(form, 10).await.expect("entries");
        assert_eq!(
            entries.iter().map(Entry::tag).collect::<Vec<_>>(),
            [b"ann"],
            "{form}"
        );
        limiter
            .refund(form, Cost::ONE)
            .of(&decision)
            .await
            .expect("a refund");
        assert!(
            limiter.entries(form, 10).await.expect("entries").is_empty(),
            "{form}"
        );
        let _ = limiter.check(form).await.expect("a decision");
        let reservation = limiter.reserve(form, Cost::ONE).await.expect("a decision");
        assert_eq!(
            reservation.cancel().await.expect("settled"),
            Settlement::Settled,
            "{form}"
        );
        limiter.reset(form).await.expect("a reset");
        assert!(
            limiter.entries(form, 10).await.expect("entries").is_empty(),
            "{form}"
        );
    }
}

#[tokio::test]
async fn a_check_takes_as_many_allocations_wrapped_as_bare() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let counts = forms(&store).map(|(form, wrapped)| {
        let limiter = patient_limiter(wrapped, LOG);
        let key = Key::new("acme");
        drop(limiter.check_key(&key).into_future());
        let mut check = None;
        let made =
            allocation_counter::measure(|| check = Some(limiter.check_key(&key).into_future()));
        drop(check);
        (form, made.count_total)
    });
    for (form, count) in counts {
        assert_eq!(count, counts[0].1, "{form}");
    }
}

#[tokio::test]
async fn the_deadline_is_kept_and_the_outage_answers() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let store = RedisStore::builder(proxy.url())
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .expect("a store");
    for (form, wrapped) in forms(&store) {
        proxy.set(Mode::Pass);
        store.ping().await.expect("an answer");
        let limiter = Limiter::builder(wrapped)
            .policies(LOG)
            .deadline(Duration::from_millis(40))
            .on_outage(Outage::Open)
            .build();
        proxy.set(Mode::Stall);
        let decision = limiter.check("acme").await.expect("open");
        let cause = decision.degraded().expect("the server is silent");
        assert!(
            matches!(cause, ErrorKind::Timeout | ErrorKind::CircuitOpen),
            "{form}: {cause}"
        );
        proxy.set(Mode::Pass);
        wait::until_async(
            "the server to be used again",
            Duration::from_secs(60),
            async || store.is_available(),
        )
        .await;
    }
}
