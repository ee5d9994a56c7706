//! The adapter that makes a store of anything that keeps bytes: for each call, which names and
//! which step.
//! Batches are made in `lanes.rs`; the steps are those of `store/step.rs`.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use super::{KeyValue, lanes::Lanes, presence, values::Values};
use crate::deny_cache::KeyHash;
use tollgate_core::{
    Algorithm, Cost, Decision, Error, ErrorKind, Key, Policy, PolicySet, Store,
    limiter::Entry,
    raw::{
        ByteStates, CheckParts, DecisionParts, PolicySetParts, TAG_BYTES, decide_permits,
        most_spent, names, runtime,
    },
    reservation::{ReservationId, Settlement},
    store::{
        Check, CheckFuture, ExceptionCall, ExceptionReply, ExceptionsInForce, PermitGrant,
        PermitRequest, Publication, ReplicaCount, ReplicaGroup, RulesInForce, Spending,
        StoreFuture,
    },
};

/// Makes a [`Store`] of a [`KeyValue`].
///
/// It has every algorithm, and keeps every law of [`Store`]: it decides by the functions of
/// [`MemoryStore`](tollgate_core::MemoryStore). It lacks the leases of a
/// `RedisStore`:
///
/// | feature | here |
/// |---|---|
/// | checks, peeks, costs, ceilings, priorities, levels, branches | yes; branches in one step |
/// | refunds, resets, reservations and their debts, permits, entries of a log | yes |
/// | a batch of calls in two round trips | yes: up to 128 calls that wait |
/// | calls that others were faster than | decided again, until the deadline of the call |
/// | deadlines and [outages](tollgate_core::Outage) | by the limiter, as for every store |
/// | a [sliding log](tollgate_core::Algorithm::SlidingLog) | each check reads and writes the whole log: keep it short |
/// | [leased](tollgate_core::Policy::leased) policies | no limiter of them [is built](tollgate_core::LimiterBuilder::try_build) |
/// | [counted replicas](tollgate_core::limiter::Replicas::Counted) | of a [shared](KeyValueStore::shared) store; otherwise an outage divides by no number |
/// | what each process [reports](tollgate_core::store::ReplicaReport) that it enforces | of a shared store: in values whose names begin with `{replicas}:enforced:`, one for each store of a process |
/// | [published](tollgate_core::LimiterBuilder::published) limits, shares set by operators | of a shared store: in the values `{replicas}:limits` and `{replicas}:shares`, a line for each limiter |
/// | [exceptions](tollgate_core::store::Exception) | of a shared store: in the values `{replicas}:exceptions` and `{replicas}:exceptions:version` |
/// | [fair shares](tollgate_core::LimiterBuilder::fair_shares) | yes; the processes of a shared store report to each other who spends much |
/// | circuit breaker | yes: a store that is away is not asked until [`ping`](KeyValue::ping) succeeds |
/// | remembered denials | of a shared store |
///
/// A *lane* is a task that decides calls together, one batch after the other: all that wait when it
/// begins. Calls of one key are never in two lanes. So the number of lanes is the number of batches
/// that are under way at most: connections, or transactions.
///
/// Clones share everything. See [`KeyValue`] for an example.
pub struct KeyValueStore<K>(Arc<Lanes<K>>);

/// The number of lanes by default.
const LANES: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

impl<K: KeyValue> KeyValueStore<K> {
    /// Creates a store with 16 lanes.
    #[must_use]
    pub fn new(backend: K) -> Self {
        Self::with_lanes(backend, LANES)
    }

    /// Creates a store with so many lanes. One is right for a file, in which one transaction writes
    /// at a time.
    #[must_use]
    pub fn with_lanes(backend: K, lanes: NonZeroUsize) -> Self {
        Self(Lanes::new(backend, lanes, Duration::ZERO, false))
    }

    /// Creates the store of a server that several processes share. They [count
    /// themselves](tollgate_core::limiter::Replicas::Counted), and show their
    /// [published](tollgate_core::LimiterBuilder::published) limits. Denials are remembered for up to
    /// `deny_cache_cap`, so that a client that keeps asking costs the server nothing: what another
    /// process refunds or resets may be seen that much later.
    #[must_use]
    pub fn shared(backend: K, lanes: NonZeroUsize, deny_cache_cap: Duration) -> Self {
        Self(Lanes::new(backend, lanes, deny_cache_cap, true))
    }

