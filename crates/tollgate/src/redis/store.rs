use std::{fmt, sync::Arc, time::Duration};

use foldhash::fast::RandomState;
use redis::Value;
use smallvec::SmallVec;

#[cfg(feature = "metrics")]
use super::sampler::{self, Sampled, Sampler};
use super::{
    backend::Backend,
    deny_cache::{DenyCache, KeyHash},
    dispatch::CheckRequest,
    protocol::{self, Script},
    replicas::{self, Counts, ReplicaCounter},
    server::Server,
};
use crate::{
    Check, CheckFuture, Decision, Entry, Error, ErrorKind, Key, PermitGrant, PermitRequest, PolicySet, ReplicaCount,
    ReservationId, Settlement, Store, StoreFuture, clock::micros, cost::ChargeRef, quota::MAX_EXACT,
};

/// Stores state in Redis or Valkey, so that all replicas of a service spend from the same quota.
///
/// One decision is one atomic step of a script over keys of one slot, on the server's own clock. All checks of a process
/// share one connection. A single check leaves at once. Checks that come while others are under way are gathered, and
/// leave together in one call. A clone shares the connection.
///
/// A denial is remembered in the process for as long as it holds, at most 1 s, so that a client that keeps asking costs
/// the server nothing. A refund, a reset or a raised quota in *another* process may be seen that much later: see
/// [`deny_cache_cap`](super::RedisStoreBuilder::deny_cache_cap).
///
/// States are stored under `prefix:{key}:policy:version`, those of a [nested](Key::child) key under
/// `prefix:{outermost level}>inner levels:policy:version`. The states of a [branch](Key::beside) are stored as those of the
/// branch's key alone. Every state expires by itself.
///
/// In a cluster, a check of branches in different slots fails with
/// [`ErrorKind::CrossSlot`](crate::ErrorKind::CrossSlot), and charges nothing.
/// [`Limiter::can_decide`](crate::Limiter::can_decide) tells it before.
///
/// Permits are stored under `prefix:{key}:name:p1`, see [`Concurrency`](crate::Concurrency).
///
/// The processes of a prefix count themselves while a limiter has [`Replicas::Counted`](crate::Replicas::Counted), which
/// is the default. Each process writes its random name into one sorted set, `prefix:{replicas}`, every two seconds. A
/// process that was silent for eight seconds is not counted any more. The task that writes is started when the limiter
/// is built, or with its first check if that is the first use of a runtime.
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
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    prefix: String,
    hasher: RandomState,
    backend: Backend,
    deny_cache: Option<Arc<DenyCache>>,
    counter: ReplicaCounter,
    #[cfg(feature = "metrics")]
    sampler: Sampler,
}

impl RedisStore {
    /// Waits until the server has answered. In a cluster: every server that has slots.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, refuses the user, or does not answer within the
    /// [time for connecting](super::RedisStoreBuilder::connect_timeout).
    pub async fn ping(&self) -> Result<(), Error> {
        self.0.backend.ping().await
    }

    /// Returns whether checks are sent to the server. In a cluster: to every server that has slots.
    ///
    /// After three consecutive timeouts, or a failed connect, the circuit breaker opens. Checks are then decided by the
    /// [`Outage`](crate::Outage) of the limiter at once, until the server answers a background probe.
    ///
    /// A server that answers, and is too far for the deadline of some limiters, is available: see
    /// [`ErrorKind::Distant`](crate::ErrorKind::Distant).
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.0.backend.is_available()
    }

    pub(super) fn new(backend: Backend, prefix: String, deny_cache: Option<Arc<DenyCache>>) -> Self {
        Self(Arc::new(Inner {
            prefix,
            hasher: RandomState::default(),
            backend,
            deny_cache,
            counter: ReplicaCounter::new(),
            #[cfg(feature = "metrics")]
            sampler: Sampler::new(),
        }))
    }

    pub(super) fn backend(&self) -> &Backend {
        &self.0.backend
    }
}

impl Inner {
    /// Returns the error of a call over the states of these policies, while their server is not asked or when they lie in
    /// several slots.
    fn refusal(&self, policies: &PolicySet, key: &Key) -> Option<Error> {
        self.backend.takes(policies, key).err().or_else(|| self.backend.refusal(policies.first_branch(key)))
    }

