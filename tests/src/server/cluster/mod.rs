//! Starts Redis Clusters for tests.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use super::{Builder, RedisServer};
use crate::{Authority, Reply, wait};

const MASTERS: usize = 3;
/// The number of slots of a cluster.
pub const SLOTS: usize = 16_384;

/// The longest time in which the servers agree.
const AGREEING: Duration = Duration::from_secs(60);

/// The time after which servers that do not know each other are introduced again: longer than a
/// handshake takes.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// A Redis Cluster: three masters with a replica each, on free ports of 127.0.0.1.
///
/// The servers regard a master as gone after three seconds: on a busy machine, they hear late of
/// each other. Only the slots of that master are then not served.
#[derive(Debug)]
pub struct RedisCluster {
    /// The options of every server.
    settings: Builder,
    nodes: Vec<RedisServer>,
    /// The names of the servers in the cluster, which do not change.
    ids: Vec<String>,
}

impl RedisCluster {
    /// Starts a cluster and waits until every server says that it is whole, and every replica has
    /// its master's data.
    ///
    /// # Panics
    ///
    /// When there is no server binary, or the servers form no cluster.
    #[must_use]
    pub fn start() -> Self {
        Self::begin(Builder::new())
    }

    /// [`RedisCluster::start`] with TLS among the servers and, on their second ports, for clients,
    /// all of whom have to show a certificate of `authority`.
    ///
    /// # Panics
    ///
    /// As [`RedisCluster::start`].
    #[must_use]
    pub fn start_tls(authority: &Authority) -> Self {
        let signed = authority.sign();
        let builder = Builder::new().tls(authority.pem(), &signed.certificate, &signed.key, true);
        Self::begin(builder.config("tls-cluster yes\ntls-replication yes"))
    }

    fn begin(builder: Builder) -> Self {
        let settings = builder
            .arg("--cluster-enabled", "yes")
            .arg("--cluster-config-file", "nodes.conf")
            .arg("--cluster-node-timeout", "3000")
            .arg("--cluster-require-full-coverage", "no")
            .arg("--repl-diskless-sync-delay", "0")
            .arg("--repl-ping-replica-period", "1");
        let mut cluster = Self {
            settings,
            nodes: Vec::new(),
            ids: Vec::new(),
        };
        (0..2 * MASTERS).for_each(|_| cluster.add());
        cluster.meet();
        cluster.share_slots();
        cluster
    }

    /// Starts one more server, which does not belong to the cluster yet.
    fn add(&mut self) {
        let node = self.settings.clone().cluster_port().start();
        self.ids.push(node.command(&["CLUSTER", "MYID"]).text());
        self.nodes.push(node);
    }