    /// Returns whether calls are sent. After three consecutive timeouts, or a failure to connect,
    /// none is sent until [`ping`](KeyValue::ping) succeeds.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.0.health.refusal_of(None).is_none()
    }

    /// Returns what keeps the bytes.
    #[must_use]
    pub fn backend(&self) -> &K {
        &self.0.backend
    }

    /// Takes a step over the states of a check, and the record of the reservation with this id. Then
    /// calls `end` with what was decided.
    fn step<T: Send + 'static>(
        &self,
        check: Check<'_>,
        id: Option<&ReservationId>,
        mut step: impl FnMut(&mut ByteStates<'_, Values>, Check<'_>, u64) -> T + Send + 'static,
        end: impl FnOnce(&Lanes<K>, &Key, &Result<T, Error>) + Send + 'static,
    ) -> StoreFuture<T> {
        let Check {
            policies,
            key,
            deadline,
            ..
        } = check;
        if let Some(refusal) = self.0.health.refusal_of(deadline) {
            return StoreFuture::ready(Err(refusal));
        }
        let longest = policies.iter().map(longest).max().unwrap_or_default();
        if longest > 0 {
            self.0.backend.expect(longest);
        }
        let states = policies
            .iter()
            .map(|policy| name(|text| names::write_key(policy, key, text)));
        let record = id.map(|id| name(|text| names::write_record_key(policies, key, id, text)));
        if self.0.is_shared {
            self.0.presence.serve(&self.0, false);
        }
        let (names, lanes) = (states.chain(record).collect(), Arc::clone(&self.0));
        let hash = lanes.hash(key);
        // The only copy of the key: the step, the future and the limiter share it.
        let kept = check.keep();
        StoreFuture::keeping(kept.clone(), async move {
            let check = kept.clone();
            let step = move |values: &mut Values, names: &[Vec<u8>], now_us: u64| {
                step(&mut ByteStates::new(values, names), check.check(), now_us)
            };
            let outcome = lanes.ask(hash, names, deadline, step).await;
            end(&lanes, kept.check().key, &outcome);
            outcome
        })
    }

    /// Refunds the cost of `check`, which was spent at `spent_us` or now.
    pub(crate) fn refund_at(
        &self,
        check: Check<'_>,
        spent_us: Option<u64>,
        decision: Option<&Decision>,
    ) -> StoreFuture<()> {
        let decision = decision.cloned();
        let refund = move |states: &mut ByteStates<'_, Values>, check: Check<'_>, now_us| {
            states.refund(check, now_us, spent_us.unwrap_or(now_us), decision.as_ref());
        };
        self.step(check, None, refund, forget)
    }
}

