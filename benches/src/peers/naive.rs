//! Calls the same script over one shared connection, once for each check, with numbers in decimal.
//!
//! An application without a limiter library is often written like this. The client has no deadline:
//! a check takes as long as the server takes.

use std::collections::HashMap;

use redis::aio::MultiplexedConnection;
use tollgate::{Cost, Key, PolicySet};
use tollgate_test_support::calls::Script;

use super::{
    Costs,
    plain::{connect_eagerly, is_admitted},
};
use crate::{
    keys,
    load::{Answer, Decide},
    server::Server,
};

/// Holds the shared connection, and the calls.
#[derive(Debug)]
pub(crate) struct Naive {
    connection: MultiplexedConnection,
    sets: Vec<Set>,
    /// The keys on the server, for each key of a caller.
    keys: Vec<Vec<String>>,
    costs: Costs,
}

/// Holds what the calls for one set of policies have in common.
#[derive(Debug)]
struct Set {
    sha: String,
    /// The arguments. The second one is the cost.
    arguments: Vec<String>,
}

/// The words before the keys: `EVALSHA`, the SHA-1 and the number of keys.
const BEFORE_KEYS: usize = 3;

impl Naive {
    /// Loads the scripts, and connects to `address`, which is the server or a delay line before it.
    pub(crate) async fn new(
        server: &Server,
        address: &str,
        policies: &[PolicySet],
        keys: usize,
        costs: Costs,
    ) -> Self {
        let scripts: Vec<Script> = policies
            .iter()
            .map(|set| Script::new(set.clone()))
            .collect();
        let mut loaded: HashMap<&str, String> = HashMap::new();
        let sets = scripts.iter().map(|script| {
            let sha = loaded
                .entry(script.text())
                .or_insert_with(|| server.load(script.text()))
                .clone();
            let any = Key::from("any");
            let before = BEFORE_KEYS + script.keys(&any).len();
            Set {
                sha,
                arguments: script
                    .check_by_hand(&any, Cost::ONE, None)
                    .split_off(before),
            }
        });
        let sets = sets.collect();
        let of_key =
            |(number, key): (usize, String)| scripts[number % scripts.len()].keys(&Key::from(key));
        let keys = keys::first(keys).enumerate().map(of_key).collect();
        Self {
            connection: connect_eagerly(address).await,
            sets,
            keys,
            costs,
        }
    }
}

impl Decide for Naive {
    async fn decide(&self, key: usize) -> Answer {
        let Set { sha, arguments } = &self.sets[key % self.sets.len()];
        let (keys, cost) = (&self.keys[key], self.costs.next());
        let mut command = redis::cmd("EVALSHA");
        command.arg(sha).arg(keys.len()).arg(keys);
        command.arg(&arguments[0]).arg(cost).arg(&arguments[2..]);
        let reply = command.query_async(&mut self.connection.clone()).await;
        Answer::by_store(is_admitted(&reply.expect("the server answers")))
    }
}
