//! Keeps the state of policies: what you need to implement or to wrap a [`Store`].

// The trait and its laws. What several stores need is in the files beside; each store has a folder
// of its own, Redis a room.

mod answer;
pub(crate) mod bytes;
pub(crate) mod check;
mod deadline;
pub(crate) mod exceptions;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod names;
pub(crate) mod permits;
pub(crate) mod publication;
mod replica_report;
pub(crate) mod replicas;
pub(crate) mod reservation;
pub(crate) mod rules_in_force;
pub(crate) mod spending;
mod step;
pub(crate) mod timer;

use std::{sync::Arc, time::Duration};

use tollgate_model::Entry;

use crate::{Cost, Decision, Error, ErrorKind, Key, PolicySet};

pub use crate::clock::Clock;
pub(crate) use answer::Concludes;
pub use answer::{CheckFuture, OfBlocked, StoreFuture};
pub use check::{Check, KeptCheck};
pub use deadline::Deadline;

pub use exceptions::{
    Exception, ExceptionCall, ExceptionChange, ExceptionList, ExceptionReply, ExceptionsInForce,
};
pub use memory::{MemoryStore, MemoryStoreBuilder};
pub use permits::{KeptPermitRequest, PermitGrant, PermitOutcome, PermitRequest};
pub use publication::Publication;
pub use replica_report::ReplicaReport;
pub use replicas::{ReplicaCount, ReplicaGroup};
pub(crate) use reservation::{ReservationId, Settlement};
pub use rules_in_force::{ReportedRules, RulesDigest, RulesInForce};
pub use spending::Spending;
pub(crate) use spending::{Filling, Seen};
pub(crate) use timer::{answer_by, answer_to};
#[doc(inline)]
pub use tollgate_model::{Ceiling, StoredState};

