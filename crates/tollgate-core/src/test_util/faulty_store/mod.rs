//! A store that fails and recovers when a test says so, around any other store.
//! Fixed answers are in `scripted_store/`.

use std::{fmt, future::pending, sync::Arc, time::Duration};

use tollgate_model::Entry;

use super::answer::fault;
use crate::{
    Decision, ErrorKind, Key, MemoryStore, PolicySet, Store,
    lock::Lock,
    store::{
        Check, CheckFuture, PermitGrant, PermitRequest, ReplicaCount, ReplicaGroup, ReservationId,
        Settlement, StoreFuture,
    },
};

/// Wraps a store, and fails and recovers on command.
///
/// Use it to test what the service does in an outage: the [`Outage`](crate::Outage) of each limiter
/// decides, as it does when Redis is away. The wrapped store keeps its state, so after
/// [`recover`](Self::recover) the counts continue.
///
/// The store counts as one outside of the process, also around a [`MemoryStore`]: the deadline of
/// the limiter applies.
///
/// Clones share the fault. Give one to the limiter, and keep one to command it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use tollgate::{Limiter, Outage, Policy, Quota, test_util::FaultyStore};
///
/// let store = FaultyStore::default();
/// let login = Limiter::builder(store.clone())
///     .policies(Policy::token_bucket("log-in", Quota::per_day(5)))
///     .on_outage(Outage::Closed)
///     .build();
/// assert!(login.check("ann").await?.is_allowed());
///
/// store.fail();
/// assert!(login.check("ann").await.unwrap_err().kind().is_unavailable());
///
/// store.recover();
/// assert_eq!(login.check("ann").await?.state("log-in").unwrap().remaining(), 3);
/// # Ok(()) }
/// ```
pub struct FaultyStore<S = MemoryStore>(Arc<FaultyInner<S>>);

struct FaultyInner<S> {
    store: S,
    fault: Lock<Option<Fault>>,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Fail(ErrorKind),
    Stall,
}

impl<S: Store> FaultyStore<S> {
    /// Wraps a store. It works until the test calls [`fail`](Self::fail) or [`stall`](Self::stall).
    #[must_use]
    pub fn new(store: S) -> Self {
        Self(Arc::new(FaultyInner {
            store,
            fault: Lock::new(None),
        }))
    }

    /// Fails every call from now on, with [`ErrorKind::Unavailable`].
    pub fn fail(&self) {
        self.fail_with(ErrorKind::Unavailable);
    }

    /// Fails every call from now on, with this kind: see [`Answer::fail`](super::Answer::fail) for
    /// the kinds that are an outage.
    pub fn fail_with(&self, kind: ErrorKind) {
        self.set(Some(Fault::Fail(kind)));
    }

    /// Answers no call from now on, so that each call ends at the
    /// [deadline](crate::LimiterBuilder::deadline) of the limiter, with [`ErrorKind::Timeout`].
    /// These calls are not answered after [`recover`](Self::recover) either.
    pub fn stall(&self) {
        self.set(Some(Fault::Stall));
    }

    /// Answers every call from now on.
    pub fn recover(&self) {
        self.set(None);
    }

    fn set(&self, fault: Option<Fault>) {
        *self.0.fault.lock() = fault;
    }

    fn fault(&self) -> Option<Fault> {
        *self.0.fault.lock()
    }

    fn call<T: Send + 'static>(&self, call: impl FnOnce(&S) -> StoreFuture<T>) -> StoreFuture<T> {
        match self.fault() {
            None => call(&self.0.store),
            Some(Fault::Fail(kind)) => StoreFuture::ready(Err(fault(kind))),
            Some(Fault::Stall) => StoreFuture::pending(pending()),
        }
    }
}

impl<S: Store> Store for FaultyStore<S> {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.call(|store| store.check(check))
    }

    fn look(&self, check: Check<'_>) -> CheckFuture {
        self.call(|store| store.look(check))
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.call(|store| store.refund(check, decision))
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.call(|store| store.reset(check))
    }

    fn entries(&self, check: Check<'_>, limit: usize) -> StoreFuture<Vec<Entry>> {
        self.call(|store| store.entries(check, limit))
    }

    fn permits(&self, request: PermitRequest<'_>) -> StoreFuture<PermitGrant> {
        self.call(|store| store.permits(request))
    }

    fn reserve(&self, check: Check<'_>, id: &ReservationId, time_to_live: Duration) -> CheckFuture {
        self.call(|store| store.reserve(check, id, time_to_live))
    }

    fn commit(&self, check: Check<'_>, id: &ReservationId) -> StoreFuture<Settlement> {
        self.call(|store| store.commit(check, id))
    }

    fn leases(&self) -> bool {
        self.0.store.leases() || self.0.store.is_in_process()
    }

    fn can_decide(&self, policies: &PolicySet, key: &Key) -> bool {
        self.0.store.can_decide(policies, key)
    }

    fn replicas(&self, group: ReplicaGroup) -> Option<ReplicaCount> {
        self.0.store.replicas(group)
    }

    // `is_in_process` stays `false`: a call that stalls needs the timer of the limiter.
}

impl Default for FaultyStore {
    /// Wraps a [`MemoryStore`].
    fn default() -> Self {
        Self::new(MemoryStore::new())
    }
}

impl<S> Clone for FaultyStore<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Store + fmt::Debug> fmt::Debug for FaultyStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore")
            .field("store", &self.0.store)
            .field("fault", &self.fault())
            .finish()
    }
}

#[cfg(test)]
mod tests;
