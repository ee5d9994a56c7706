use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use tollgate_model::Concurrency;

use crate::{
    Decision, Error, ErrorKind, Key, Limiter, MemoryStore, Outage, Policy, Quota, Store,
    clock::Clock,
    permits::{ConcurrencyLimiter, Permit, PermitDenied},
    store::{Check, CheckFuture, PermitGrant, PermitRequest, StoreFuture},
};

/// A server as the model has it: a store in the process that answers as one outside it, or does
/// not.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) store: MemoryStore,
    mood: Arc<AtomicU32>,
    calls: Arc<AtomicU64>,
}

pub(super) const ANSWERS: u32 = 0;
/// Executes calls whose replies never arrive.
pub(super) const MUTE: u32 = 1;
pub(super) const AWAY: u32 = 2;

impl Server {
    pub(super) fn new(clock: &Clock) -> Self {
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Self {
            store,
            mood: Arc::default(),
            calls: Arc::default(),
        }
    }

    pub(super) fn set(&self, mood: u32) {
        self.mood.store(mood, Ordering::SeqCst);
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn limiter(&self, outage: Outage) -> Limiter {
        Limiter::builder(self.clone())
            .policies(Policy::token_bucket("any", Quota::per_second(1)))
            .on_outage(outage)
            .build()
    }

    /// Returns a replica with this clock.
    pub(super) fn replica(&self, policy: Concurrency, clock: &Clock) -> ConcurrencyLimiter {
        self.replica_in(Outage::Closed, policy, clock)
    }

    pub(super) fn replica_in(
        &self,
        outage: Outage,
        policy: Concurrency,
        clock: &Clock,
    ) -> ConcurrencyLimiter {
        ConcurrencyLimiter::on(
            Arc::clone(self.limiter(outage).inner()),
            policy,
            clock.clone(),
        )
    }
}

impl Store for Server {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.store.check(check)
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.store.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.store.reset(check)
    }

    fn permits(&self, request: PermitRequest<'_>) -> StoreFuture<PermitGrant> {
        let mood = self.mood.load(Ordering::SeqCst);
        if mood == AWAY {
            return StoreFuture::ready(Err(Error::new(ErrorKind::CircuitOpen, "away")));
        }
        self.calls.fetch_add(1, Ordering::SeqCst);
        let grant = self.store.permits(request);
        StoreFuture::pending(async move {
            if mood == MUTE {
                pending::<()>().await;
            }
            tokio::task::yield_now().await;
            grant.await
        })
    }
}

pub(super) const POOLED: Concurrency = Concurrency::new("streams", 8);
pub(super) const EXACT: Concurrency = Concurrency::new("streams", 2).exact();
pub(super) static POOLED_LIMIT: Concurrency = POOLED;

pub(super) async fn permit(limiter: &ConcurrencyLimiter) -> Permit {
    limiter
        .acquire("acme")
        .await
        .expect("an answer")
        .expect("a permit")
}

pub(super) async fn denied(limiter: &ConcurrencyLimiter) -> PermitDenied {
    limiter
        .acquire("acme")
        .await
        .expect("an answer")
        .expect_err("a denial")
}

/// Returns how many permits the server counts.
pub(super) fn held_at(server: &Server, policy: &Concurrency) -> u64 {
    let answer = server.store.permits(request(policy, &Key::new("acme")));
    answer.into_ready().unwrap().unwrap().in_flight
}

/// Lets the other tasks run until the condition holds. Time stands still.
pub(super) async fn settled(mut condition: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the condition never holds");
}

pub(super) fn request<'a>(policy: &'a Concurrency, key: &'a Key) -> PermitRequest<'a> {
    PermitRequest {
        policy,
        key,
        limit: policy.limit(),
        replica: 0,
        number: 1,
        kept: 0,
        used: 0,
        needed: 0,
        extra: 0,
        waits: false,
        life: policy.life(),
        deadline: None,
    }
}
