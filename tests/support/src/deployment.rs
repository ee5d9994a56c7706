//! The deployments of Redis that a suite of tests runs on.

use std::{env, path::PathBuf};

use tollgate::{
    Key, RedisStore,
    redis::{RedisSource, RedisStoreBuilder},
};
use tollgate_tests::{RedisCluster, RedisServer, skipped};

use crate::PATIENCE;

/// A way to run Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One Redis server.
    Server,
    /// A Redis Cluster of three masters with a replica each.
    Cluster,
    /// One Valkey server: the binary that `VALKEY_SERVER` names, which `cargo xtask test` sets.
    Valkey,
}

/// Running servers, and the stores that lead to them.
#[derive(Debug)]
pub enum Deployment {
    /// One server, Redis or Valkey.
    Single(RedisServer),
    /// A cluster.
    Cluster(RedisCluster),
}

impl Deployment {
    /// Starts the servers. Returns nothing where there is no Valkey: the test named `test` is then
    /// counted as skipped.
    ///
    /// # Panics
    ///
    /// When there is no Valkey and `CI` is set, and when a server does not start.
    #[must_use]
    pub fn start(kind: Kind, test: &str) -> Option<Self> {
        match kind {
            Kind::Server => Some(Self::Single(RedisServer::start())),
            Kind::Cluster => Some(Self::Cluster(RedisCluster::start())),
            Kind::Valkey => valkey(test).map(Self::Single),
        }
    }

    /// Returns a builder of stores for these servers, with a prefix of the test's own.
    pub fn builder(&self, prefix: &str) -> RedisStoreBuilder {
        self.builder_at(self.urls(), prefix)
    }

    /// Returns a builder of stores that log in as `user`, who may do everything.
    ///
    /// # Panics
    ///
    /// When a server refuses to make the user.
    pub fn builder_as(&self, user: &str, prefix: &str) -> RedisStoreBuilder {
        self.on_every_server(&["ACL", "SETUSER", user, "on", "nopass", "~*", "+@all"]);
        let urls = self
            .urls()
            .into_iter()
            .map(|url| url.replacen("redis://", &format!("redis://{user}:any@"), 1));
        self.builder_at(urls.collect(), prefix)
    }

    fn builder_at(&self, urls: Vec<String>, prefix: &str) -> RedisStoreBuilder {
        let builder = match self {
            Self::Single(_) => RedisStore::builder(&urls[0]),
            Self::Cluster(_) => RedisStore::builder(RedisSource::cluster(urls)),
        };
        builder.prefix(prefix).connect_timeout(PATIENCE)
    }

    fn urls(&self) -> Vec<String> {
        match self {
            Self::Single(server) => vec![server.url()],
            Self::Cluster(cluster) => cluster.urls(),
        }
    }

    /// Returns the servers that decide: the only one, or every master.
    #[must_use]
    pub fn masters(&self) -> Vec<&RedisServer> {
        match self {
            Self::Single(server) => vec![server],
            Self::Cluster(cluster) => cluster.masters(),
        }
    }

    /// Returns the server that holds the key.
    #[must_use]
    pub fn owner(&self, key: &Key) -> &RedisServer {
        match self {
            Self::Single(server) => server,
            Self::Cluster(cluster) => {
                let outermost = key.encoded().split('>').next().unwrap_or_default();
                cluster.owner(cluster.slot(outermost), &cluster.nodes()[0])
            }
        }
    }

    /// Sends a command to every server, replicas included.
    ///
    /// # Panics
    ///
    /// When a server refuses it.
    pub fn on_every_server(&self, words: &[&str]) {
        let send = |server: &RedisServer| {
            let reply = server.command(words);
            assert!(!reply.is_error(), "{words:?}: {}", reply.text());
        };
        match self {
            Self::Single(server) => send(server),
            Self::Cluster(cluster) => cluster.nodes().iter().for_each(send),
        }
    }

    /// Sends a command to every master.
    ///
    /// # Panics
    ///
    /// When a master refuses it.
    pub fn on_every_master(&self, words: &[&str]) {
        for master in self.masters() {
            let reply = master.command(words);
            assert!(!reply.is_error(), "{words:?}: {}", reply.text());
        }
    }

    /// Counts the calls of these commands at all masters.
    #[must_use]
    pub fn calls(&self, commands: &[&str]) -> u64 {
        self.masters()
            .iter()
            .flat_map(|master| commands.iter().map(|command| master.calls(command)))
            .sum()
    }

    /// Counts the keys at all masters, and those that expire.
    #[must_use]
    pub fn keys_and_expires(&self) -> (u64, u64) {
        let each = self
            .masters()
            .into_iter()
            .map(RedisServer::keys_and_expires);
        each.fold((0, 0), |sum, (keys, expires)| {
            (sum.0 + keys, sum.1 + expires)
        })
    }

    /// Checks that there are keys, and that all of them expire.
    ///
    /// # Panics
    ///
    /// When there is none, or one that does not expire.
    pub fn assert_every_key_expires(&self) {
        let (keys, expires) = self.keys_and_expires();
        assert!(
            keys > 0 && keys == expires,
            "{keys} keys, of which {expires} expire"
        );
    }
}

/// Starts Valkey, or says that the test is skipped.
fn valkey(test: &str) -> Option<RedisServer> {
    let Some(binary) = env::var_os("VALKEY_SERVER").filter(|chosen| !chosen.is_empty()) else {
        skipped(
            test,
            "VALKEY_SERVER names no binary: `cargo xtask test` finds or installs one",
        );
        return None;
    };
    let server = RedisServer::builder().binary(PathBuf::from(binary)).start();
    let info = server.info("server");
    assert_eq!(
        info.get("server_name").map(String::as_str),
        Some("valkey"),
        "VALKEY_SERVER names another server"
    );
    Some(server)
}
