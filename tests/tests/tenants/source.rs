//! A source of limits that the tests control.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::sleep;
use tollgate::{
    Limiter, MemoryStore, Policy, Quota,
    limiter::Selection,
    store::Clock,
    tenants::{TenantLimiters, TenantLimitersBuilder},
};

pub(crate) const API: Policy = Policy::token_bucket("api", Quota::per_day(10));
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// The time that the source takes for an answer.
pub(crate) const LATENCY: Duration = Duration::from_millis(10);

/// Says how the source treats the next fetches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Answers,
    Fails,
    Hangs,
    Panics,
}

/// Stands for a database.
#[derive(Clone)]
pub(crate) struct Source(Arc<Inner>);

struct Inner {
    mood: Mutex<Mood>,
    plans: Mutex<HashMap<u64, Selection>>,
    fetches: AtomicUsize,
    running: AtomicUsize,
    most_running: AtomicUsize,
}

/// Counts a fetch as running until it is dropped.
struct Running<'a>(&'a Inner);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Source {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            mood: Mutex::new(Mood::Answers),
            plans: Mutex::default(),
            fetches: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            most_running: AtomicUsize::new(0),
        }))
    }

    pub(crate) fn set_mood(&self, mood: Mood) {
        *lock(&self.0.mood) = mood;
    }

    /// Gives a tenant an amount a day.
    pub(crate) fn set_amount(&self, tenant: u64, amount: u64) {
        self.set(
            tenant,
            API.with_quota(Quota::per_day(amount)).expect("a policy"),
        );
    }

    pub(crate) fn set(&self, tenant: u64, selection: impl Into<Selection>) {
        lock(&self.0.plans).insert(tenant, selection.into());
    }

    /// Returns the number of fetches so far.
    pub(crate) fn fetches(&self) -> usize {
        self.0.fetches.load(Ordering::Relaxed)
    }

    /// Returns the most fetches that ran at a time.
    pub(crate) fn most_running(&self) -> usize {
        self.0.most_running.load(Ordering::Relaxed)
    }

    async fn fetch(self, tenant: u64) -> Result<Option<Selection>, String> {
        self.0.fetches.fetch_add(1, Ordering::Relaxed);
        let running = self.0.running.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.most_running.fetch_max(running, Ordering::Relaxed);
        let _running = Running(&self.0);
        sleep(LATENCY).await;
        let mood = *lock(&self.0.mood);
        match mood {
            Mood::Answers => Ok(lock(&self.0.plans).get(&tenant).cloned()),
            Mood::Fails => Err("the database is away".to_owned()),
            Mood::Hangs => std::future::pending().await,
            Mood::Panics => panic!("the source panics for a test"),
        }
    }

    pub(crate) fn builder(&self) -> TenantLimitersBuilder<u64> {
        let store = MemoryStore::builder()
            .clock(Clock::manual(1_000_000_000))
            .build();
        let default = Limiter::builder(store).policies(API).name("calls").build();
        let source = self.clone();
        TenantLimiters::builder(default, move |tenant| source.clone().fetch(tenant))
    }

    pub(crate) fn tenants(&self) -> TenantLimiters<u64> {
        self.builder().build()
    }
}

/// Returns the amount of a tenant, or `None` when it has no limit.
pub(crate) async fn amount(tenants: &TenantLimiters<u64>, tenant: u64) -> Option<u64> {
    tenants
        .limiter_for(&tenant)
        .await
        .expect("limits")
        .into_limiter()
        .map(|limiter| amount_of(&limiter))
}

/// Returns the amount of a tenant that is known at once.
pub(crate) fn amount_at_once(tenants: &TenantLimiters<u64>, tenant: u64) -> Option<u64> {
    let limiter = tenants.limiter_for(&tenant).into_ready().ok()?;
    limiter
        .expect("limits")
        .into_limiter()
        .map(|limiter| amount_of(&limiter))
}

fn amount_of(limiter: &Limiter) -> u64 {
    limiter
        .policies()
        .iter()
        .next()
        .expect("a policy")
        .quota()
        .amount()
}
