//! One interface to all stores on a clock that the test moves, so that every law is written once.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use crate::calls::Script;
use tollgate::{
    Algorithm, Cost, Costs, Decision, Key, MemoryStore, Policy, PolicySet, Store,
    reservation::{ReservationId, Settlement},
    store::{Ceiling, Check, Clock, StoreFuture},
    testing,
};
use tollgate_tests::{Client, RedisServer, Reply, expiry_command};

/// A store under test.
pub trait Subject {
    /// Sets the clock, in microseconds; backward too.
    fn set_now(&mut self, now_us: u64);
    /// Returns the time of the clock in microseconds.
    fn now(&self) -> u64;
    /// Checks a key at costs, under a ceiling for each policy if there are any, with a tag for the
    /// logs among the policies.
    fn check_with(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        costs: &Costs,
        ceilings: Option<&[Ceiling]>,
        tag: &str,
    ) -> Decision;
    /// Looks at what a check would decide, under a ceiling for each policy if there are any.
    fn look_with(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        costs: &Costs,
        ceilings: Option<&[Ceiling]>,
    ) -> Decision;
    /// Refunds units that were spent at `spent_us`.
    fn refund_costs(&mut self, policies: &PolicySet, key: &Key, costs: &Costs, spent_us: u64);
    /// Refunds what a decision spent at `spent_us`.
    fn refund_decision(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        costs: &Costs,
        decision: &Decision,
        spent_us: u64,
    );
    /// Reserves costs under an id, and under a ceiling for each policy if there are any, for some
    /// microseconds.
    fn reserve_under(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        id: &ReservationId,
        costs: &Costs,
        ceilings: Option<&[Ceiling]>,
        life_us: u64,
    ) -> Decision;
    /// Settles a reservation at costs, by the commit of this number.
    fn commit(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        id: &ReservationId,
        costs: &Costs,
        number: u64,
    ) -> Settlement;
    /// Resets a key.
    fn reset(&mut self, policies: &PolicySet, key: &Key);
    /// Returns the state in the form in which Redis stores it.
    fn stored(&mut self, policy: &Policy, key: &Key) -> Option<Stored>;

    /// Charges units to every policy as a debt, although they need not fit. At most a thousand
    /// units, where a log stores each.
    fn owe(&mut self, policies: &PolicySet, key: &Key, units: u64) {
        let is_logged = policies
            .iter()
            .any(|policy| policy.algorithm() == Algorithm::SlidingLog);
        let units = if is_logged { units.min(1_000) } else { units };
        let id = ReservationId::try_new(format!("debt-{}", self.now())).expect("an id");
        let _ = self.reserve(policies, key, &id, &Costs::new(Cost::ZERO), 1);
        let _ = self.commit(policies, key, &id, &Costs::new(Cost::new(units)), 1);
    }

    /// Checks a key at costs, with a tag for the logs among the policies.
    fn check_costs(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        costs: &Costs,
        tag: &str,
    ) -> Decision {
        self.check_with(policies, key, costs, None, tag)
    }

    /// Checks a key at costs, under a ceiling for each policy.
    fn check_under(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        costs: &Costs,
        ceilings: &[Ceiling],
    ) -> Decision {
        self.check_with(policies, key, costs, Some(ceilings), "")
    }

    /// Looks at what a check would decide.
    fn look_costs(&mut self, policies: &PolicySet, key: &Key, costs: &Costs) -> Decision {
        self.look_with(policies, key, costs, None)
    }

    /// Checks a key at one cost for all policies.
    fn check(&mut self, policies: &PolicySet, key: &Key, cost: u64) -> Decision {
        self.check_costs(policies, key, &Costs::new(Cost::new(cost)), "")
    }

    /// Looks at what a check at one cost for all policies would decide.
    fn look(&mut self, policies: &PolicySet, key: &Key, cost: u64) -> Decision {
        self.look_costs(policies, key, &Costs::new(Cost::new(cost)))
    }

    /// Refunds units of all policies that were spent at `spent_us`.
    fn refund(&mut self, policies: &PolicySet, key: &Key, cost: u64, spent_us: u64) {
        self.refund_costs(policies, key, &Costs::new(Cost::new(cost)), spent_us);
    }