/// Keeps the state of policies, and decides checks on it.
///
/// [`MemoryStore`] implements it, `RedisStore` and `KeyValueStore` do so in crates of their own, and
/// `Arc<S>` and `Box<S>` of any store, `dyn Store` included. Implement it to wrap a store: to count,
/// to trace, to shard. Implement `KeyValue` instead to keep the
/// state elsewhere.
///
/// A wrapper returns the store that it wraps from [`inner`](Self::inner). Every method that the
/// wrapper does not implement then calls that store, so that no entry, permit or reservation is
/// lost.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
/// use tollgate::{
///     Cost, Decision, Limiter, MemoryStore, Policy, Quota, Store,
///     store::{Check, CheckFuture, StoreFuture},
/// };
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
///     fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
///         self.0.reset(check)
///     }
///     fn inner(&self) -> Option<&dyn Store> {
///         Some(&self.0)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// let checks = Arc::new(AtomicU64::new(0));
/// let store = Counted(MemoryStore::new(), Arc::clone(&checks));
/// let limiter = Limiter::new(store, Policy::token_bucket("api", Quota::per_second(10)));
/// assert!(limiter.check("acme").await?.is_allowed());
/// assert_eq!(checks.load(Ordering::Relaxed), 1);
///
/// // The store inside reserves, although the wrapper has no such method.
/// assert!(limiter.reserve("acme", Cost::ONE).await?.decision().is_allowed());
/// # Ok(()) }
/// ```
///
/// # Contract
///
/// Each check is one atomic step over all policies of the check. A state belongs to the name of a
/// policy and the part of the key that the policy meters: all [levels](crate::Policy::at_level) of
/// the first [branch](crate::Policy::at_branch) by default. `n` is the amount of a quota, `b` its
/// burst and `W` its period. Every store keeps these laws, for every algorithm:
///
/// 1. **Bound.** A policy never admits more units than the bound of its
///    [`Algorithm`](crate::Algorithm) allows, from any number of threads and processes.
/// 2. **Remaining.** `remaining = k` means that exactly `k` more units are admitted at that
///    instant.
/// 3. **Retry.** `retry_after` is exact and never zero. One microsecond earlier the same cost is
///    denied. At that time it is admitted, if no other request spends.
/// 4. **Reset.** `reset_after` is the time until the state equals a fresh one. It is at least
///    `retry_after`.
/// 5. **Denial.** A denial changes neither the stored state nor its expiry. The only exception is a
///    state that has to be repaired: see 10 and 11.
/// 6. **Cost.** A cost of `c` equals `c` requests of cost one at the same instant, and is charged
///    as a whole or not at all. A cost of zero changes nothing. A cost above the burst is an error,
///    not a denial.
/// 7. **No drift.** Exactly `k·n` units accrue over `k` whole periods, for every `n` and `W`.
/// 8. **Idle.** An idle key regains its burst, and no more.
/// 9. **Expiry.** A missing state equals a fresh one. Every stored state expires: not before it is
///    fresh, and at most 1 s later.
/// 10. **Clock.** Stored time does not go back with the clock. A time that is impossibly far ahead
///     is corrected. A step of the clock forward gives at most one extra burst. A step back adds at
///     most the time from exhausted to fresh.
/// 11. **Changed policy.** A raised quota can be used at once. A lowered quota holds at once. No
///     wait is longer than the time from exhausted to fresh of the new quota. Another algorithm
///     under the same name starts fresh.
/// 12. **Peek, reset, refund.** A peek changes nothing. A reset makes the states fresh that belong
///     to the key, or to one of its branches, alone. It leaves the states of outer levels, which
///     other keys share. A refund returns at most what was spent, never to a newer window, and
///     creates no state.
/// 13. **Damage.** A state that is damaged, of an older version or of another type counts as
///     missing, or is a typed error.
/// 14. **Reservation.** A reservation is a check that is recorded under its key and an id until it
///     lapses. The same id charges nothing again until then, and answers the same. A denied
///     reservation is not recorded. The id belongs to the key and the policies of the check, in
///     their order: under other policies it is the id of another reservation.
/// 15. **Settlement.** The first commit settles a reservation. Each policy has then spent the final
///     cost in all, and no later commit changes anything. Less than reserved is a refund at the
///     time of the reservation. More is charged at the time of the commit, although it does not
///     fit: a debt. A reservation without a commit stays charged. A leaky bucket takes back only
///     the last places of its queue.
/// 16. **Debt.** In debt `remaining` is 0, and 3 and 4 hold. A policy spends at most 8 times its
///     burst in all: a commit charges no more. A debt outlives no window, and is kept by 10 and 11:
///     of a key in debt, no wait is longer than 8 times the time from exhausted to fresh.
///
/// Laws 17 and 23 concern only a [`Limiter`](crate::Limiter), and law 18 is part of 14.
///
/// 19. **Ceiling.** A check under a [ceiling](crate::store::Ceiling) is denied when more would be
///     spent than the ceiling allows, and 3 and 5 hold for it. The stored state is the same under
///     every ceiling.
/// 20. **Late refund.** A refund counts as if the units had come back at once, so it gives no unit
///     twice. A token bucket may return less, and returns what was spent last in full.
/// 21. **Priority.** Checks of a [priority](crate::Priority) leave the units above its share to
///     checks of a higher one.
///
/// 24. **Cascade.** [Cascading](crate::Costs::cascading) costs take what each policy has left, in
///     their order, and are denied exactly when all together have less, or when a policy beside them
///     has less than its own cost. 3, 5 and 14 hold for them.
///
/// # Permits
///
/// A state belongs to the name of a [`Concurrency`](crate::permits::Concurrency) and the key. It
/// has for each replica the permits that it holds, and the time at which they lapse. Each call of
/// [`permits`](Self::permits) is one atomic step:
///
/// 1. **Limit.** A call never raises the sum of what all replicas hold above the limit. A sum that
///    lies above a lowered limit stays until permits are given back.
/// 2. **Need before wish.** A replica gets what it needs while permits are free. Of what it wants
///    on top, it gets half of the free permits at most, and nothing while another replica waits.
/// 3. **Totals.** A call states what the replica is to hold in all. Repeated, it changes nothing
///    but the time at which the permits lapse.
/// 4. **Order.** A call whose number is not above the number of the replica's last call changes
///    nothing.
/// 5. **Lapse.** Permits that are not renewed for their life are dropped, neither before nor later.
///    A clock that went back prolongs them by one life at most.
/// 6. **No return.** A renewal never brings back permits that lapsed. The reply says that they are
///    lost.
/// 7. **Lost state.** When the whole state was lost, a renewal is counted again if all permits in
///    use fit the limit. Otherwise they are lost.
/// 8. **Denial.** A call that leaves a replica without permits, and that does not wait, changes
///    nothing.
/// 9. **Expiry.** A state expires at the latest lapse of its permits, at most 1 s later.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store",
    label = "not a store",
    note = "`tollgate::open(url)?` makes a store of a URL, and `MemoryStore::new()` is one for a single process"
)]
pub trait Store: Send + Sync + 'static {
    /// Decides a check, and charges all of its policies or none. A cost of zero charges nothing.
    fn check(&self, check: Check<'_>) -> CheckFuture;

    /// Returns the store that this store wraps. `None`, the default, for a store that keeps the
    /// state itself.
    ///
    /// Every method with a default calls the inner store. A wrapper whose futures take time of
    /// their own implements [`is_in_process`](Self::is_in_process), and returns `false`.
    fn inner(&self) -> Option<&dyn Store> {
        None
    }

    /// Returns what [`check`](Self::check) would decide, and charges nothing: for
    /// [`Limiter::peek`](crate::Limiter::peek) and
    /// [`PeekBuilder::cost`](crate::limiter::PeekBuilder::cost).
    ///
    /// Without an [inner](Self::inner) store, the default is a check when the cost is zero, and
    /// fails with [`ErrorKind::Unsupported`] for any other cost.
    fn look(&self, check: Check<'_>) -> CheckFuture {
        match self.inner() {
            Some(inner) => inner.look(check),
            None if check.cost == Cost::ZERO => self.check(check),
            None => unsupported("the store does not look ahead"),
        }
    }

    /// Refunds up to the cost that `check` spent, at the time of `decision`, or now without a
    /// decision. Never refunds more than is spent.
    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()>;

    /// Makes the key fresh for the policies of `check`, and each of its branches as a key of its
    /// own. A policy that meters other levels than the whole branch is left out. The cost of
    /// `check` is zero.
    fn reset(&self, check: Check<'_>) -> StoreFuture<()>;

    /// Lists up to `limit` entries of the sliding log among the policies of `check`, newest first.
    /// If several are logs, lists the log with the longest period. The cost of `check` is zero.
    ///
    /// Fails with [`ErrorKind::Unsupported`] by default, without an [inner](Self::inner) store.
    fn entries(&self, check: Check<'_>, limit: usize) -> StoreFuture<Vec<Entry>> {
        match self.inner() {
            Some(inner) => inner.entries(check, limit),
            None => unsupported("the store does not list entries"),
        }
    }

    /// Sets how many permits of a key one replica holds, in one atomic step: see [the
    /// contract](Self#permits).
    ///
    /// Fails with [`ErrorKind::Unsupported`] by default, without an [inner](Self::inner) store.
    fn permits(&self, request: PermitRequest<'_>) -> StoreFuture<PermitGrant> {
        match self.inner() {
            Some(inner) => inner.permits(request),
            None => unsupported("the store has no permits"),
        }
    }

    /// Decides a check as [`check`](Self::check) does, and records the charge under `id` for
    /// `time_to_live`. While the record is held, the same id with the same key and policies charges
    /// nothing and gets the same answer.
    ///
    /// Fails with [`ErrorKind::Unsupported`] by default, without an [inner](Self::inner) store.
    fn reserve(&self, check: Check<'_>, id: &ReservationId, time_to_live: Duration) -> CheckFuture {
        match self.inner() {
            Some(inner) => inner.reserve(check, id, time_to_live),
            None => unsupported("the store does not hold reservations"),
        }
    }

    /// Settles the reservation with this `id`, and the key and the policies of `check`, at the
    /// costs of `check`. These may be above the burst.
    ///
    /// Fails with [`ErrorKind::Unsupported`] by default, without an [inner](Self::inner) store.
    fn commit(&self, check: Check<'_>, id: &ReservationId) -> StoreFuture<Settlement> {
        match self.inner() {
            Some(inner) => inner.commit(check, id),
            None => unsupported("the store does not hold reservations"),
        }
    }

    /// Returns whether one step can decide over these policies for this key. `true` by default.
    ///
    /// A Redis Cluster cannot when the policies meter [branches](Key::with_branch) of the key that
    /// lie in different slots. A check then fails with [`ErrorKind::CrossSlot`].
    fn can_decide(&self, policies: &PolicySet, key: &Key) -> bool {
        self.inner()
            .is_none_or(|inner| inner.can_decide(policies, key))
    }

    /// Returns whether processes take units of a [leased](crate::Policy::leased) policy in advance.
    /// `false` by default.
    ///
    /// On any other store no [`Limiter`](crate::Limiter) of such a policy is built: see
    /// [`try_build`](crate::LimiterBuilder::try_build). A store [in
    /// process](Self::is_in_process) has no trip to save, and decides each check itself.
    fn leases(&self) -> bool {
        self.inner().is_some_and(Store::leases)
    }

    /// Returns why this store decides no checks of these policies. `Ok` by default.
    ///
    /// [`try_build`](crate::LimiterBuilder::try_build) asks it, so that a policy which the store
    /// cannot decide is refused when the limiter is built, and not at each check. A store that shards
    /// or that counts some algorithms elsewhere says so here.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] with the reason.
    fn accepts(&self, policies: &PolicySet) -> Result<(), Error> {
        self.inner().map_or(Ok(()), |inner| inner.accepts(policies))
    }

    /// Returns whether decisions are made inside this process, without waiting. `false` by default.
    ///
    /// If so, every future must be ready. The limiter returns it unchanged: no deadline and no
    /// [`Outage`](crate::Outage) applies.
    fn is_in_process(&self) -> bool {
        self.inner().is_some_and(Store::is_in_process)
    }

    /// Returns the number of processes that have limits of this group on this store's state, this
    /// process included. `None`, the default, when the store does not count.
    ///
    /// The store keeps the number up to date as long as a clone of it is held. A
    /// [`Limiter`](crate::Limiter) with [`Replicas::Counted`](crate::limiter::Replicas::Counted)
    /// calls this once, when it is built, and divides its quotas by the number in an outage. So the
    /// store leaves the last number in place while it cannot count.
    fn replicas(&self, group: ReplicaGroup) -> Option<ReplicaCount> {
        self.inner().and_then(|inner| inner.replicas(group))
    }

    /// Shows these limits to operators, and applies the shares that operators set, as long as a
    /// limiter holds a clone of `limits`. By default, without an [inner](Self::inner) store,
    /// nothing is shown.
    ///
    /// A [`Limiter`](crate::Limiter) that is [published](crate::LimiterBuilder::published) calls
    /// this once, when it is built.
    fn publish(&self, limits: &Publication) {
        if let Some(inner) = self.inner() {
            inner.publish(limits);
        }
    }

    /// Shows operators that this process enforces these rules, as long as somebody holds a clone of
    /// them. By default, without an [inner](Self::inner) store, nothing is shown.
    ///
    /// The limiter of `tollgate-rules` calls this once, when it is built. What a process enforces is
    /// its [`ReplicaReport`], which has the limits of [`publish`](Self::publish), too.
    fn publish_rules(&self, rules: &RulesInForce) {
        if let Some(inner) = self.inner() {
            inner.publish_rules(rules);
        }
    }

    /// Keeps these up to date with the [exceptions](Exception) of the store, as long as a limiter holds a
    /// clone. By default, without an [inner](Self::inner) store, there are none.
    ///
    /// A [`Limiter`](crate::Limiter) that is [published](crate::LimiterBuilder::published), or [takes
    /// exceptions](crate::LimiterBuilder::with_exceptions), calls this once, when it is built.
    fn follow_exceptions(&self, exceptions: &ExceptionsInForce) {
        if let Some(inner) = self.inner() {
            inner.follow_exceptions(exceptions);
        }
    }

    /// Lists the [exceptions](Exception) that the store keeps, grants one, or withdraws one. It answers
    /// with all exceptions, or with the one that was replaced or withdrawn.
    ///
    /// Callers use [`Limiter::grant_exception`](crate::Limiter::grant_exception) and the methods beside
    /// it. By default, without an [inner](Self::inner) store, the call fails with
    /// [`ErrorKind::Unsupported`].
    fn exceptions(&self, call: ExceptionCall) -> StoreFuture<ExceptionReply> {
        match self.inner() {
            Some(inner) => inner.exceptions(call),
            None => unsupported("the store keeps no exceptions"),
        }
    }

    /// Reports to other processes with limits of this group what the heaviest customers
    /// [spend](Spending) here, and to `spending` what they spend there, every second as long as a
    /// limiter holds a clone of it. By default, without an [inner](Self::inner) store, nothing
    /// is reported.
    ///
    /// A [`Limiter`](crate::Limiter) with [fair shares](crate::LimiterBuilder::fair_shares) calls
    /// this once, when a check first names a customer.
    fn exchange(&self, group: ReplicaGroup, spending: &Spending) {
        if let Some(inner) = self.inner() {
            inner.exchange(group, spending);
        }
    }
}

fn unsupported<T>(message: &'static str) -> StoreFuture<T> {
    StoreFuture::ready(Err(Error::new(ErrorKind::Unsupported, message)))
}

/// Makes a pointer to a store a store, which wraps it.
macro_rules! wrap {
    ($([$($of:tt)*] $pointer:ty;)*) => {
        $(
            impl<$($of)*> Store for $pointer {
                fn check(&self, check: Check<'_>) -> CheckFuture {
                    (**self).check(check)
                }

                fn inner(&self) -> Option<&dyn Store> {
                    Some(&**self)
                }

                fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
                    (**self).refund(check, decision)
                }

                fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
                    (**self).reset(check)
                }
            }
        )*
    };
}

wrap! {
    [S: Store] Arc<S>;
    [S: Store] Box<S>;
    [] Arc<dyn Store>;
    [] Box<dyn Store>;
}
