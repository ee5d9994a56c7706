//! One face for both stores, with a clock that the test moves, so that every law is stated once.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

pub mod policies;
pub mod stream;

use std::collections::HashSet;

use tollgate::{
    Algorithm, Check, Clock, Cost, Decision, Key, MemoryStore, Policy, PolicySet, Store,
    testing::{self, Script, Stored, Value},
};
use tollgate_tests::{Client, RedisServer, Reply};

/// A store under test.
pub trait Subject {
    /// Moves the clock, also backward.
    fn set_now(&mut self, now_us: u64);
    fn now(&self) -> u64;
    fn check(&mut self, policies: &PolicySet, key: &Key, cost: u32) -> Decision;
    fn refund(&mut self, policies: &PolicySet, key: &Key, cost: u32, spent_us: u64);
    fn reset(&mut self, policies: &PolicySet, key: &Key);
    /// The state as Redis stores it, or would.
    fn stored(&mut self, policy: &Policy, key: &Key) -> Option<Stored>;

    fn advance(&mut self, by_us: u64) {
        let now = self.now();
        self.set_now(now + by_us);
    }

    fn peek(&mut self, policies: &PolicySet, key: &Key) -> Decision {
        self.check(policies, key, 0)
    }
}

/// Far from any real clock, so that no key expires while a test moves its own; a multiple of no
/// usual period.
pub const START_US: u64 = 4_000_000_000_000_000 + 1_234_567;

pub struct InMemory {
    pub store: MemoryStore,
    clock: Clock,
}

impl InMemory {
    pub fn new() -> Self {
        let clock = Clock::manual(START_US);
        Self { store: MemoryStore::builder().clock(clock.clone()).build(), clock }
    }
}

impl Subject for InMemory {
    fn set_now(&mut self, now_us: u64) {
        self.clock.set(now_us);
    }

    fn now(&self) -> u64 {
        self.clock.now_us()
    }

    fn check(&mut self, policies: &PolicySet, key: &Key, cost: u32) -> Decision {
        let check = Check::new(policies, key, Cost::new(cost));
        self.store.check(check).into_ready().expect("in process").expect("a decision")
    }

    fn refund(&mut self, policies: &PolicySet, key: &Key, cost: u32, spent_us: u64) {
        testing::refund(&self.store, Check::new(policies, key, Cost::new(cost)), spent_us);
    }

    fn reset(&mut self, policies: &PolicySet, key: &Key) {
        self.store.reset(policies, key).into_ready().expect("in process").expect("a reset");
    }

    fn stored(&mut self, policy: &Policy, key: &Key) -> Option<Stored> {
        testing::stored(&self.store, policy, key)
    }
}

pub struct InRedis {
    pub server: RedisServer,
    pub client: Client,
    now_us: u64,
    loaded: HashSet<String>,
}

impl InRedis {
    pub fn new() -> Self {
        Self::on(RedisServer::start())
    }

    pub fn on(server: RedisServer) -> Self {
        let client = Client::connect(server.addr()).expect("the server that just started");
        Self { server, client, now_us: START_US, loaded: HashSet::new() }
    }

    pub fn run<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Reply {
        self.client.command(words).expect("a reply")
    }

    /// Makes the server know the script, once.
    pub fn load(&mut self, text: &str) {
        if self.loaded.insert(text.to_owned()) {
            let reply = self.run(&["SCRIPT", "LOAD", text]);
            assert!(!reply.is_error(), "{}", reply.text());
        }
    }
}

/// The integers of a reply; a bare one is a list of one.
pub fn words(reply: &Reply) -> Vec<i64> {
    match reply {
        Reply::Array(words) => words.iter().map(Reply::int).collect(),
        bare => vec![bare.int()],
    }
}

impl Subject for InRedis {
    fn set_now(&mut self, now_us: u64) {
        self.now_us = now_us;
    }

    fn now(&self) -> u64 {
        self.now_us
    }

    fn check(&mut self, policies: &PolicySet, key: &Key, cost: u32) -> Decision {
        let script = Script::new(policies.clone());
        self.load(script.text());
        let reply = self.run(&script.check(key, Cost::new(cost), Some(self.now_us)));
        script.decision(Cost::new(cost), &words(&reply)).expect("a decision")
    }

    fn refund(&mut self, policies: &PolicySet, key: &Key, cost: u32, spent_us: u64) {
        let script = Script::new(policies.clone());
        self.load(script.refund_text());
        let reply = self.run(&script.refund(key, Cost::new(cost), Some(self.now_us), spent_us));
        assert_eq!(reply.int(), 1);
    }

    fn reset(&mut self, policies: &PolicySet, key: &Key) {
        for at in Script::new(policies.clone()).keys(key) {
            self.run(&["DEL".into(), at]);
        }
    }

    fn stored(&mut self, policy: &Policy, key: &Key) -> Option<Stored> {
        let at = Script::new(policy.clone()).keys(key).remove(0);
        let [value, expires] = looks(policy, at);
        stored(&self.run(&value), &self.run(&expires))
    }
}

/// The commands that show a state and its expiry.
pub fn looks(policy: &Policy, at: String) -> [Vec<String>; 2] {
    let value = match policy.algorithm() {
        Algorithm::SlidingLog => vec!["LRANGE".into(), at.clone(), "0".into(), "-1".into()],
        _ => vec!["GET".into(), at.clone()],
    };
    [value, vec!["PEXPIRETIME".into(), at]]
}

/// What [`looks`] show. A key without expiry says -1, which no state of ours has.
pub fn stored(value: &Reply, expires: &Reply) -> Option<Stored> {
    let value = match value {
        Reply::Bulk(bytes) => Value::Bytes(bytes.clone()),
        Reply::Array(entries) if !entries.is_empty() => {
            let bytes = |entry: &Reply| match entry {
                Reply::Bulk(bytes) => bytes.clone(),
                other => panic!("no entry: {other:?}"),
            };
            Value::List(entries.iter().map(bytes).collect())
        }
        Reply::Nil | Reply::Array(_) => return None,
        other => panic!("no state: {other:?}"),
    };
    Some(Stored { value, expires_ms: expires.int() as u64 })
}

/// A small generator: SplitMix64. A failing test prints its seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}