impl<K: KeyValue> Store for KeyValueStore<K> {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        if let Some(blocked) = StoreFuture::if_blocked(check) {
            return blocked;
        }
        let decide = |states: &mut ByteStates<'_, Values>, check: Check<'_>, now_us| {
            states.check(check, now_us)
        };
        let Some(cache) = &self.0.deny_cache else {
            return self.step(check, None, decide, ignore);
        };
        let hash = KeyHash::of(check.key, &self.0.hasher);
        if let Some(denied) = cache.look_up(&check, &hash) {
            return denied;
        }
        let (sent, epoch, whole) = (runtime::now(), cache.epoch(&check, &hash), hash.whole);
        self.step(check, None, decide, move |lanes, key, outcome| {
            if let (Some(cache), Ok(decision)) = (&lanes.deny_cache, outcome) {
                cache.remember(key, whole, sent, epoch, decision);
            }
        })
    }

    fn look(&self, check: Check<'_>) -> CheckFuture {
        if let Some(blocked) = StoreFuture::if_blocked(check) {
            return blocked;
        }
        let look = |states: &mut ByteStates<'_, Values>, check: Check<'_>, now_us| {
            states.look(check, now_us)
        };
        self.step(check, None, look, ignore)
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        if let Some(blocked) = StoreFuture::if_blocked(check) {
            return blocked;
        }
        self.refund_at(check, decision.map(DecisionParts::at_us), decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        let reset = |states: &mut ByteStates<'_, Values>, check: Check<'_>, _| states.reset(check);
        self.step(check, None, reset, forget)
    }

    fn entries(&self, check: Check<'_>, limit: usize) -> StoreFuture<Vec<Entry>> {
        let log = match check.policies.log() {
            Ok(log) => log.clone(),
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        let alone = PolicySet::from(log);
        let alone = Check::new(&alone, check.key, Cost::ZERO);
        let check = match check.deadline {
            Some(deadline) => alone.with_deadline(deadline),
            None => alone,
        };
        let list = move |states: &mut ByteStates<'_, Values>, check: Check<'_>, now_us| {
            states.entries(check, now_us, limit)
        };
        self.step(check, None, list, ignore)
    }

    fn permits(&self, request: PermitRequest<'_>) -> StoreFuture<PermitGrant> {
        let deadline = request.deadline;
        if let Some(refusal) = self.0.health.refusal_of(deadline) {
            return StoreFuture::ready(Err(refusal));
        }
        let names = vec![name(|text| {
            names::write_permit_key(request.policy.name(), request.key, text);
        })];
        let hash = self.0.hash(request.key);
        let (lanes, kept) = (Arc::clone(&self.0), request.keep());
        StoreFuture::pending(async move {
            let step = move |values: &mut Values, names: &[Vec<u8>], now_us: u64| {
                decide_permits(values, &names[0], &kept.request(), now_us)
            };
            lanes.ask(hash, names, deadline, step).await
        })
    }

    fn reserve(&self, check: Check<'_>, id: &ReservationId, time_to_live: Duration) -> CheckFuture {
        if let Some(blocked) = StoreFuture::if_blocked(check) {
            return blocked;
        }
        let of = id.clone();
        let reserve = move |states: &mut ByteStates<'_, Values>, check: Check<'_>, now_us| {
            states.reserve(check, &of, time_to_live, now_us)
        };
        self.step(check, Some(id), reserve, ignore)
    }

    fn replicas(&self, group: ReplicaGroup) -> Option<ReplicaCount> {
        let lanes = &self.0;
        lanes.is_shared.then(|| lanes.presence.count(lanes, group))
    }

    fn publish(&self, limits: &Publication) {
        if self.0.is_shared {
            self.0.presence.publish(&self.0, limits);
        }
    }

    fn follow_exceptions(&self, exceptions: &ExceptionsInForce) {
        if self.0.is_shared {
            self.0.presence.follow_exceptions(&self.0, exceptions);
        }
    }

    fn exceptions(&self, call: ExceptionCall) -> StoreFuture<ExceptionReply> {
        if !self.0.is_shared {
            let message = "only a store that processes share keeps exceptions";
            return StoreFuture::ready(Err(Error::new(ErrorKind::Unsupported, message)));
        }
        let lanes = Arc::clone(&self.0);
        StoreFuture::pending(async move {
            let reply = presence::change_exceptions(&lanes, call).await?;
            lanes.presence.refresh(&lanes);
            Ok(reply)
        })
    }

    fn publish_rules(&self, rules: &RulesInForce) {
        if self.0.is_shared {
            self.0.presence.publish_rules(&self.0, rules);
        }
    }

    fn exchange(&self, group: ReplicaGroup, spending: &Spending) {
        if self.0.is_shared {
            self.0.presence.exchange(&self.0, group, spending);
        }
    }

    fn commit(&self, check: Check<'_>, id: &ReservationId) -> StoreFuture<Settlement> {
        if let Some(blocked) = StoreFuture::if_blocked(check) {
            return blocked;
        }
        // One number for all attempts of the call.
        let (of, number) = (id.clone(), check.number());
        let commit = move |states: &mut ByteStates<'_, Values>, check: Check<'_>, now_us| {
            states.commit(check, &of, number, now_us)
        };
        self.step(check, Some(id), commit, forget)
    }
}

/// Ends a call that nobody remembers.
fn ignore<K, T>(_: &Lanes<K>, _: &Key, _: &Result<T, Error>) {}

/// Ends a call after which units of the key may have come back: forgets its denials.
fn forget<K: KeyValue, T>(lanes: &Lanes<K>, key: &Key, _: &Result<T, Error>) {
    lanes.forget(key);
}

/// Returns the most bytes of a state that grows with its policy. 0 for all others.
fn longest(policy: &Policy) -> usize {
    match policy.algorithm() {
        Algorithm::SlidingLog => {
            let entries = usize::try_from(most_spent(policy)).unwrap_or(usize::MAX);
            entries.saturating_mul(1 + size_of::<f64>() + TAG_BYTES)
        }
        Algorithm::SlidingBuckets { buckets } => 6 * (usize::from(buckets) + 8),
        _ => 0,
    }
}

/// Returns the name that `write` ends.
fn name(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut text = b"{".to_vec();
    write(&mut text);
    text
}

impl<K> Clone for KeyValueStore<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

tollgate_core::debug_fields! { KeyValueStore<K>: .. }
