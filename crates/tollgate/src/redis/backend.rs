use std::sync::Arc;

use futures_util::TryFutureExt;
use redis::{Cmd, Value};

use super::{
    cluster::Cluster,
    dispatch::{CheckRequest, PendingCheck, Sender},
    protocol::{
        Script,
        hash_slot::{self, unused_key},
    },
    server::{Call, Server},
};
use crate::{
    Error, Key, PolicySet, runtime,
    store::{CheckFuture, Deadline, StoreFuture},
};

/// Holds the servers of a store: one server, or a cluster.
#[derive(Debug)]
pub(super) enum Backend {
    One(Arc<Sender>),
    Cluster(Cluster),
}

impl Backend {
    /// Returns the error of a call for this key that is not sent: its server is not asked, or not within this deadline. The
    /// key has no branches, here and below.
    #[inline]
    pub(super) fn refusal(&self, key: &Key, deadline: Option<Deadline>) -> Option<Error> {
        match self {
            Self::One(sender) => sender.server.refusal(deadline),
            Self::Cluster(cluster) => cluster.refusal(key, deadline),
        }
    }

    /// Refuses a key whose branches lie in different slots of a cluster, so that no server can decide over all of them.
    #[inline]
    pub(super) fn takes(&self, policies: &PolicySet, key: &Key) -> Result<(), Error> {
        match self {
            Self::Cluster(_) if key.has_branches() => hash_slot::share_slot(policies, key),
            _ => Ok(()),
        }
    }

    /// Returns whether checks are sent to all servers.
    pub(super) fn is_available(&self) -> bool {
        match self {
            Self::One(sender) => sender.server.refusal(None).is_none(),
            Self::Cluster(cluster) => cluster.is_available(),
        }
    }

    /// Decides a check.
    #[inline]
    pub(super) fn check(&self, request: CheckRequest) -> CheckFuture {
        match self {
            Self::One(sender) => StoreFuture::pending(PendingCheck::new(sender, request).err_into()),
            Self::Cluster(cluster) => StoreFuture::pending(cluster.clone().check(request)),
        }
    }

    /// Makes a call at the server of the key, for a caller that waits until the deadline. `write` writes it, by the body of
    /// its script or not.
    pub(super) async fn call(
        &self,
        key: &Key,
        deadline: Option<Deadline>,
        write: impl Fn(&Server, bool) -> Call,
    ) -> Result<Value, Error> {
        match self {
            Self::One(sender) => Ok(sender.server.call(|by_body| write(&sender.server, by_body), deadline).await?),
            Self::Cluster(cluster) => cluster.call(key, deadline, write).await,
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
        let write = |server: &Server, by_body| Call::of(script, by_body, keys, |command| fill(server, command));
        self.call(key, deadline, write).await
    }

    /// Waits until every server has answered.
    pub(super) async fn ping(&self) -> Result<(), Error> {
        let ping = redis::cmd("PING");
        for (server, _) in self.servers().await? {
            server.query_in_time(&ping).await?;
        }
        Ok(())
    }

    /// Returns the servers that checks are sent to now. Asks no server.
    #[cfg(feature = "metrics")]
    pub(super) fn known_servers(&self) -> Vec<Arc<Sender>> {
        match self {
            Self::One(sender) => vec![Arc::clone(sender)],
            Self::Cluster(cluster) => cluster.known_masters(),
        }
    }

    /// Returns every server that has slots, each with an unused key of one of its slots.
    pub(super) async fn servers(&self) -> Result<Vec<(Arc<Server>, Key)>, Error> {
        runtime::current()?;
        match self {
            Self::One(sender) => Ok(vec![(Arc::clone(&sender.server), unused_key())]),
            Self::Cluster(cluster) => cluster.masters().await,
        }
    }
}
