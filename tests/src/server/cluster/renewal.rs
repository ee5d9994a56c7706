//! Replaces all servers of a cluster.

use std::time::{Duration, Instant};

use super::{AGREEING, RedisCluster};
use crate::{server::field, wait};

/// The time after which a replica no longer tries to take over: 5 s in Redis, and some more for a
/// busy machine.
const GIVES_UP: Duration = Duration::from_secs(7);

impl RedisCluster {
    /// Starts a server for each master and makes it take over, as an operator does to replace
    /// machines. The former servers are then replicas without slots and may be killed; the new ones
    /// stand behind them in [`nodes`](Self::nodes).
    ///
    /// Returns the longest time of a take-over: milliseconds, or seconds where it failed and was
    /// repeated.
    ///
    /// # Panics
    ///
    /// When the servers do not find together.
    pub fn renew(&mut self) -> Duration {
        let masters: Vec<u16> = self
            .masters()
            .into_iter()
            .map(|master| master.port())
            .collect();
        let old = self.nodes.len();
        for _ in &masters {
            self.add();
            self.introduce(&self.nodes[self.nodes.len() - 1]);
        }
        self.wait_until_known();
        let new = &self.nodes[old..];
        masters
            .iter()
            .zip(new)
            .for_each(|(&master, new)| self.follow(self.at(master), new));
        self.wait_until_whole();
        let mut longest = Duration::ZERO;
        for (&master, new) in masters.iter().zip(new) {
            let master = self.at(master);
            wait::until("a master to know its replica", AGREEING, || {
                let replicas = master.command(&["CLUSTER", "REPLICAS", self.id(master)]);
                replicas
                    .items()
                    .iter()
                    .any(|replica| replica.text().starts_with(self.id(new)))
            });
            let begun = Instant::now();
            let mut asked: Option<Instant> = None;
            wait::until("a replica to take over", AGREEING, || {
                // Not sooner: asked again it begins anew, and its master's clients wait on.
                if asked.is_none_or(|asked| asked.elapsed() > GIVES_UP) {
                    assert_eq!(new.command(&["CLUSTER", "FAILOVER"]).text(), "OK");
                    asked = Some(Instant::now());
                }
                field(new, "replication", "role") == "master"
            });
            longest = longest.max(begun.elapsed());
            // Who has not heard of the last one may not vote for the next, for seconds.
            self.wait_until_whole();
        }
        longest
    }
}
