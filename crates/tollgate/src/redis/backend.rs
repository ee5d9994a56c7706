use std::sync::Arc;

use redis::{Cmd, Value};

use super::{
    cluster::Cluster,
    dispatch::{CheckRequest, PendingCheck, ServerHandle},
    protocol::{
        Script,
        hash_slot::{self, unused_key},
    },
    server::{PlainCall, ScriptCall, Server},
};
use crate::{
    Error, Key, PolicySet, runtime,
    store::{CheckFuture, Deadline, StoreFuture},
};

/// Holds the servers of a store: one server, or a cluster.
#[derive(Debug)]
pub(super) enum Backend {
    One(ServerHandle),
    Cluster(Cluster),
}

impl Backend {
    /// Returns the error of a call for this key, while its server is not asked. The key has no branches, here and below.
    pub(super) fn refusal(&self, key: &Key) -> Option<Error> {
        match self {
            Self::One(handle) => handle.server.refusal(),
            Self::Cluster(cluster) => cluster.refusal(key),
        }
    }

    /// Returns the error of a check for this key that is not sent within this deadline.
    #[inline]
    pub(super) fn refusal_within(&self, key: &Key, deadline: Option<Deadline>) -> Option<Error> {
        match self {
            Self::One(handle) => handle.server.refusal_within(deadline),
            Self::Cluster(cluster) => cluster.refusal_within(key, deadline),
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
            Self::One(handle) => handle.server.refusal().is_none(),
            Self::Cluster(cluster) => cluster.is_available(),
        }
    }

    /// Decides a check.
    #[inline]
    pub(super) fn check(&self, request: Arc<CheckRequest>) -> CheckFuture {
        match self {
            Self::One(handle) => StoreFuture::pending(PendingCheck::new(handle, request)),
            Self::Cluster(cluster) => StoreFuture::pending(cluster.clone().check(request)),
        }
    }

    /// Runs a script at the server of the key, for a caller that waits until the deadline. `fill` adds the keys and the
    /// arguments.
    pub(super) async fn run(
        &self,
        key: &Key,
        deadline: Option<Deadline>,
        script: &Script,
        keys: usize,
        fill: impl Fn(&Server, &mut Cmd),
    ) -> Result<Value, Error> {
        match self {
            Self::One(handle) => {
                let server = &handle.server;
                let fill = |command: &mut Cmd| fill(server, command);
                Ok(server.call(ScriptCall { script, keys, is_asking: false, fill }, deadline).await?)
            }
            Self::Cluster(cluster) => cluster.run(key, deadline, script, keys, fill).await,
        }
    }

    /// Sends a command to the server of the key, for a caller that waits until the deadline. `fill` adds the keys and the
    /// arguments.
    pub(super) async fn query(
        &self,
        key: &Key,
        deadline: Option<Deadline>,
        command: &str,
        fill: impl Fn(&Server, &mut Cmd),
    ) -> Result<Value, Error> {
        match self {
            Self::One(handle) => {
                let mut command = redis::cmd(command);
                fill(&handle.server, &mut command);
                Ok(handle.server.call(PlainCall { command, is_asking: false }, deadline).await?)
            }
            Self::Cluster(cluster) => cluster.query(key, deadline, command, fill).await,
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

    /// Returns the servers that checks are sent to now. Asks no server.
    pub(super) fn known_servers(&self) -> Vec<ServerHandle> {
        match self {
            Self::One(handle) => vec![handle.clone()],
            Self::Cluster(cluster) => cluster.known_masters(),
        }
    }

    /// Returns every server that has slots, each with an unused key of one of its slots.
    pub(super) async fn servers(&self) -> Result<Vec<(Arc<Server>, Key)>, Error> {
        runtime::current()?;
        match self {
            Self::One(handle) => Ok(vec![(Arc::clone(&handle.server), unused_key())]),
            Self::Cluster(cluster) => cluster.masters().await,
        }
    }
}
