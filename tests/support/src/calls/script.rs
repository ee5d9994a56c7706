use redis::Value;
use tollgate::{
    Algorithm, Costs, Decision, Error, Key, Policy, PolicySet,
    limiter::Entry,
    store::Ceiling,
    testing::{self, Charge, Purpose, ahead_of, shape, wire},
};

/// Returns the entries in a reply that lists a log. Leaves out entries older than `period_us`.
///
/// # Errors
///
/// The reply is not one that the script makes.
pub fn entries(period_us: u64, reply: Value) -> Result<Vec<Entry>, Error> {
    wire::entries(period_us, reply)
}

/// Makes the calls of a [`RedisStore`](tollgate::RedisStore) for a set of policies.
#[derive(Clone, Debug)]
pub struct Script {
    policies: PolicySet,
    ceilings: Option<Vec<Ceiling>>,
}

impl Script {
    /// Creates the calls for `policies`.
    #[must_use]
    pub fn new(policies: impl Into<PolicySet>) -> Self {
        Self {
            policies: policies.into(),
            ceilings: None,
        }
    }

    /// Returns the calls for checks under a ceiling for each policy, if there are any.
    #[must_use]
    pub fn under(self, ceilings: Option<Vec<Ceiling>>) -> Self {
        Self { ceilings, ..self }
    }

    /// Returns whether the checks have ceilings.
    pub(super) fn is_capped(&self) -> bool {
        self.ceilings.is_some()
    }

    pub(super) fn policies(&self) -> &PolicySet {
        &self.policies
    }

    /// Returns the text that decides.
    #[must_use]
    pub fn text(&self) -> &str {
        &shape(&self.policies)
            .script(Purpose::Check, self.is_capped())
            .text
    }

    /// Returns the SHA-1 of the text that decides.
    #[must_use]
    pub fn sha(&self) -> &str {
        &shape(&self.policies)
            .script(Purpose::Check, self.is_capped())
            .sha
    }

    /// Returns the text of the script for a look: what a check would decide.
    #[must_use]
    pub fn look_text(&self) -> &str {
        &shape(&self.policies)
            .script(Purpose::Look, self.is_capped())
            .text
    }

    /// Returns the SHA-1 of the script for a look.
    #[must_use]
    pub fn look_sha(&self) -> &str {
        &shape(&self.policies)
            .script(Purpose::Look, self.is_capped())
            .sha
    }

    /// Returns the words of `EVALSHA` for a look. The reply is that of a check.
    #[must_use]
    pub fn look(&self, key: &Key, costs: impl Into<Costs>, now_us: Option<u64>) -> Vec<Vec<u8>> {
        let packed = wire::pack(time(now_us), self.charge(costs).borrow(), &self.policies);
        let mut call = call(self.look_sha(), &self.keys(key), &packed);
        call.extend(is_tagged(&self.policies).then(Vec::new));
        call
    }

    /// Returns the SHA-1 of the text that refunds.
    #[must_use]
    pub fn refund_sha(&self) -> &str {
        &shape(&self.policies)
            .script(Purpose::Refund, self.is_capped())
            .sha
    }

    /// Returns the text that refunds.
    #[must_use]
    pub fn refund_text(&self) -> &str {
        &shape(&self.policies)
            .script(Purpose::Refund, self.is_capped())
            .text
    }

    /// Returns the key of each policy on the server.
    #[must_use]
    pub fn keys(&self, key: &Key) -> Vec<String> {
        keys(&self.policies, key).collect()
    }

    /// Returns the words of `EVALSHA` for a check at `now_us`, or at the server's time.
    #[must_use]
    pub fn check(&self, key: &Key, costs: impl Into<Costs>, now_us: Option<u64>) -> Vec<Vec<u8>> {
        self.check_tagged(key, costs, "", now_us)
    }

    /// Returns the words of a check as a person types them, in decimal.
    #[must_use]
    pub fn check_by_hand(
        &self,
        key: &Key,
        costs: impl Into<Costs>,
        now_us: Option<u64>,
    ) -> Vec<String> {
        let own = self.own_by_hand(now_us, costs);
        let keys = self.keys(key);
        let call = [
            "EVALSHA".to_owned(),
            self.sha().to_owned(),
            keys.len().to_string(),
        ]
        .into_iter();
        let tag = is_tagged(&self.policies).then(String::new);
        call.chain(keys)
            .chain(own)
            .chain(self.numbers())
            .chain(tag)
            .collect()
    }