    /// Returns the servers: first the three that began as masters, then their replicas in the same
    /// order.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Returns the URLs of all servers.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes
            .iter()
            .map(|node| node.url_at(node.addr()))
            .collect()
    }

    /// Returns the URLs of the TLS ports of all servers, see [`RedisCluster::start_tls`].
    #[must_use]
    pub fn tls_urls(&self) -> Vec<String> {
        self.nodes
            .iter()
            .map(|node| format!("rediss://127.0.0.1:{}/", node.tls_port()))
            .collect()
    }

    /// Returns the slot of a key.
    #[must_use]
    pub fn slot(&self, key: &str) -> u16 {
        u16::try_from(self.any().command(&["CLUSTER", "KEYSLOT", key]).int()).expect("a slot")
    }

    /// Returns the server that holds the slot, according to the server `according_to`.
    ///
    /// # Panics
    ///
    /// When no server holds it.
    #[must_use]
    pub fn owner(&self, slot: u16, according_to: &RedisServer) -> &RedisServer {
        self.ranges(according_to)
            .into_iter()
            .find_map(|(range, port)| range.contains(&i64::from(slot)).then(|| self.at(port)))
            .expect("a server with the slot")
    }

    /// Returns the servers that hold slots, according to a running server.
    #[must_use]
    pub fn masters(&self) -> Vec<&RedisServer> {
        let mut ports: Vec<_> = self
            .ranges(self.any())
            .into_iter()
            .map(|(_, port)| port)
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports.into_iter().map(|port| self.at(port)).collect()
    }

    /// Returns the slots of the server, according to itself.
    #[must_use]
    pub fn slots_of(&self, server: &RedisServer) -> Vec<u16> {
        let own = self
            .ranges(server)
            .into_iter()
            .filter(|(_, port)| *port == server.port());
        own.flat_map(|(range, _)| range)
            .map(|slot| u16::try_from(slot).expect("a slot"))
            .collect()
    }

    /// Counts the keys of all masters, and those that expire.
    #[must_use]
    pub fn keys_and_expires(&self) -> (u64, u64) {
        let counts = self
            .masters()
            .into_iter()
            .map(RedisServer::keys_and_expires);
        counts.fold((0, 0), |(keys, expires), (more, expiring)| {
            (keys + more, expires + expiring)
        })
    }

    /// Counts the calls of `command` at all masters.
    #[must_use]
    pub fn calls(&self, command: &str) -> u64 {
        self.masters()
            .into_iter()
            .map(|master| master.calls(command))
            .sum()
    }

    /// Moves slots as an operator does: first the keys, one by one, then the slot.
    pub fn move_slots(
        &self,
        slots: impl IntoIterator<Item = u16>,
        from: &RedisServer,
        to: &RedisServer,
    ) {
        let masters = self.masters();
        for slot in slots {
            self.begin_move(slot, from, to);
            self.move_keys(slot, from, to);
            self.end_move_before(&masters, slot, from, to);
        }
    }

    /// Begins a move: both servers learn of it. From now on `from` redirects keys that it does not
    /// hold to `to`.
    pub fn begin_move(&self, slot: u16, from: &RedisServer, to: &RedisServer) {
        ok(
            to,
            &[
                "CLUSTER",
                "SETSLOT",
                &slot.to_string(),
                "IMPORTING",
                self.id(from),
            ],
        );
        ok(
            from,
            &[
                "CLUSTER",
                "SETSLOT",
                &slot.to_string(),
                "MIGRATING",
                self.id(to),
            ],
        );
    }

    /// Calls a move off, before any key was moved.
    pub fn cancel_move(&self, slot: u16, from: &RedisServer, to: &RedisServer) {
        for server in [from, to] {
            ok(server, &["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"]);
        }
    }

    /// Moves the keys: the second step of a move.
    pub fn move_keys(&self, slot: u16, from: &RedisServer, to: &RedisServer) {
        loop {
            let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"]);
            let keys: Vec<String> = keys.items().iter().map(|key| key.text()).collect();
            if keys.is_empty() {
                return;
            }
            // Servers speak to each other as the settings say.
            let port = if self.settings.tls {
                to.tls_port()
            } else {
                to.port()
            }
            .to_string();
            let mut words = ["MIGRATE", "127.0.0.1", &port, "", "0", "60000", "KEYS"]
                .map(str::to_owned)
                .to_vec();
            words.extend(keys);
            // A key may have expired since: then there is nothing to move.
            let reply = from.command(&words).text();
            assert!(["OK", "NOKEY"].contains(&reply.as_str()), "{reply}");
        }
    }

    /// Ends a move: all masters learn the new owner.
    pub fn end_move(&self, slot: u16, from: &RedisServer, to: &RedisServer) {
        self.end_move_before(&self.masters(), slot, from, to);
    }

    /// Tells all masters, the new owner first, because the others may learn of a move in the wrong
    /// order.
    fn end_move_before(
        &self,
        masters: &[&RedisServer],
        slot: u16,
        from: &RedisServer,
        to: &RedisServer,
    ) {
        let is_other = |master: &&RedisServer| ![from.port(), to.port()].contains(&master.port());
        for server in [to, from]
            .into_iter()
            .chain(masters.iter().copied().filter(is_other))
        {
            ok(
                server,
                &["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", self.id(to)],
            );
        }
    }

    /// Waits until all running servers agree on who has which slot, none is away and the replicas
    /// are up to date.
    pub fn wait_until_whole(&self) {
        let begun = Instant::now();
        wait::until_some("the cluster to be whole", AGREEING * 2, || {
            let running: Vec<_> = self.nodes.iter().filter(|node| node.is_running()).collect();
            let ranges: Vec<_> = running.iter().map(|node| self.ranges(node)).collect();
            let is_whole = running.iter().all(|node| is_whole(node))
                && ranges.iter().all(|seen| *seen == ranges[0]);
            assert!(
                is_whole || begun.elapsed() < AGREEING,
                "the servers do not agree:\n{}",
                self.views()
            );
            is_whole.then_some(())
        });
    }

    /// Returns what each running server reports of the cluster.
    fn views(&self) -> String {
        let running = self.nodes.iter().filter(|node| node.is_running());
        running
            .map(|node| format!("{}\n", node.command(&["CLUSTER", "NODES"]).text()))
            .collect()
    }

    fn meet(&self) {
        for (at, node) in self.nodes.iter().enumerate() {
            ok(
                node,
                &["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()],
            );
        }
        self.nodes[1..].iter().for_each(|node| self.introduce(node));
        self.wait_until_known();
    }

    /// Adds `node` to the cluster through the first server.
    fn introduce(&self, node: &RedisServer) {
        let bus = node.command(&["CONFIG", "GET", "cluster-port"]);
        // Before 7.0 it could not be chosen.
        let bus = bus
            .items()
            .get(1)
            .map_or_else(|| (node.port() + 10_000).to_string(), Reply::text);
        ok(
            &self.nodes[0],
            &[
                "CLUSTER",
                "MEET",
                "127.0.0.1",
                &node.port().to_string(),
                &bus,
            ],
        );
    }

    fn wait_until_known(&self) {
        let all = self.nodes.len().to_string();
        let mut introduced = Instant::now();
        wait::until("the servers to know each other", AGREEING, || {
            let is_known = self
                .nodes
                .iter()
                .all(|node| reported(node, "cluster_known_nodes") == all);
            // They give a handshake up in which the machine stands still.
            if !is_known && introduced.elapsed() > HANDSHAKE {
                self.nodes[1..].iter().for_each(|node| self.introduce(node));
                introduced = Instant::now();
            }
            is_known
        });
    }

    /// Makes `replica` follow `master`, and returns before it has the data.
    fn follow(&self, master: &RedisServer, replica: &RedisServer) {
        // It may know the other by a name that it has only until they have shaken hands.
        wait::until("a replica to know its master", AGREEING, || {
            !replica
                .command(&["CLUSTER", "REPLICATE", self.id(master)])
                .is_error()
        });
    }

    fn share_slots(&self) {
        let (masters, replicas) = self.nodes.split_at(MASTERS);
        for (at, master) in masters.iter().enumerate() {
            assert_eq!(
                master
                    .add_slots(SLOTS * at / MASTERS..SLOTS * (at + 1) / MASTERS)
                    .text(),
                "OK"
            );
        }
        masters
            .iter()
            .zip(replicas)
            .for_each(|(master, replica)| self.follow(master, replica));
        wait::until("the replicas to follow", AGREEING, || {
            replicas.iter().all(|replica| {
                let replication = replica.info("replication");
                replication
                    .get("master_link_status")
                    .is_some_and(|status| status == "up")
            })
        });
        self.wait_until_whole();
    }

    /// Returns the ranges of slots and the ports of their servers.
    fn ranges(&self, according_to: &RedisServer) -> Vec<(std::ops::RangeInclusive<i64>, u16)> {
        let slots = according_to.command(&["CLUSTER", "SLOTS"]);
        let range = |range: &Reply| {
            let [first, last, master, ..] = range.items() else {
                panic!("no range: {range:?}")
            };
            let port = u16::try_from(master.items()[1].int()).expect("a port");
            (first.int()..=last.int(), port)
        };
        let mut ranges: Vec<_> = slots.items().iter().map(range).collect();
        ranges.sort_by_key(|(range, _)| *range.start());
        ranges
    }

    fn id(&self, server: &RedisServer) -> &str {
        let at = self
            .nodes
            .iter()
            .position(|node| node.port() == server.port())
            .expect("one of ours");
        &self.ids[at]
    }

    fn at(&self, port: u16) -> &RedisServer {
        self.nodes
            .iter()
            .find(|node| node.port() == port)
            .expect("one of ours")
    }

    fn any(&self) -> &RedisServer {
        self.nodes
            .iter()
            .find(|node| node.is_running())
            .expect("a running server")
    }
}

impl RedisServer {
    /// Gives it these slots of its cluster: `ADDSLOTSRANGE`, which servers have had since 7.0, for
    /// those of any version.
    #[must_use]
    pub fn add_slots(&self, slots: Range<usize>) -> Reply {
        let words: Vec<String> = ["CLUSTER", "ADDSLOTS"]
            .map(str::to_owned)
            .into_iter()
            .chain(slots.map(|slot| slot.to_string()))
            .collect();
        self.command(&words)
    }
}

#[track_caller]
fn ok(server: &RedisServer, words: &[&str]) {
    assert_eq!(server.command(words).text(), "OK", "{words:?}");
}

fn reported(server: &RedisServer, field: &str) -> String {
    let info = server.command(&["CLUSTER", "INFO"]).text();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

fn is_whole(server: &RedisServer) -> bool {
    let replication = server.info("replication");
    let follows = replication
        .get("master_link_status")
        .is_none_or(|status| status == "up");
    follows
        && reported(server, "cluster_state") == "ok"
        && reported(server, "cluster_slots_ok") == SLOTS.to_string()
}
