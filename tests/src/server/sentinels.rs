//! Starts a master, its replicas and the Sentinels that watch them.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use super::{Builder, RedisServer};
use crate::{NetworkNamespace, wait};

/// The longest time of a fail-over on a slow machine.
const LIMIT: Duration = Duration::from_secs(60);

const SERVER_PASSWORD: &str = "server secret";
const SENTINEL_PASSWORD: &str = "sentinel secret";

/// One master, two replicas and three Sentinels. The master is called `m` and regarded as gone
/// after a second.
#[derive(Debug)]
pub struct RedisSentinels {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl RedisSentinels {
    /// Starts the servers and Sentinels, with passwords or without, and waits until all know each
    /// other.
    ///
    /// # Panics
    ///
    /// When there is no server binary, or the Sentinels do not find the servers.
    #[must_use]
    pub fn start(has_passwords: bool) -> Self {
        Self::begin(has_passwords, |builder| builder, |builder| builder)
    }

    /// Starts the master at the local address and all others in the namespace, without passwords.
    ///
    /// # Panics
    ///
    /// As [`RedisSentinels::start`].
    #[must_use]
    pub fn start_in(namespace: &NetworkNamespace) -> Self {
        Self::begin(
            false,
            |builder| builder.address(namespace.local_address()),
            |builder| namespace.place(builder),
        )
    }

    fn begin(
        has_passwords: bool,
        of_master: impl Fn(Builder) -> Builder,
        of_others: impl Fn(Builder) -> Builder,
    ) -> Self {
        let server = |of: &dyn Fn(Builder) -> Builder, lines: String| {
            let builder = of(RedisServer::builder())
                .arg("--repl-diskless-sync-delay", "0")
                .config(lines);
            match has_passwords {
                true => builder
                    .password(SERVER_PASSWORD)
                    .config(format!("masterauth \"{SERVER_PASSWORD}\""))
                    .start(),
                false => builder.start(),
            }
        };
        let master = server(&of_master, String::new());
        let host = master.addr().ip();
        let replicas =
            [(); 2].map(|()| server(&of_others, format!("replicaof {host} {}", master.port())));
        wait::until("the replicas to be in step", LIMIT, || {
            replicas
                .iter()
                .all(|replica| field(replica, "replication", "master_link_status") == "up")
        });
        let lines = format!(
            "sentinel monitor m {host} {} 2\nsentinel down-after-milliseconds m 1000\nsentinel failover-timeout m 5000",
            master.port()
        );
        let sentinel = |()| match has_passwords {
            true => of_others(RedisServer::builder())
                .password(SENTINEL_PASSWORD)
                .sentinel(format!(
                    "{lines}\nsentinel auth-pass m \"{SERVER_PASSWORD}\""
                ))
                .start(),
            false => of_others(RedisServer::builder()).sentinel(&lines).start(),
        };
        let sentinels: Vec<_> = [(); 3].into_iter().map(sentinel).collect();
        wait::until("the sentinels to know all", LIMIT, || {
            sentinels.iter().all(|sentinel| {
                let reply = sentinel.command(&["SENTINEL", "MASTER", "m"]);
                let words: Vec<_> = reply.items().iter().map(|word| word.text()).collect();
                let is =
                    |name: &str, number: &str| words.chunks(2).any(|pair| pair == [name, number]);
                is("num-slaves", "2") && is("num-other-sentinels", "2") && is("flags", "master")
            })
        });
        Self {
            servers: [master].into_iter().chain(replicas).collect(),
            sentinels,
        }
    }

    /// Makes every server refuse writes unless a replica has answered within two seconds.
    ///
    /// # Panics
    ///
    /// When a server refuses.
    pub fn want_replicas(&self) {
        for server in &self.servers {
            let words = [
                "CONFIG",
                "SET",
                "min-replicas-to-write",
                "1",
                "min-replicas-max-lag",
                "2",
            ];
            assert_eq!(server.command(&words).text(), "OK");
        }
    }

    /// Returns the Sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Returns the URLs of the Sentinels.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.sentinels
            .iter()
            .map(|sentinel| sentinel.url_at(sentinel.addr()))
            .collect()
    }

