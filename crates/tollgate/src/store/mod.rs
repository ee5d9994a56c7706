mod check;
mod forward;
mod future;

pub use check::{Check, Deadline};
pub(crate) use future::Guard;
#[cfg(feature = "redis")]
pub(crate) use future::PendingAnswer;
pub use future::{CheckFuture, StoreFuture};

use crate::{Decision, Entry, Error, ErrorKind, Key, PolicySet};

/// Keeps the state of policies, and decides checks on it.
///
/// This crate implements it for [`MemoryStore`](crate::MemoryStore) and [`RedisStore`](crate::RedisStore), and for
/// `Arc<S>` and `Box<S>` of any store, `dyn Store` included. Implement it to wrap a store (to count, to trace, to
/// shard), or to keep the state elsewhere.
///
/// A wrapper forwards **every** method. A method that is not forwarded falls back to its default: the wrapped store
/// then loses its entries, its deadline or its in-process answers.
///
/// # Contract
///
/// Each check is one atomic step over all policies of the check. `n` is the amount of a quota, `b` its burst, `W` its
/// period and `T = W/n`.
///
/// 1. A policy never admits more than the bound of its [`Algorithm`](crate::Algorithm), from any number of
///    processes and threads.
/// 2. `remaining = k` means that exactly `k` more requests of cost one pass at that instant.
/// 3. `retry_after` is exact, and never zero. One microsecond earlier the same cost is denied. At that time it is
///    admitted, if no other request spends.
/// 4. `reset_after` is the time until the state equals a fresh one. It is at least `retry_after`.
/// 5. A denial changes nothing in the store.
/// 6. A check of cost `c` equals `c` checks of cost one at the same instant, all or nothing.
/// 7. Units accrue without drift: exactly `k·n` units over `k` whole periods.
/// 8. Idle time restores the burst and no more.
/// 9. Absent state equals fresh state. Every stored state expires by itself.
/// 10. Stored time never goes back. A step of the clock costs at most one extra burst or one wait until fresh.
/// 11. A changed quota applies at once. Units that were spent stay spent.
/// 12. A check of cost zero changes nothing. `reset` makes the key fresh. `refund` returns at most what was spent, and
///     nothing to a newer window.
/// 13. Damaged or foreign state counts as absent, or fails with a typed error.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
/// use tollgate::{Check, CheckFuture, Decision, Entry, Key, Limiter, MemoryStore, Policy, PolicySet, Quota, Store, StoreFuture};
///
/// /// Counts the checks of another store.
/// struct Counted<S>(S, Arc<AtomicU64>);
///
/// impl<S: Store> Store for Counted<S> {
///     fn check(&self, check: Check<'_>) -> CheckFuture {
///         self.1.fetch_add(1, Ordering::Relaxed);
///         self.0.check(check)
///     }
///     fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
///         self.0.refund(check, decision)
///     }
///     fn reset(&self, policies: &PolicySet, key: &Key) -> StoreFuture<()> {
///         self.0.reset(policies, key)
///     }
///     fn entries(&self, policies: &PolicySet, key: &Key, limit: usize) -> StoreFuture<Vec<Entry>> {
///         self.0.entries(policies, key, limit)
///     }
///     fn is_in_process(&self) -> bool {
///         self.0.is_in_process()
///     }
///     fn keeps_deadline(&self) -> bool {
///         self.0.keeps_deadline()
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// let checks = Arc::new(AtomicU64::new(0));
/// let store = Counted(MemoryStore::new(), Arc::clone(&checks));
/// let limiter = Limiter::new(store, Policy::token_bucket("api", Quota::per_second(10)));
/// assert!(limiter.check("acme").await?.is_allowed());
/// assert_eq!(checks.load(Ordering::Relaxed), 1);
/// # Ok(()) }
/// ```
pub trait Store: Send + Sync + 'static {
    /// Decides a check, and charges all of its policies or none. A cost of zero charges nothing.
    fn check(&self, check: Check<'_>) -> CheckFuture;

    /// Refunds up to the cost that `check` spent, at the time of `decision`, or now without a decision. Never
    /// refunds more than is spent.
    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()>;

    /// Makes the key fresh for these policies.
    fn reset(&self, policies: &PolicySet, key: &Key) -> StoreFuture<()>;

    /// Lists up to `limit` entries of the sliding log among the policies, newest first. Of several logs, lists the
    /// one with the longest period.
    ///
    /// The default fails with [`ErrorKind::Unsupported`].
    fn entries(&self, policies: &PolicySet, key: &Key, limit: usize) -> StoreFuture<Vec<Entry>> {
        let _ = (policies, key, limit);
        StoreFuture::ready(Err(Error::new(ErrorKind::Unsupported, "the store does not list entries")))
    }

    /// Returns whether decisions are made inside this process, without waiting. Every future is then ready, and the
    /// limiter passes it on unchanged: no deadline and no [`Outage`](crate::Outage) applies. `false` by default.
    fn is_in_process(&self) -> bool {
        false
    }

    /// Returns whether [`check`](Self::check) ends by itself, with [`ErrorKind::Timeout`], at the
    /// [deadline](Check::deadline) of the check. The limiter sets a timer around the checks of every other store.
    /// `false` by default.
    fn keeps_deadline(&self) -> bool {
        false
    }
}