    /// Returns the words of a refund as a person types them, in decimal.
    #[must_use]
    pub fn refund_by_hand(
        &self,
        key: &Key,
        costs: impl Into<Costs>,
        now_us: Option<u64>,
        spent_us: u64,
    ) -> Vec<String> {
        let own = self.own_by_hand(now_us, costs);
        let keys = self.keys(key);
        let call = [
            "EVALSHA".to_owned(),
            self.refund_sha().to_owned(),
            keys.len().to_string(),
        ]
        .into_iter();
        let is_queued = |policy: &&Policy| is_queued(policy.algorithm(), self.is_capped());
        let ends = self
            .policies
            .iter()
            .filter(is_queued)
            .flat_map(|_| ["-1".to_owned(), "0".to_owned()]);
        call.chain(keys)
            .chain(own)
            .chain([spent_us.to_string()])
            .chain(self.numbers())
            .chain(ends)
            .collect()
    }

    /// Returns the time and the costs in decimal.
    fn own_by_hand(&self, now_us: Option<u64>, costs: impl Into<Costs>) -> Vec<String> {
        let charge = self.charge(costs);
        let costs = charge
            .borrow()
            .iter(self.policies.len())
            .map(|cost| cost.units().to_string());
        [now_us.map_or_else(String::new, |now_us| now_us.to_string())]
            .into_iter()
            .chain(costs)
            .collect()
    }

    /// Returns the cost for each policy.
    ///
    /// # Panics
    ///
    /// Panics when the costs name a policy that is not in the set.
    pub(super) fn charge(&self, costs: impl Into<Costs>) -> Charge {
        charge(costs, &self.policies, self.ceilings.as_deref())
    }

    fn numbers(&self) -> impl Iterator<Item = String> {
        self.policies
            .iter()
            .flat_map(wire::numbers)
            .map(|number| number.to_string())
    }

    /// Returns the words of a check with a tag. The tag is sent when one of the policies is a log.
    #[must_use]
    pub fn check_tagged(
        &self,
        key: &Key,
        costs: impl Into<Costs>,
        tag: &str,
        now_us: Option<u64>,
    ) -> Vec<Vec<u8>> {
        let packed = wire::pack(time(now_us), self.charge(costs).borrow(), &self.policies);
        let mut call = call(self.sha(), &self.keys(key), &packed);
        call.extend(is_tagged(&self.policies).then(|| tag.as_bytes().to_vec()));
        call
    }

    /// Returns the words of a check at `now_us` by a process whose clock shows `seen_us`.
    #[must_use]
    pub fn check_seen(
        &self,
        key: &Key,
        costs: impl Into<Costs>,
        now_us: u64,
        seen_us: u64,
    ) -> Vec<Vec<u8>> {
        let packed = wire::pack_seen(
            now_us as f64,
            seen_us as f64,
            self.charge(costs).borrow(),
            &self.policies,
        );
        call(self.sha(), &self.keys(key), &packed)
    }

    /// Returns the words of `EVALSHA` for a refund at `now_us` of units that were spent at
    /// `spent_us`.
    #[must_use]
    pub fn refund(
        &self,
        key: &Key,
        costs: impl Into<Costs>,
        now_us: Option<u64>,
        spent_us: u64,
    ) -> Vec<Vec<u8>> {
        let charge = self.charge(costs);
        let packed = wire::pack_refund(
            time(now_us),
            charge.borrow(),
            spent_us as f64,
            &self.policies,
            self.is_capped(),
            |_| None,
        );
        call(self.refund_sha(), &self.keys(key), &packed)
    }

    /// Returns the words of `EVALSHA` for a refund of what a decision spent at `spent_us`.
    #[must_use]
    pub fn refund_decision(
        &self,
        key: &Key,
        costs: impl Into<Costs>,
        now_us: Option<u64>,
        decision: &Decision,
        spent_us: u64,
    ) -> Vec<Vec<u8>> {
        let (charge, spent) = (self.charge(costs), spent_us as f64);
        let ahead = |at| ahead_of(decision, at);
        let packed = wire::pack_refund(
            time(now_us),
            charge.borrow(),
            spent,
            &self.policies,
            self.is_capped(),
            ahead,
        );
        call(self.refund_sha(), &self.keys(key), &packed)
    }

    /// Reads the decision in a reply of integers. One integer alone stands for a bare integer.
    ///
    /// # Errors
    ///
    /// The reply is not one that the script makes.
    pub fn decision(&self, costs: impl Into<Costs>, words: &[i64]) -> Result<Decision, Error> {
        let value = match words {
            [word] => Value::Int(*word),
            words => Value::Array(words.iter().copied().map(Value::Int).collect()),
        };
        self.read(costs, &value)
    }

    /// Reads the decision in any reply.
    ///
    /// # Errors
    ///
    /// The reply is not one that the script makes.
    pub fn read(&self, costs: impl Into<Costs>, reply: &Value) -> Result<Decision, Error> {
        wire::decision(&self.policies, self.charge(costs).borrow(), 0, reply)
    }

