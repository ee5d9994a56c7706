//! The store that users hold: for each call of the trait, what needs no server, and what is sent.
//! Options are in `builder.rs`. The way to a server begins in `backend.rs`.

use std::{sync::Arc, time::Duration};

use redis::Cmd;
use smallvec::SmallVec;

use super::{
    backend::{Backend, Servers},
    dispatch::StoreConfig,
    housekeeping::Inner,
    lease::LeaseCall,
    protocol::{self, ENTRIES, PERMITS, Purpose, ScriptsOf},
    replicas,
    server::Server,
};
use tollgate_core::{
    Cost, Decision, Error, Key, PolicySet, Store,
    limiter::Entry,
    raw::{CheckParts, DecisionParts, PolicyParts, PolicySetParts, micros, runtime},
    reservation::{ReservationId, Settlement},
    store::{
        Check, CheckFuture, Deadline, ExceptionCall, ExceptionReply, ExceptionsInForce, KeptCheck,
        PermitGrant, PermitRequest, Publication, ReplicaCount, ReplicaGroup, RulesInForce,
        Spending, StoreFuture,
    },
};
use tollgate_remote::presence::Presence;

/// Stores state in Redis or Valkey, so that all replicas of a service spend from the same quota.
///
/// A script on the server makes each decision in one atomic step, by the server's own clock. All
/// checks of a process share one connection. A single check is sent at once. Checks that arrive
/// while others are under way are sent together, in one call. Clones share the connection.
///
/// A denial is remembered in the process for as long as it holds, at most 1 s, so a client that
/// keeps asking costs the server nothing. A refund, a reset or a raised quota in *another* process
/// may take effect that much later: see
/// [`deny_cache_cap`](super::RedisStoreBuilder::deny_cache_cap).
///
/// In a cluster, a check of [branches](Key::with_branch) in different slots fails with
/// [`ErrorKind::CrossSlot`](tollgate_core::ErrorKind::CrossSlot), and charges nothing:
/// [`Limiter::can_decide`](tollgate_core::Limiter::can_decide) tests this before.
///
/// ```no_run
/// # async fn run() -> Result<(), tollgate::Error> {
/// use tollgate::{Limiter, Policy, Quota, RedisStore};
///
/// let store = RedisStore::connect("redis://127.0.0.1/").await?;
/// let limiter = Limiter::new(store, Policy::token_bucket("api", Quota::per_second(10)));
/// assert!(limiter.check("acme").await?.is_allowed());
/// # Ok(()) }
/// ```
///
/// # Keys on the server
///
/// Every key expires by itself.
///
/// | key | holds |
/// |---|---|
/// | `prefix:{key}:policy:version` | the state of a policy for a key, or for one [branch](Key::with_branch) of a key |
/// | `prefix:{outermost level}>inner levels:policy:version` | the same, for a [nested](Key::child) key |
/// | `prefix:{key}:name:p1` | the permits of a [`Concurrency`](tollgate_core::permits::Concurrency) |
/// | `prefix:{replicas}:group` | the random names of the processes with the same [group](tollgate_core::store::ReplicaGroup) of limits |
/// | `prefix:{replicas}:enforced` | what each process [reports](tollgate_core::store::ReplicaReport) that it enforces |
/// | `prefix:{replicas}:limits`, `prefix:{replicas}:shares` | the limiters that are [published](tollgate_core::LimiterBuilder::published), and the shares that operators set |
///
/// # Counting replicas
///
/// While a limiter has [`Replicas::Counted`](tollgate_core::limiter::Replicas::Counted), the default, a
/// background task of each process writes its name about every two seconds, in one call for all
/// groups. A process that was silent for eight seconds is not counted any more. The task starts
/// when the limiter is built, or with the first check if the limiter is built outside a runtime.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

impl RedisStore {
    /// Waits until the server has answered. In a cluster: every server that has slots.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached, refuses the user, or does not answer within the
    /// [time for connecting](super::RedisStoreBuilder::connect_timeout).
    pub async fn ping(&self) -> Result<(), Error> {
        self.backend().ping().await
    }