    /// Returns the error of a check that is not sent within its deadline, or whose states lie in several slots.
    #[inline]
    fn refusal_within(&self, check: Check<'_>) -> Option<Error> {
        if let Err(refusal) = self.backend.takes(check.policies, check.key) {
            return Some(refusal);
        }
        self.backend.refusal_within(check.policies.first_branch(check.key), check.deadline)
    }

    #[inline]
    fn hash(&self, key: &Key) -> KeyHash {
        KeyHash::of(key, &self.hasher)
    }

    /// Runs a script on the record of a reservation.
    ///
    /// The call is sent a second time when the connection broke: the record makes sure that it counts once.
    async fn run_held(
        &self,
        key: &Key,
        id: &ReservationId,
        policies: &PolicySet,
        script: &Script,
        number: u64,
        charge: ChargeRef<'_>,
    ) -> Result<Value, Error> {
        let call = || {
            self.backend.run(policies.first_branch(key), script, policies.len() + 1, |server, command| {
                server.add_record_key(policies, key, id, command);
                server.add_keys([(policies, key)], command);
                command.arg(&*protocol::pack_held(server.now(), number, charge, policies));
                command.arg(&*protocol::marks(policies));
            })
        };
        match call().await {
            Err(error) if error.kind() == ErrorKind::ConnectionLost => call().await,
            outcome => outcome,
        }
    }

    /// Forgets remembered denials of a key, because units may have come back.
    fn forget(&self, key: &Key) {
        if let Some(cache) = &self.deny_cache {
            cache.forget(key, &self.hasher);
        }
    }
}

impl Counts for Inner {
    fn backend(&self) -> &Backend {
        &self.backend
    }

    fn counter(&self) -> &ReplicaCounter {
        &self.counter
    }
}

#[cfg(feature = "metrics")]
impl Sampled for Inner {
    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn sampler(&self) -> &Sampler {
        &self.sampler
    }
}

