//! One server or a cluster behind one face: whatever a store sends goes through here to the server
//! of its key.
//! What is sent is decided in `store.rs`; queues and connections are in `dispatch/` and `connect/`.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use foldhash::fast::RandomState;
use futures_util::{StreamExt, stream};
use redis::{Cmd, Value};

use super::{
    cluster::Cluster,
    deny_cache::{DenyCache, Epoch, KeyHash},
    dispatch::{CheckRequest, PendingCheck, Sender, StoreConfig},
    lease::{LeaseCall, LeaseHolder, LeasedUnits},
    protocol::{
        self, Script, ScriptsOf,
        hash_slot::{self, unused_key},
    },
    server::{Call, Server},
};
use tollgate_core::{
    Cost, Decision, Error, ErrorKind, Key, PolicySet,
    raw::{CheckParts, KeyParts, PolicySetParts, runtime},
    reservation::ReservationId,
    store::{Check, CheckFuture, Clock, Deadline, StoreFuture},
};

/// The servers of a store, and what the process knows of the keys on them.
pub(super) struct Backend {
    /// The first part of every key.
    pub(super) prefix: String,
    pub(super) servers: Servers,
    hasher: RandomState,
    /// The clock that decides instead of the server's.
    clock: Option<Clock>,
    pub(super) deny_cache: Option<Arc<DenyCache>>,
    pub(super) leased_units: Arc<LeasedUnits>,
}

/// One server, or a cluster.
#[derive(Debug)]
pub(super) enum Servers {
    One(Arc<Sender>),
    Cluster(Arc<Cluster>),
}

/// A check of a store on one server, which has no other to go to.
struct OneServer(PendingCheck);

impl Future for OneServer {
    type Output = Result<Decision, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map_err(Error::from)
    }
}

/// The most keys whose units are returned at the same time.
const RELEASES_AT_ONCE: usize = 256;

impl Backend {
    pub(super) fn new(servers: Servers, config: &StoreConfig) -> Self {
        Self {
            prefix: config.server.prefix.clone(),
            servers,
            hasher: RandomState::default(),
            clock: config.server.clock.clone(),
            deny_cache: config.deny_cache.clone(),
            leased_units: Arc::clone(&config.leased_units),
        }
    }

    #[inline]
    pub(super) fn hash(&self, key: &Key) -> KeyHash {
        KeyHash::of(key, &self.hasher)
    }

    /// Forgets remembered denials of a key, because units may have come back.
    pub(super) fn forget(&self, key: &Key) {
        if let Some(cache) = &self.deny_cache {
            cache.forget(key, &self.hasher);
        }
    }

    /// Returns the error of a call over the states of these policies that is not sent: the states
    /// lie in several slots, or their server is not asked, or not within this deadline.
    #[inline]
    pub(super) fn refusal_of(
        &self,
        policies: &PolicySet,
        key: &Key,
        deadline: Option<Deadline>,
    ) -> Option<Error> {
        if let Err(refusal) = self.takes(policies, key) {
            return Some(refusal);
        }
        self.refusal(policies.first_branch(key), deadline)
    }

    /// Returns the error of a call for this key that is not sent: its server is not asked, or not
    /// within this deadline. The key has no branches, here and below.
    #[inline]
    pub(super) fn refusal(&self, key: &Key, deadline: Option<Deadline>) -> Option<Error> {
        match &self.servers {
            Servers::One(sender) => sender.server.refusal(deadline),
            Servers::Cluster(cluster) => cluster.refusal(key, deadline),
        }
    }

    /// Refuses a key whose branches lie in different slots of a cluster, so that no server can
    /// decide over all of them.
    #[inline]
    pub(super) fn takes(&self, policies: &PolicySet, key: &Key) -> Result<(), Error> {
        match &self.servers {
            Servers::Cluster(_) if key.has_branches() => hash_slot::share_slot(policies, key),
            _ => Ok(()),
        }
    }

    /// Returns whether checks are sent to all servers.
    pub(super) fn is_available(&self) -> bool {
        match &self.servers {
            Servers::One(sender) => sender.server.refusal(None).is_none(),
            Servers::Cluster(cluster) => cluster.is_available(),
        }
    }

    /// Decides a check. A check of leased policies is a call of the leased units.
    #[inline]
    pub(super) fn check(
        &self,
        check: Check<'_>,
        hash: KeyHash,
        deny_epoch: Option<Epoch>,
        lease_call: Option<LeaseCall>,
    ) -> CheckFuture {
        let clock_us = self.clock.as_ref().map(Clock::now_us);
        let request = CheckRequest::new(check, hash, deny_epoch, clock_us, lease_call);
        let kept = request.kept();
        match &self.servers {
            Servers::One(sender) => {
                StoreFuture::keeping(kept, OneServer(PendingCheck::new(sender, request)))
            }
            Servers::Cluster(cluster) => {
                StoreFuture::keeping(kept, Arc::clone(cluster).check(request))
            }
        }
    }