    /// Returns whether checks are sent to the server. In a cluster: to every server that has slots.
    ///
    /// After three consecutive timeouts, or a failed connect, the circuit breaker opens. The
    /// [`Outage`](tollgate_core::Outage) of the limiter then decides all checks at once, until the server
    /// answers a background probe.
    ///
    /// A server that answers too late for the deadline of some limiters is available all the same:
    /// see [`ErrorKind::Distant`](tollgate_core::ErrorKind::Distant).
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.backend().is_available()
    }

    /// Gives back all units of [leased](tollgate_core::Policy::leased) policies that this process holds.
    ///
    /// Call this when the process is about to end and takes no more requests, so that other
    /// replicas can use the units at once. Without the call, the units count as used until they
    /// lapse, after one to two [generations](tollgate_core::Lease::generation). A later check leases units
    /// again.
    ///
    /// ```no_run
    /// # async fn serve(limiter: tollgate::Limiter) {}
    /// # async fn run() -> Result<(), tollgate::Error> {
    /// use tollgate::{Lease, Limiter, Policy, Quota, RedisStore};
    ///
    /// let store = RedisStore::connect("redis://127.0.0.1/").await?;
    /// let policy = Policy::token_bucket("api", Quota::per_second(1_000)).leased(Lease::new());
    /// let limiter = Limiter::new(store.clone(), policy);
    /// serve(limiter).await;
    /// store.release_leases().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// When the circuit breaker of a server is open, or a connection was lost. Units of other keys
    /// were returned all the same.
    pub async fn release_leases(&self) -> Result<(), Error> {
        self.backend()
            .release(self.backend().leased_units.holders())
            .await
    }

    pub(super) fn new(servers: Servers, config: &StoreConfig) -> Self {
        Self(Arc::new(Inner {
            backend: Backend::new(servers, config),
            presence: Presence::new(),
        }))
    }

    pub(super) fn backend(&self) -> &Backend {
        &self.0.backend
    }

    /// Makes a call over a copy of a check, unless no server is asked for it within the deadline.
    fn call<T, F>(
        &self,
        check: Check<'_>,
        deadline: Option<Deadline>,
        call: impl FnOnce(Arc<Inner>, KeptCheck) -> F,
    ) -> StoreFuture<T>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        match self
            .backend()
            .refusal_of(check.policies, check.key, deadline)
        {
            Some(refusal) => StoreFuture::ready(Err(refusal)),
            None => StoreFuture::pending(call(Arc::clone(&self.0), check.keep())),
        }
    }
}

