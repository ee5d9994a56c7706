use std::{fmt, sync::Arc};

use foldhash::fast::RandomState;

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
use crate::{Check, CheckFuture, Decision, Entry, Error, Key, PolicySet, ReplicaCount, Store, StoreFuture};

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
/// [`ErrorKind::CrossSlot`](crate::ErrorKind::CrossSlot), and charges nothing. [`Limiter::can_decide`](crate::Limiter::can_decide)
/// tells it before.
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

    #[inline]
    fn hash(&self, key: &Key) -> KeyHash {
        KeyHash::of(key, &self.hasher)
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
        if let Err(refusal) = inner.backend.takes(check.policies, check.key) {
            return StoreFuture::ready(Err(refusal));
        }
        match inner.backend.refusal_within(check.policies.first_branch(check.key), check.deadline) {
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
        let spent_us = decision.map(Decision::at_us).filter(|&at_us| at_us > 0);
        StoreFuture::pending(async move {
            let (script, keys) = (policies.shape().refund(), policies.len());
            let reply = inner.backend.run(policies.first_branch(&key), script, keys, |server, command| {
                server.add_keys([(&policies, &key)], command);
                let spent = spent_us.map_or(-1.0, |at_us| at_us as f64);
                command.arg(&*protocol::pack_refund(server.now(), charge.borrow(), spent, &policies));
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