    /// Reserves costs under an id for some microseconds.
    fn reserve(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        id: &ReservationId,
        costs: &Costs,
        life_us: u64,
    ) -> Decision {
        self.reserve_under(policies, key, id, costs, None, life_us)
    }

    /// Moves the clock forward.
    fn advance(&mut self, by_us: u64) {
        let now = self.now();
        self.set_now(now + by_us);
    }

    /// Looks at a key without spending.
    fn peek(&mut self, policies: &PolicySet, key: &Key) -> Decision {
        self.check(policies, key, 0)
    }
}

/// Holds a state, some permits or a record, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The bytes. Each entry of a log follows its length.
    pub value: Vec<u8>,
    /// The time at which they expire, in milliseconds since the Unix epoch.
    pub expires_ms: u64,
}

impl From<(Vec<u8>, u64)> for Stored {
    fn from((value, expires_ms): (Vec<u8>, u64)) -> Self {
        Self { value, expires_ms }
    }
}

/// Runs `run` with a check that has these costs, under a ceiling for each policy if there are any.
///
/// # Panics
///
/// Panics when the costs do not name the policies of the set.
pub(crate) fn with_check<R>(
    policies: &PolicySet,
    key: &Key,
    costs: &Costs,
    ceilings: Option<&[Ceiling]>,
    run: impl FnOnce(Check<'_>) -> R,
) -> R {
    let charge = testing::charge(policies, costs, ceilings);
    let charge = charge.expect("costs for the policies of the set");
    run(testing::check(policies, key, &charge))
}

/// Returns the answer of a store in the process.
fn now<T: Unpin>(answer: StoreFuture<T>) -> T {
    let answer = answer.into_ready().expect("in process");
    answer.expect("an answer")
}

/// The time at which the clocks start, in microseconds. It is far in the future, so that no key
/// expires by the server's clock, and no multiple of a usual period.
pub const START_US: u64 = 4_000_000_000_000_000 + 1_234_567;

/// The in-process store.
#[derive(Debug)]
pub struct InMemory {
    store: MemoryStore,
    clock: Clock,
}

impl InMemory {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        let clock = Clock::manual(START_US);
        Self {
            store: MemoryStore::builder().clock(clock.clone()).build(),
            clock,
        }
    }
}

impl InMemory {
    /// Returns the record of a reservation that has not lapsed, in the form in which Redis stores
    /// it.
    #[must_use]
    pub fn record(&self, policies: &PolicySet, key: &Key, id: &ReservationId) -> Option<Stored> {
        testing::stored_record(&self.store, policies, key, id).map(Stored::from)
    }
}

impl Default for InMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl Subject for InMemory {
    fn set_now(&mut self, now_us: u64) {
        self.clock.set(now_us);
    }

    fn now(&self) -> u64 {
        self.clock.now_us()
    }

    fn check_with(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        costs: &Costs,
        ceilings: Option<&[Ceiling]>,
        tag: &str,
    ) -> Decision {
        let check = |check: Check<'_>| self.store.check(check.with_tag(tag.as_bytes()));
        now(with_check(policies, key, costs, ceilings, check))
    }

    fn look_with(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        costs: &Costs,
        ceilings: Option<&[Ceiling]>,
    ) -> Decision {
        let look = |check: Check<'_>| self.store.look(check);
        now(with_check(policies, key, costs, ceilings, look))
    }

    fn refund_costs(&mut self, policies: &PolicySet, key: &Key, costs: &Costs, spent_us: u64) {
        with_check(policies, key, costs, None, |check| {
            testing::refund(&self.store, check, spent_us);
        });
    }

    fn refund_decision(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        costs: &Costs,
        decision: &Decision,
        _spent_us: u64,
    ) {
        let refund = |check: Check<'_>| self.store.refund(check, Some(decision));
        now(with_check(policies, key, costs, None, refund));
    }

    fn reserve_under(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        id: &ReservationId,
        costs: &Costs,
        ceilings: Option<&[Ceiling]>,
        life_us: u64,
    ) -> Decision {
        let life = Duration::from_micros(life_us);
        let reserve = |check: Check<'_>| self.store.reserve(check, id, life);
        now(with_check(policies, key, costs, ceilings, reserve))
    }

    fn commit(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        id: &ReservationId,
        costs: &Costs,
        number: u64,
    ) -> Settlement {
        with_check(policies, key, costs, None, |check| {
            testing::commit(&self.store, check, id, number)
        })
    }