    /// Returns the units of these keys to the server, each by a check of no units. Fails with the
    /// first error, after all keys were tried.
    pub(super) async fn release(&self, holders: Vec<LeaseHolder>) -> Result<(), Error> {
        let call = |holder: LeaseHolder| {
            if let Some(refusal) = self.refusal_of(&holder.policies, &holder.key, None) {
                return CheckFuture::ready(Err(refusal));
            }
            let check = Check::new(&holder.policies, &holder.key, Cost::ZERO);
            self.check(
                check,
                self.hash(&holder.key),
                None,
                Some(LeaseCall::to_release(&self.leased_units)),
            )
        };
        let calls = stream::iter(holders)
            .map(call)
            .buffer_unordered(RELEASES_AT_ONCE);
        calls
            .fold(Ok(()), async |first: Result<(), Error>, outcome| {
                first.and(outcome.map(drop))
            })
            .await
    }

    /// Makes a call at the server of the key, for a caller that waits until the deadline. `write`
    /// writes it, by the body of its script or not.
    pub(super) async fn call(
        &self,
        key: &Key,
        deadline: Option<Deadline>,
        write: impl Fn(&Server, bool) -> Call,
    ) -> Result<Value, Error> {
        match &self.servers {
            Servers::One(sender) => Ok(sender
                .server
                .call(|by_body| write(&sender.server, by_body), deadline)
                .await?),
            Servers::Cluster(cluster) => cluster.call(key, deadline, write).await,
        }
    }

    /// Runs a script at the server of the key. `fill` adds the keys and the arguments.
    pub(super) async fn run(
        &self,
        key: &Key,
        deadline: Option<Deadline>,
        script: &Script,
        keys: usize,
        fill: impl Fn(&Server, &mut Cmd),
    ) -> Result<Value, Error> {
        let write = |server: &Server, by_body| {
            Call::of(script, by_body, keys, |command| fill(server, command))
        };
        self.call(key, deadline, write).await
    }

    /// Runs a script over the states of a check. `pack` writes the arguments behind their keys.
    pub(super) async fn run_over(
        &self,
        check: Check<'_>,
        script: &Script,
        pack: impl Fn(&Server, &mut Cmd),
    ) -> Result<Value, Error> {
        let (policies, key) = (check.policies, check.key);
        let (branch, keys) = (policies.first_branch(key), policies.shape().keys());
        let fill = |server: &Server, command: &mut Cmd| {
            server.add_keys([(policies, key)], command);
            pack(server, command);
        };
        self.run(branch, check.deadline, script, keys, fill).await
    }

    /// Runs a script on the record of a reservation.
    ///
    /// The call is sent a second time when the connection broke: the record makes sure that it
    /// counts once.
    pub(super) async fn run_held(
        &self,
        check: Check<'_>,
        id: &ReservationId,
        script: &Script,
        number: u64,
    ) -> Result<Value, Error> {
        let (policies, key, charge) = (check.policies, check.key, check.charge());
        let (branch, keys) = (policies.first_branch(key), policies.shape().keys() + 1);
        let fill = |server: &Server, command: &mut Cmd| {
            server.add_record_key(policies, key, id, command);
            server.add_keys([(policies, key)], command);
            let now = server.now();
            command.arg(&*protocol::pack_held(now, number, charge, policies));
        };
        let call = || self.run(branch, check.deadline, script, keys, fill);
        match call().await {
            Err(error) if error.kind() == ErrorKind::ConnectionLost => call().await,
            outcome => outcome,
        }
    }

    /// Waits until every server has answered.
    pub(super) async fn ping(&self) -> Result<(), Error> {
        let ping = redis::cmd("PING");
        for (server, _) in self.servers().await? {
            server.query_in_time(&ping).await?;
        }
        Ok(())
    }

    /// Lets every server make one check.
    pub(super) async fn prove(&self) -> Result<(), Error> {
        for (server, key) in self.servers().await? {
            server.prove(&key).await?;
        }
        Ok(())
    }

    /// Returns the servers that checks are sent to now. Asks no server.
    pub(super) fn known_servers(&self) -> Vec<Arc<Sender>> {
        match &self.servers {
            Servers::One(sender) => vec![Arc::clone(sender)],
            Servers::Cluster(cluster) => cluster.known_masters(),
        }
    }

    /// Returns every server that has slots, each with an unused key of one of its slots.
    pub(super) async fn servers(&self) -> Result<Vec<(Arc<Server>, Key)>, Error> {
        runtime::current()?;
        match &self.servers {
            Servers::One(sender) => Ok(vec![(Arc::clone(&sender.server), unused_key())]),
            Servers::Cluster(cluster) => cluster.masters().await,
        }
    }
}
