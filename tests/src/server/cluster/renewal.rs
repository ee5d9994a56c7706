//! Servers that take the place of all that were there.

use super::{AGREEING, RedisCluster};
use crate::{server::field, wait};

impl RedisCluster {
    /// Starts a server for each master and makes it take over, as an operator does who replaces machines. The servers that
    /// were there are replicas then, without slots, and may be killed; the new ones stand behind them in
    /// [`nodes`](Self::nodes).
    ///
    /// # Panics
    ///
    /// When the servers do not find together.
    pub fn renew(&mut self) {
        let masters: Vec<u16> = self.masters().into_iter().map(|master| master.port()).collect();
        let old = self.nodes.len();
        for _ in &masters {
            self.add();
            self.introduce(&self.nodes[self.nodes.len() - 1]);
        }
        self.wait_until_known();
        let new = &self.nodes[old..];
        masters.iter().zip(new).for_each(|(&master, new)| self.follow(self.at(master), new));
        self.wait_until_whole();
        for new in new {
            wait::until("a replica to take over", AGREEING, || {
                field(new, "replication", "role") == "master" || {
                    new.command(&["CLUSTER", "FAILOVER"]);
                    false
                }
            });
        }
        self.wait_until_whole();
    }
}