    /// Returns the SHA-1 of the text that decides for many keys.
    #[must_use]
    pub fn batch_sha(&self) -> &str {
        &shape(&self.policies)
            .script(Purpose::Batch, self.is_capped())
            .sha
    }

    /// Returns the text that decides for many keys.
    #[must_use]
    pub fn batch_text(&self) -> &str {
        &shape(&self.policies)
            .script(Purpose::Batch, self.is_capped())
            .text
    }

    /// Returns the words of `EVALSHA` for a batch: each key with the number of its checks.
    #[must_use]
    pub fn batch(
        &self,
        keys: &[(Key, usize)],
        costs: impl Into<Costs>,
        now_us: Option<u64>,
    ) -> Vec<Vec<u8>> {
        let names: Vec<String> = keys.iter().flat_map(|(key, _)| self.keys(key)).collect();
        let mut call = call(
            self.batch_sha(),
            &names,
            &wire::pack(time(now_us), self.charge(costs).borrow(), &self.policies),
        );
        call.extend(is_tagged(&self.policies).then(Vec::new));
        if keys.iter().any(|&(_, count)| count != 1) {
            call.extend(keys.iter().map(|(_, count)| count.to_string().into_bytes()));
        }
        call
    }

    /// Reads the decisions in the reply to a [batch](Self::batch): for each key those of its
    /// checks.
    ///
    /// # Errors
    ///
    /// The reply is not one that the script makes.
    pub fn batch_decisions(
        &self,
        keys: &[(Key, usize)],
        costs: impl Into<Costs>,
        reply: &[u8],
    ) -> Result<Vec<Vec<Decision>>, Error> {
        self.read_batch(keys, costs, &Value::BulkString(reply.to_vec()))
    }

    /// Reads the decisions in any reply to a [batch](Self::batch).
    ///
    /// # Errors
    ///
    /// The reply is not one that the script makes.
    pub fn read_batch(
        &self,
        keys: &[(Key, usize)],
        costs: impl Into<Costs>,
        reply: &Value,
    ) -> Result<Vec<Vec<Decision>>, Error> {
        let charge = self.charge(costs);
        let policies = &self.policies;
        let runs = keys.iter().map(|&(_, count)| (policies, count));
        let mut reply = wire::BatchReply::new(runs, self.is_capped(), reply)?;
        let decisions = |&(_, count): &(Key, usize)| {
            let outcome = reply.next(policies, count)?;
            Ok((0..count)
                .map(|at| outcome.decision(at, policies, charge.borrow()))
                .collect())
        };
        keys.iter().map(decisions).collect()
    }
}

/// Returns the cost for each policy of a set, under a ceiling for each if there are any.
///
/// # Panics
///
/// Panics when the costs name a policy that is not in the set.
pub(super) fn charge(
    costs: impl Into<Costs>,
    policies: &PolicySet,
    ceilings: Option<&[Ceiling]>,
) -> Charge {
    testing::charge(policies, &costs.into(), ceilings).expect("costs for the policies of the set")
}

/// Returns whether a call sends tags.
pub(super) fn is_tagged(policies: &PolicySet) -> bool {
    let is_log = |policy: &Policy| policy.algorithm() == Algorithm::SlidingLog;
    policies.iter().any(is_log)
}

/// Returns whether a refund sends the end of the queue of a policy.
fn is_queued(algorithm: Algorithm, is_capped: bool) -> bool {
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => true,
        Algorithm::IntervalBucket => is_capped,
        _ => false,
    }
}

/// Returns the keys on the server, with the usual prefix.
pub(super) fn keys(policies: &PolicySet, key: &Key) -> impl Iterator<Item = String> {
    policies.iter().flat_map(|policy| {
        let mut text = b"tollgate:{".to_vec();
        wire::write_key(policy, key, &mut text);
        let state = String::from_utf8_lossy(&text).into_owned();
        let outstanding = policy
            .lease()
            .map(|_| format!("{state}{}", String::from_utf8_lossy(wire::OUTSTANDING)));
        [state].into_iter().chain(outstanding)
    })
}

/// Returns the words of `EVALSHA`, up to the numbers.
pub(super) fn call(sha: &str, keys: &[String], packed: &[u8]) -> Vec<Vec<u8>> {
    let words = ["EVALSHA", sha, &keys.len().to_string()]
        .map(|word| word.as_bytes().to_vec())
        .into_iter();
    let keys = keys.iter().map(|key| key.as_bytes().to_vec());
    words.chain(keys).chain([packed.to_vec()]).collect()
}

/// Returns the time argument of a script.
pub(super) fn time(now_us: Option<u64>) -> f64 {
    now_us.map_or(-1.0, |now_us| now_us as f64)
}
