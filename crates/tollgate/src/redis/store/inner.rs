use std::sync::Arc;

use foldhash::fast::RandomState;
use futures_util::{StreamExt, stream};
use redis::Value;

#[cfg(feature = "metrics")]
use crate::redis::sampler::{Sampled, Sampler};
use crate::{
    Check, CheckFuture, Cost, Error, ErrorKind, Key, PolicySet, ReservationId,
    redis::{
        backend::Backend,
        deny_cache::{DenyCache, KeyHash},
        dispatch::CheckRequest,
        pots::{Holder, Pots, Trip},
        protocol::{self, Script},
        replicas::{Counts, ReplicaCounter},
    },
};

/// The most keys of which units are returned at the same time.
const RELEASES_AT_ONCE: usize = 256;

/// Holds what all clones of a store share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) prefix: String,
    pub(super) hasher: RandomState,
    pub(super) backend: Backend,
    pub(super) deny_cache: Option<Arc<DenyCache>>,
    pub(super) pots: Arc<Pots>,
    pub(super) counter: ReplicaCounter,
    #[cfg(feature = "metrics")]
    pub(super) sampler: Sampler,
}

impl Inner {
    /// Returns the error of a call over the states of these policies, while their server is not asked or when they lie in
    /// several slots.
    pub(super) fn refusal(&self, policies: &PolicySet, key: &Key) -> Option<Error> {
        self.backend.takes(policies, key).err().or_else(|| self.backend.refusal(policies.first_branch(key)))
    }

    /// Returns the error of a check that is not sent within its deadline, or whose states lie in several slots.
    #[inline]
    pub(super) fn refusal_within(&self, check: Check<'_>) -> Option<Error> {
        if let Err(refusal) = self.backend.takes(check.policies, check.key) {
            return Some(refusal);
        }
        self.backend.refusal_within(check.policies.first_branch(check.key), check.deadline)
    }

    #[inline]
    pub(super) fn hash(&self, key: &Key) -> KeyHash {
        KeyHash::of(key, &self.hasher)
    }

    /// Runs a script on the record of a reservation.
    ///
    /// The call is sent a second time when the connection broke: the record makes sure that it counts once.
    pub(super) async fn run_held(
        &self,
        check: Check<'_>,
        id: &ReservationId,
        script: &Script,
        number: u64,
    ) -> Result<Value, Error> {
        let Check { policies, key, deadline, .. } = check;
        let (branch, keys) = (policies.first_branch(key), policies.shape().keys() + 1);
        let call = || {
            self.backend.run(branch, deadline, script, keys, |server, command| {
                server.add_record_key(policies, key, id, command);
                server.add_keys([(policies, key)], command);
                command.arg(&*protocol::pack_held(server.now(), number, check.charge(), policies));
            })
        };
        match call().await {
            Err(error) if error.kind() == ErrorKind::ConnectionLost => call().await,
            outcome => outcome,
        }
    }

    /// Returns the units of these keys to the server, each by a check of no units. Fails with the first error, after all
    /// keys were tried.
    pub(super) async fn release(&self, holders: Vec<Holder>) -> Result<(), Error> {
        let call = |holder: Holder| {
            if let Some(refusal) = self.refusal(&holder.policies, &holder.key) {
                return CheckFuture::ready(Err(refusal));
            }
            let check = Check::new(&holder.policies, &holder.key, Cost::ZERO);
            let request = CheckRequest::new(check, self.hash(&holder.key), None);
            self.backend.check(Arc::new(request.with_trip(Some(Trip::to_release(&self.pots)))))
        };
        let calls = stream::iter(holders).map(call).buffer_unordered(RELEASES_AT_ONCE);
        calls.fold(Ok(()), async |first: Result<(), Error>, outcome| first.and(outcome.map(drop))).await
    }

    /// Forgets remembered denials of a key, because units may have come back.
    pub(super) fn forget(&self, key: &Key) {
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

    fn pots(&self) -> &Pots {
        &self.pots
    }
}