    /// Returns the server that began as master.
    #[must_use]
    pub fn old(&self) -> &RedisServer {
        &self.servers[0]
    }

    /// Returns the replica that became master, if one has.
    #[must_use]
    pub fn risen(&self) -> Option<&RedisServer> {
        self.servers[1..]
            .iter()
            .find(|server| field(server, "replication", "role") == "master")
    }

    /// Returns the URL of a store that asks the Sentinels for the master.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self
            .sentinels
            .iter()
            .map(|sentinel| sentinel.addr().to_string())
            .collect();
        format!("redis+sentinel://{}/m", hosts.join(","))
    }

    /// Waits until both replicas have received all writes of the master.
    ///
    /// # Panics
    ///
    /// When they do not within a minute.
    pub fn wait_for_replicas(&self) {
        wait::until("the replicas to have all writes", LIMIT, || {
            let written = field(self.old(), "replication", "master_repl_offset");
            self.servers[1..]
                .iter()
                .all(|server| field(server, "replication", "slave_repl_offset") == written)
        });
    }

    /// Removes all keys from both replicas, as if they had received no write of the master.
    ///
    /// # Panics
    ///
    /// When a replica refuses.
    pub fn empty_replicas(&self) {
        for server in &self.servers[1..] {
            for words in [
                &["CONFIG", "SET", "replica-read-only", "no"][..],
                &["FLUSHALL"],
            ] {
                assert_eq!(server.command(words).text(), "OK");
            }
        }
    }

    /// Requests a planned fail-over, and returns once a Sentinel agreed.
    ///
    /// # Panics
    ///
    /// When none does within a minute.
    pub fn fail_over(&self) {
        wait::until("the fail-over to begin", LIMIT, || self.begins_fail_over());
    }

    /// Requests a planned fail-over. Returns whether a Sentinel agreed: none does while one is under
    /// way. A Sentinel that stood still meanwhile gives it up.
    #[must_use]
    pub fn begins_fail_over(&self) -> bool {
        let reply = self.sentinels[0].command(&["SENTINEL", "FAILOVER", "m"]);
        !reply.is_error()
    }

    /// Returns a channel that receives the time at which a Sentinel announces another master.
    ///
    /// # Panics
    ///
    /// When a Sentinel refuses the subscription.
    #[must_use]
    pub fn switched(&self) -> mpsc::Receiver<Instant> {
        let (sender, receiver) = mpsc::channel();
        for sentinel in &self.sentinels {
            let mut listener = sentinel.client();
            listener.patience(LIMIT * 2).expect("it is not zero");
            listener
                .command(&["SUBSCRIBE", "+switch-master"])
                .expect("it subscribes");
            let sender = sender.clone();
            thread::spawn(move || {
                if listener.read().is_ok() {
                    let _ = sender.send(Instant::now());
                }
            });
        }
        receiver
    }
}

/// Returns a field of a server's `INFO` over a new connection, because a server closes its
/// connections when its role changes.
///
/// # Panics
///
/// When the server does not answer for a minute.
#[must_use]
pub fn field(server: &RedisServer, section: &str, name: &str) -> String {
    wait::until_some("a server that answers", LIMIT, || {
        let info = server.client().command(&["INFO", section]).ok()?.text();
        Some(
            info.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .unwrap_or_default()
                .to_owned(),
        )
    })
}

/// Counts the calls of `command` at the server, as [`field`] does.
///
/// # Panics
///
/// As [`field`].
#[must_use]
pub fn calls_of(server: &RedisServer, command: &str) -> u64 {
    super::number_in(
        &field(server, "commandstats", &format!("cmdstat_{command}")),
        "calls",
    )
}

/// Counts the keys of the server, and those that expire, as [`field`] does.
///
/// # Panics
///
/// As [`field`].
#[must_use]
pub fn keys_of(server: &RedisServer) -> (u64, u64) {
    let database = field(server, "keyspace", "db0");
    (
        super::number_in(&database, "keys"),
        super::number_in(&database, "expires"),
    )
}