impl Store for RedisStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        if let Some(blocked) = StoreFuture::if_blocked(check) {
            return blocked;
        }
        self.0.presence.serve(&self.0, check.policies.is_leased());
        let backend = self.backend();
        let hash = backend.hash(check.key);
        let mut deny_epoch = None;
        if let Some(cache) = &backend.deny_cache {
            if let Some(denied) = cache.look_up(&check, &hash) {
                return denied;
            }
            deny_epoch = Some(cache.epoch(&check, &hash));
        }
        let mut lease_call = None;
        if check.policies.is_leased() {
            match backend.leased_units.spend(&check, hash.whole) {
                Ok(decided) => return decided,
                Err(at_us) => lease_call = Some(LeaseCall::new(&backend.leased_units, at_us)),
            }
        }
        match backend.refusal_of(check.policies, check.key, check.deadline) {
            Some(refusal) => StoreFuture::ready(Err(refusal)),
            None => backend.check(check, hash, deny_epoch, lease_call),
        }
    }

    fn look(&self, check: Check<'_>) -> CheckFuture {
        if let Some(blocked) = StoreFuture::if_blocked(check) {
            return blocked;
        }
        let (backend, is_leased) = (self.backend(), check.policies.is_leased());
        // A peek of leased policies reports what was spent of their units.
        if is_leased && check.cost == Cost::ZERO {
            return self.check(check);
        }
        // What this process holds is spent at the server, and fits here.
        let is_held = is_leased
            && backend
                .leased_units
                .hold(&check, backend.hash(check.key).whole);
        let check = if is_held { check.without_cost() } else { check };
        let asked_us = Decision::here_us(check.deadline.map_or_else(runtime::now, Deadline::start));
        self.call(check, check.deadline, async move |inner, kept| {
            let (check, charge) = (kept.check(), kept.check().charge());
            let policies = check.policies;
            let script = policies.shape().script(Purpose::Look, charge.is_capped());
            let reply = inner.backend.run_over(check, script, |server, command| {
                command.arg(&*protocol::pack(server.now(), charge, policies));
                if policies.is_tagged() {
                    command.arg("");
                }
            });
            protocol::decision(policies, charge, asked_us, &reply.await?)
        })
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        if let Some(blocked) = StoreFuture::if_blocked(check) {
            return blocked;
        }
        let mut spent_us = decision
            .map(DecisionParts::at_us)
            .filter(|&at_us| at_us > 0);
        let mut charge = check.charge().to_owned();
        if let Some(at_us) = spent_us.filter(|_| decision.is_some_and(Decision::is_leased)) {
            let backend = self.backend();
            let hash = backend.hash(check.key).whole;
            let (rest, charged_us) = backend.leased_units.refund(&check, hash, at_us);
            backend.forget(check.key);
            if rest.borrow().cost == Cost::ZERO {
                return StoreFuture::ready(Ok(()));
            }
            (charge, spent_us) = (rest, Some(charged_us));
        }
        let (check, policies) = (check.with_charge(&charge), check.policies);
        let ahead = |at| decision.and_then(|decision| decision.ahead_of(at));
        // A refund to the end of a debt has the script of a check under ceilings.
        let is_capped = decision.is_some_and(|decision| decision.charge().is_capped());
        let ahead: SmallVec<[_; 1]> = if is_capped || policies.is_queued() {
            (0..policies.len()).map(ahead).collect()
        } else {
            SmallVec::new()
        };
        // A time below zero counts back from the time of the refund.
        let since = decision
            .and_then(|decision| decision.age_us(runtime::now()))
            .unwrap_or(0);
        self.call(check, None, async move |inner, kept| {
            let (check, charge) = (kept.check(), kept.check().charge());
            let policies = check.policies;
            let script = policies.shape().script(Purpose::Refund, is_capped);
            let spent = spent_us.map_or(-1.0 - since as f64, |at_us| at_us as f64);
            let ahead = |at: usize| ahead.get(at).copied().flatten();
            let pack = |server: &Server, command: &mut Cmd| {
                let now = server.now();
                command.arg(&*protocol::pack_refund(
                    now, charge, spent, policies, is_capped, ahead,
                ));
            };
            let reply = inner.backend.run_over(check, script, pack).await;
            inner.backend.forget(check.key);
            reply.map(drop)
        })
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        let mut policies = check.policies.iter();
        if !policies.any(|policy| policy.is_own(check.key)) {
            return StoreFuture::ready(Ok(()));
        }
        self.call(check, None, async move |inner, kept| {
            let (check, backend) = (kept.check(), &inner.backend);
            let delete = |server: &Server, _| {
                let mut command = redis::cmd("DEL");
                server.add_own_keys(check.policies, check.key, &mut command);
                command.into()
            };
            let branch = check.policies.first_branch(check.key);
            let reply = backend.call(branch, check.deadline, delete).await;
            backend.forget(check.key);
            let hash = backend.hash(check.key).whole;
            backend.leased_units.clear(check.key, hash);
            reply.map(drop)
        })
    }

    fn entries(&self, check: Check<'_>, limit: usize) -> StoreFuture<Vec<Entry>> {
        let deadline = check.deadline;
        let log = match check.policies.log() {
            Ok(log) => log,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        if limit == 0 {
            return StoreFuture::ready(Ok(Vec::new()));
        }
        // A lowered quota leaves more entries than its amount, and so does a debt. The server takes
        // an index of 63 bits.
        let last = (limit - 1).min(i64::MAX as usize);
        let key = log.branch_of(check.key);
        if let Some(refusal) = self.backend().refusal(key, deadline) {
            return StoreFuture::ready(Err(refusal));
        }
        let (inner, alone, key) = (
            Arc::clone(&self.0),
            PolicySet::from(log.clone()),
            key.clone(),
        );
        let period_us = micros(log.quota().period());
        StoreFuture::pending(async move {
            let fill = |server: &Server, command: &mut Cmd| {
                server.shared.bound().admit_entries(limit);
                server.add_keys([(&alone, &key)], command);
                // Readable numbers: this script is called rarely, and by hand.
                replicas::add_time(server, command);
                command.arg(last);
            };
            let keys = alone.shape().keys();
            let reply = inner.backend.run(&key, deadline, &ENTRIES, keys, fill);
            protocol::entries(period_us, reply.await?)
        })
    }

    fn permits(&self, request: PermitRequest<'_>) -> StoreFuture<PermitGrant> {
        if let Some(refusal) = self.backend().refusal(request.key, request.deadline) {
            return StoreFuture::ready(Err(refusal));
        }
        let (inner, kept) = (Arc::clone(&self.0), request.keep());
        StoreFuture::pending(async move {
            let request = kept.request();
            let (key, deadline) = (request.key, request.deadline);
            let fill = |server: &Server, command: &mut Cmd| {
                server.add_permit_key(request.policy.name(), key, command);
                command
                    .arg(&protocol::pack_permits(server.now(), &request))
                    .arg(&request.replica.to_le_bytes());
            };
            let reply = inner.backend.run(key, deadline, &PERMITS, 1, fill);
            protocol::permit_grant(&reply.await?)
        })
    }

    fn reserve(&self, check: Check<'_>, id: &ReservationId, time_to_live: Duration) -> CheckFuture {
        if let Some(blocked) = StoreFuture::if_blocked(check) {
            return blocked;
        }
        let (id, life_us) = (id.clone(), micros(time_to_live));
        self.call(check, check.deadline, async move |inner, kept| {
            let (check, charge) = (kept.check(), kept.check().charge());
            let purpose = match charge.cascade() {
                Some(_) => Purpose::Cascade,
                None => Purpose::Reserve,
            };
            let script = check.policies.shape().script(purpose, charge.is_capped());
            let reply = inner.backend.run_held(check, &id, script, life_us).await?;
            protocol::reserved(check.policies, charge, &reply)
        })
    }

    fn commit(&self, check: Check<'_>, id: &ReservationId) -> StoreFuture<Settlement> {
        if let Some(blocked) = StoreFuture::if_blocked(check) {
            return blocked;
        }
        let id = id.clone();
        self.call(check, None, async move |inner, kept| {
            let check = kept.check();
            let script = check.policies.shape().script(Purpose::Commit, false);
            // The number distinguishes a call that is sent again from another commit.
            let number = check.number();
            let reply = inner.backend.run_held(check, &id, script, number).await;
            inner.backend.forget(check.key);
            protocol::settlement(&reply?)
        })
    }

    fn leases(&self) -> bool {
        true
    }

    fn can_decide(&self, policies: &PolicySet, key: &Key) -> bool {
        self.backend().takes(policies, key).is_ok()
    }

    fn replicas(&self, group: ReplicaGroup) -> Option<ReplicaCount> {
        Some(self.0.presence.count(&self.0, group))
    }

    fn publish(&self, limits: &Publication) {
        self.0.presence.publish(&self.0, limits);
    }

    fn follow_exceptions(&self, exceptions: &ExceptionsInForce) {
        self.0.presence.follow_exceptions(&self.0, exceptions);
    }

    fn exceptions(&self, call: ExceptionCall) -> StoreFuture<ExceptionReply> {
        let inner = Arc::clone(&self.0);
        StoreFuture::pending(async move {
            let reply = replicas::change_exceptions(&inner.backend, &call).await?;
            inner.presence.refresh(&inner);
            Ok(reply)
        })
    }

    fn publish_rules(&self, rules: &RulesInForce) {
        self.0.presence.publish_rules(&self.0, rules);
    }

    fn exchange(&self, group: ReplicaGroup, spending: &Spending) {
        self.0.presence.exchange(&self.0, group, spending);
    }
}