    fn reset(&mut self, policies: &PolicySet, key: &Key) {
        now(self.store.reset(Check::new(policies, key, Cost::ZERO)));
    }

    fn stored(&mut self, policy: &Policy, key: &Key) -> Option<Stored> {
        testing::stored(&self.store, policy, key).map(Stored::from)
    }
}

/// The scripts at a server, called directly.
#[derive(Debug)]
pub struct InRedis {
    /// The server.
    pub server: RedisServer,
    /// A connection to it.
    pub client: Client,
    now_us: u64,
    loaded: HashSet<String>,
    /// A set for each script: scripts end with the last set that uses them, and streams draw the same
    /// ones again.
    pub(crate) kept: HashMap<String, PolicySet>,
}

impl InRedis {
    /// Starts a server.
    #[must_use]
    pub fn new() -> Self {
        Self::on(RedisServer::start())
    }

    /// Uses this server.
    ///
    /// # Panics
    ///
    /// When it does not listen.
    #[must_use]
    pub fn on(server: RedisServer) -> Self {
        let client = Client::connect(server.addr()).expect("the server that just started");
        Self {
            server,
            client,
            now_us: START_US,
            loaded: HashSet::new(),
            kept: HashMap::new(),
        }
    }

    /// Sends a command.
    ///
    /// # Panics
    ///
    /// When no reply comes.
    pub fn run<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Reply {
        self.client.command(words).expect("a reply")
    }

    /// Sends commands together, and returns their replies in order.
    ///
    /// # Panics
    ///
    /// When a reply does not come.
    pub fn run_all(&mut self, commands: impl IntoIterator<Item = Vec<String>>) -> Vec<Reply> {
        let bytes = |words: Vec<String>| words.into_iter().map(String::into_bytes).collect();
        let commands: Vec<Vec<Vec<u8>>> = commands.into_iter().map(bytes).collect();
        self.client.pipeline(&commands).expect("replies")
    }

    /// Loads a script, the first time that it is named.
    ///
    /// # Panics
    ///
    /// When the script does not compile.
    pub fn load(&mut self, text: &str) {
        if self.loaded.insert(text.to_owned()) {
            let reply = self.run(&["SCRIPT", "LOAD", text]);
            assert!(!reply.is_error(), "{}", reply.text());
        }
    }
}

/// Reads the reply of a reservation of these costs.
///
/// # Errors
///
/// The reply is not one that the script makes.
pub fn reserved(
    script: &Script,
    costs: impl Into<Costs>,
    reply: &Reply,
) -> Result<Decision, tollgate::Error> {
    let (status, record) = match reply {
        Reply::Array(parts) => match parts.as_slice() {
            [status, Reply::Bulk(record)] => (status.int(), record.as_slice()),
            _ => (-1, &[][..]),
        },
        _ => (-1, &[][..]),
    };
    script.reserved(costs, status, record)
}

/// Returns the integers of a reply, which is a list of integers or one integer.
#[must_use]
pub fn integers(reply: &Reply) -> Vec<i64> {
    match reply {
        Reply::Array(words) => words.iter().map(Reply::int).collect(),
        bare => vec![bare.int()],
    }
}

impl Default for InRedis {
    fn default() -> Self {
        Self::new()
    }
}

impl Subject for InRedis {
    fn set_now(&mut self, now_us: u64) {
        self.now_us = now_us;
    }

    fn now(&self) -> u64 {
        self.now_us
    }

    fn check_with(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        costs: &Costs,
        ceilings: Option<&[Ceiling]>,
        tag: &str,
    ) -> Decision {
        let script = Script::new(policies.clone()).under(ceilings.map(<[_]>::to_vec));
        self.load(script.text());
        let reply = self.run(&script.check_tagged(key, costs.clone(), tag, Some(self.now_us)));
        script
            .decision(costs.clone(), &integers(&reply))
            .expect("a decision")
    }

    fn look_with(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        costs: &Costs,
        ceilings: Option<&[Ceiling]>,
    ) -> Decision {
        let script = Script::new(policies.clone()).under(ceilings.map(<[_]>::to_vec));
        self.load(script.look_text());
        let reply = self.run(&script.look(key, costs.clone(), Some(self.now_us)));
        script
            .decision(costs.clone(), &integers(&reply))
            .expect("a decision")
    }