impl Store for RedisStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let inner = &*self.0;
        if inner.counter.needs_task() {
            replicas::start(&self.0);
        }
        #[cfg(feature = "metrics")]
        if inner.sampler.needs_task() {
            sampler::start(&self.0);
        }
        let hash = inner.hash(check.key);
        let mut deny_epoch = None;
        if let Some(cache) = &inner.deny_cache {
            if let Some(denied) = cache.look_up(&check, &hash) {
                return denied;
            }
            deny_epoch = Some(cache.epoch(&check, &hash));
        }
        match inner.refusal_within(check) {
            Some(refusal) => StoreFuture::ready(Err(refusal)),
            None => inner.backend.check(Arc::new(CheckRequest::new(check, hash, deny_epoch))),
        }
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        if let Some(refusal) = self.0.refusal(check.policies, check.key) {
            return StoreFuture::ready(Err(refusal));
        }
        let inner = Arc::clone(&self.0);
        let (policies, key, charge) = (check.policies.clone(), check.key.clone(), check.charge().to_owned());
        let end = |at| decision.and_then(|decision| decision.end_of(at));
        let ends: SmallVec<[_; 1]> =
            if policies.is_queued() { (0..policies.len()).map(end).collect() } else { SmallVec::new() };
        let spent_us = decision.map(Decision::at_us).filter(|&at_us| at_us > 0);
        StoreFuture::pending(async move {
            let (script, keys) = (policies.shape().refund(), policies.len());
            let reply = inner.backend.run(policies.first_branch(&key), script, keys, |server, command| {
                server.add_keys([(&policies, &key)], command);
                let spent = spent_us.map_or(-1.0, |at_us| at_us as f64);
                let end = |at: usize| ends.get(at).copied().flatten();
                command.arg(&*protocol::pack_refund(server.now(), charge.borrow(), spent, &policies, end));
            });
            let reply = reply.await;
            inner.forget(&key);
            reply.map(drop)
        })
    }

    fn reset(&self, policies: &PolicySet, key: &Key) -> StoreFuture<()> {
        if !policies.iter().any(|policy| policy.is_own(key)) {
            return StoreFuture::ready(Ok(()));
        }
        if let Some(refusal) = self.0.refusal(policies, key) {
            return StoreFuture::ready(Err(refusal));
        }
        let (inner, policies, key) = (Arc::clone(&self.0), policies.clone(), key.clone());
        StoreFuture::pending(async move {
            let keys = |server: &Server, command: &mut redis::Cmd| server.add_own_keys(&policies, &key, command);
            let reply = inner.backend.query(policies.first_branch(&key), "DEL", keys).await;
            inner.forget(&key);
            reply.map(drop)
        })
    }

    fn entries(&self, policies: &PolicySet, key: &Key, limit: usize) -> StoreFuture<Vec<Entry>> {
        let log = match policies.log() {
            Ok(log) => log,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        // A log never holds more entries than its amount.
        let limit = limit.min(log.quota().amount() as usize);
        if limit == 0 {
            return StoreFuture::ready(Ok(Vec::new()));
        }
        let key = log.branch_of(key);
        if let Some(refusal) = self.0.backend.refusal(key) {
            return StoreFuture::ready(Err(refusal));
        }
        let inner = Arc::clone(&self.0);
        let (alone, key, period_us) = (PolicySet::from(log.clone()), key.clone(), log.quota().period_us());
        StoreFuture::pending(async move {
            let reply = inner.backend.run(&key, Script::entries(), 1, |server, command| {
                server.add_keys([(&alone, &key)], command);
                // Readable numbers: this script is called rarely, and by hand.
                let now = server.now();
                command.arg(if now < 0.0 { String::new() } else { format!("{now}") }).arg(limit - 1);
            });
            protocol::entries(period_us, reply.await?)
        })
    }

    fn permits(&self, request: PermitRequest<'_>) -> StoreFuture<PermitGrant> {
        let inner = &self.0;
        if let Some(refusal) = inner.backend.refusal_within(request.key, request.deadline) {
            return StoreFuture::ready(Err(refusal));
        }
        let (inner, policy, key) = (Arc::clone(inner), request.policy.clone(), request.key.clone());
        let (deadline, replica) = (request.deadline, request.replica.to_le_bytes());
        let packed = protocol::pack_permits(-1.0, &request);
        StoreFuture::pending(async move {
            let reply = inner.backend.run_until(&key, Script::permits(), 1, deadline, |server, command| {
                server.add_permit_key(policy.name(), &key, command);
                // The first number is the time. A server that forbids its clock is told the time of the process.
                let mut packed = packed;
                packed[..8].copy_from_slice(&server.now().to_le_bytes());
                command.arg(&packed).arg(&replica);
            });
            protocol::permit_grant(&reply.await?)
        })
    }

    fn reserve(&self, check: Check<'_>, id: &ReservationId, time_to_live: Duration) -> CheckFuture {
        if let Some(refusal) = self.0.refusal_within(check) {
            return StoreFuture::ready(Err(refusal));
        }
        let (inner, life_us) = (Arc::clone(&self.0), micros(time_to_live));
        let (policies, key, charge, id) =
            (check.policies.clone(), check.key.clone(), check.charge().to_owned(), id.clone());
        StoreFuture::pending(async move {
            let script = policies.shape().reserve();
            let reply = inner.run_held(&key, &id, &policies, script, life_us, charge.borrow()).await?;
            protocol::reserved(&policies, &reply)
        })
    }

    fn commit(&self, check: Check<'_>, id: &ReservationId) -> StoreFuture<Settlement> {
        if let Some(refusal) = self.0.refusal(check.policies, check.key) {
            return StoreFuture::ready(Err(refusal));
        }
        let inner = Arc::clone(&self.0);
        let (policies, key, charge, id) =
            (check.policies.clone(), check.key.clone(), check.charge().to_owned(), id.clone());
        StoreFuture::pending(async move {
            let script = policies.shape().commit();
            // The number tells a call that is sent again from another commit.
            let number = fastrand::u64(1..MAX_EXACT);
            let reply = inner.run_held(&key, &id, &policies, script, number, charge.borrow()).await;
            inner.forget(&key);
            protocol::settlement(&reply?)
        })
    }

    fn can_decide(&self, policies: &PolicySet, key: &Key) -> bool {
        self.0.backend.takes(policies, key).is_ok()
    }

    fn keeps_deadline(&self) -> bool {
        true
    }

    fn replicas(&self) -> Option<ReplicaCount> {
        let count = self.0.counter.count();
        replicas::start(&self.0);
        Some(count)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.0.prefix)
            .field("backend", &self.0.backend)
            .finish_non_exhaustive()
    }
}