tollgate_core::debug_fields! {
    RedisStore: prefix = .backend().prefix, servers = .backend().servers, ..
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Grant, Stamp};
    use tollgate_core::{Lease, MemoryStore, Policy, Quota, store::Clock};

    /// Returns the decision of the server, which is a store in the process here.
    fn decide(server: &MemoryStore, check: Check<'_>) -> Decision {
        let answer = server.check(check).into_ready().expect("at once");
        answer.expect("a decision")
    }

    #[test]
    fn units_that_are_held_again_end_a_remembered_denial() {
        // Nobody listens there.
        let store = RedisStore::builder("redis://127.0.0.1:1/")
            .deny_cache_cap(Duration::from_secs(3_600))
            .build()
            .expect("a store");
        let policy = Policy::fixed_window("api", Quota::per_day(800)).leased(Lease::new());
        let (policies, key) = (PolicySet::from(policy), Key::new("acme"));
        let check = Check::new(&policies, &key, Cost::ONE);
        let server = MemoryStore::builder().clock(Clock::manual(1)).build();

        let (backend, hash) = (store.backend(), store.backend().hash(&key));
        let sent_us = backend.leased_units.spend(&check, hash.whole);
        let sent_us = sent_us.expect_err("nothing is held yet");
        let decision = decide(&server, check);
        let grant = Grant {
            stamps: [Stamp {
                birth: 1,
                generation: 0,
            }]
            .into_iter()
            .collect(),
            units: 1,
            // Longer than any machine stands still.
            life_us: 3_600_000_000,
        };
        let call = LeaseCall::new(&backend.leased_units, sent_us);
        call.answered(&key, hash.whole, call.now_us(), &decision, Some(grant));
        let ask = || {
            let answer = store.check(check).into_ready();
            answer.expect("no call").expect("a decision")
        };
        let leased = ask();
        assert!(leased.is_leased());

        let _ = decide(&server, Check::new(&policies, &key, Cost::new(799)));
        let denial = decide(&server, check);
        let cache = backend.deny_cache.as_ref().expect("a cache");
        let epoch = cache.epoch(&check, &hash);
        cache.remember(&key, hash.whole, runtime::now(), epoch, &denial);
        assert!(ask().is_remembered());

        let refunded = store.refund(check, Some(&leased)).into_ready();
        refunded.expect("no call").expect("a refund");
        assert!(ask().is_leased());
    }
}