    fn refund_costs(&mut self, policies: &PolicySet, key: &Key, costs: &Costs, spent_us: u64) {
        let script = Script::new(policies.clone());
        self.load(script.refund_text());
        let reply = self.run(&script.refund(key, costs.clone(), Some(self.now_us), spent_us));
        assert_eq!(reply.int(), 1);
    }

    fn refund_decision(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        costs: &Costs,
        decision: &Decision,
        spent_us: u64,
    ) {
        let script = Script::new(policies.clone());
        self.load(script.refund_text());
        let call =
            script.refund_decision(key, costs.clone(), Some(self.now_us), decision, spent_us);
        assert_eq!(self.run(&call).int(), 1);
    }

    fn reserve_under(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        id: &ReservationId,
        costs: &Costs,
        ceilings: Option<&[Ceiling]>,
        life_us: u64,
    ) -> Decision {
        let script = Script::new(policies.clone()).under(ceilings.map(<[_]>::to_vec));
        self.load(if costs.cascades() {
            script.cascade_text()
        } else {
            script.reserve_text()
        });
        let reply = self.run(&script.reserve(key, id, costs.clone(), life_us, Some(self.now_us)));
        reserved(&script, costs.clone(), &reply).expect("a decision")
    }

    fn commit(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        id: &ReservationId,
        costs: &Costs,
        number: u64,
    ) -> Settlement {
        let script = Script::new(policies.clone());
        self.load(script.commit_text());
        let reply = self.run(&script.commit(key, id, costs.clone(), number, Some(self.now_us)));
        script.settlement(reply.int()).expect("a settlement")
    }

    fn reset(&mut self, policies: &PolicySet, key: &Key) {
        for at in own_keys(policies, key) {
            self.run(&["DEL".into(), at]);
        }
    }

    fn stored(&mut self, policy: &Policy, key: &Key) -> Option<Stored> {
        let at = Script::new(policy.clone()).keys(key).remove(0);
        let replies = self.run_all(state_commands(policy, at));
        stored_state(&replies[0], &replies[1])
    }
}

/// Returns the keys on the server of the states that belong to this key alone. A reset removes
/// them.
#[must_use]
pub fn own_keys(policies: &PolicySet, key: &Key) -> Vec<String> {
    let is_own = |policy: &Policy| {
        let branch = key.branches().get(usize::from(policy.branch()) - 1);
        branch.is_some_and(|branch| {
            policy
                .level()
                .is_none_or(|level| usize::from(level) == branch.levels())
        })
    };
    let keys = Script::new(policies.clone()).keys(key);
    policies
        .iter()
        .zip(keys)
        .filter(|(policy, _)| is_own(policy))
        .map(|(_, at)| at)
        .collect()
}

/// Returns the name of a state, as a store without a prefix has it.
#[must_use]
pub(crate) fn name_of(policy: &Policy, key: &Key) -> String {
    Script::new(policy.clone())
        .keys(key)
        .remove(0)
        .replacen("tollgate:", "", 1)
}

/// Returns the commands that show a state and its expiry.
#[must_use]
pub fn state_commands(policy: &Policy, at: String) -> [Vec<String>; 2] {
    let value = match policy.algorithm() {
        Algorithm::SlidingLog => vec!["LRANGE".into(), at.clone(), "0".into(), "-1".into()],
        _ => vec!["GET".into(), at.clone()],
    };
    [value, expiry_command(at)]
}

/// Reads the replies to [`state_commands`]. A key without expiry answers -1, which no stored state
/// has.
///
/// # Panics
///
/// When a reply is none of a state.
#[must_use]
pub fn stored_state(value: &Reply, expires: &Reply) -> Option<Stored> {
    let value = match value {
        Reply::Bulk(bytes) => bytes.clone(),
        Reply::Array(entries) if !entries.is_empty() => {
            let bytes = |entry: &Reply| match entry {
                Reply::Bulk(bytes) => [&[bytes.len() as u8], bytes.as_slice()].concat(),
                other => panic!("{other:?} is no entry of a log"),
            };
            entries.iter().flat_map(bytes).collect()
        }
        Reply::Nil | Reply::Array(_) => return None,
        other => panic!("{other:?} is no state"),
    };
    Some(Stored {
        value,
        expires_ms: expires.int() as u64,
    })
}
