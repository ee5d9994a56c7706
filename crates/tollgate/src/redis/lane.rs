use std::{collections::HashSet, future::Future, sync::Arc, time::Duration};

use redis::{Cmd, Value};

use super::{cluster::Cluster, connection::Connection, denials::Denials, engine::Engine, link::Link, script::Script};
use crate::{Clock, Error, Finding, Key};

/// A server, and the queue before it.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) connection: Arc<Connection>,
    pub(super) engine: Arc<Engine>,
}

/// Where the states live: at one server, or each at the one that has its slot.
#[derive(Debug)]
pub(super) enum Lanes {
    One(Lane),
    Cluster(Cluster),
}

/// What all servers of a store have in common.
#[derive(Clone)]
pub(super) struct Manner {
    pub(super) prefix: String,
    pub(super) clock: Option<Clock>,
    pub(super) denials: Option<Arc<Denials>>,
}

impl Manner {
    /// The usual one, where denials are remembered for `deny_cache_cap` at the most.
    pub(super) fn new(prefix: String, clock: Option<Clock>, deny_cache_cap: Duration) -> Self {
        // A clock that others move says nothing about how long a denial holds.
        let remembers = clock.is_none() && deny_cache_cap > Duration::ZERO;
        Self { denials: remembers.then(|| Arc::new(Denials::new(deny_cache_cap))), prefix, clock }
    }
}

impl Lane {
    /// A server at the end of the link; in a cluster it has some slots only.
    pub(super) fn new(link: Link, manner: Manner, is_in_cluster: bool) -> Self {
        let denials = manner.denials.clone();
        let connection = Connection::new(link, manner, is_in_cluster);
        Self { engine: Arc::new(Engine::new(Arc::clone(&connection), denials)), connection }
    }
}

impl Lanes {
    /// Why the server of this key is not asked now.
    pub(super) fn refusal(&self, key: &Key) -> Option<Error> {
        match self {
            Self::One(lane) => lane.connection.breaker().is_open().then(|| lane.connection.why()),
            Self::Cluster(cluster) => cluster.refusal(key),
        }
    }

    /// Whether all servers are asked.
    pub(super) fn is_asked(&self) -> bool {
        match self {
            Self::One(lane) => !lane.connection.breaker().is_open(),
            Self::Cluster(cluster) => cluster.is_asked(),
        }
    }

    /// Runs a script at the server of the key; `rest` adds the keys and the arguments.
    pub(super) async fn run(
        &self,
        key: &Key,
        script: &Script,
        keys: usize,
        rest: impl Fn(&Connection, &mut Cmd),
    ) -> Result<Value, Error> {
        match self {
            Self::One(lane) => lane.connection.run(script, keys, |command| rest(&lane.connection, command)).await,
            Self::Cluster(cluster) => cluster.run(key, script, keys, rest).await,
        }
    }

    /// Runs a command at the server of the key; `rest` adds the keys and the arguments.
    pub(super) async fn query(
        &self,
        key: &Key,
        command: &str,
        rest: impl Fn(&Connection, &mut Cmd),
    ) -> Result<Value, Error> {
        match self {
            Self::One(lane) => {
                let mut command = redis::cmd(command);
                rest(&lane.connection, &mut command);
                lane.connection.query(&command).await
            }
            Self::Cluster(cluster) => cluster.query(key, command, rest).await,
        }
    }

    /// Asks every server whether it is there.
    pub(super) async fn ping(&self) -> Result<(), Error> {
        let ping = redis::cmd("PING");
        match self {
            Self::One(lane) => lane.connection.query_in_time(&ping).await.map(drop),
            Self::Cluster(cluster) => {
                for (lane, _) in cluster.masters().await? {
                    lane.connection.query_in_time(&ping).await?;
                }
                Ok(())
            }
        }
    }

    /// Looks at every server; `look` is given a key that it has. What several say is told once.
    pub(super) async fn diagnose<F>(&self, look: impl Fn(Arc<Connection>, Key) -> F) -> Result<Vec<Finding>, Error>
    where
        F: Future<Output = Result<Vec<Finding>, Error>>,
    {
        let mut findings = match self {
            Self::One(lane) => return look(Arc::clone(&lane.connection), diagnosed()).await,
            Self::Cluster(_) => Vec::new(),
        };
        if let Self::Cluster(cluster) = self {
            for (lane, key) in cluster.masters().await? {
                findings.extend(look(Arc::clone(&lane.connection), key).await?);
            }
        }
        let mut told = HashSet::new();
        findings.retain(|finding: &Finding| told.insert(finding.to_string()));
        Ok(findings)
    }
}

/// A key that nobody else has.
pub(super) fn diagnosed() -> Key {
    Key::from(("tollgate diagnosis", fastrand::u64(..)))
}
