//! What the project's own tests look at: the bytes behind a state, and the call of a script.
//!
//! Behind the feature `testing`, and outside the promises of semantic versioning.

use crate::{Check, Cost, Decision, Error, Key, MemoryStore, Policy, PolicySet};

/// A stored state as Redis holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The value.
    pub value: Value,
    /// When the key expires, in milliseconds since the epoch.
    pub expires_ms: u64,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A string.
    Bytes(Vec<u8>),
    /// A list: a sliding log.
    List(Vec<Vec<u8>>),
}

/// What `store` holds for `key` under `policy`, in the form that the script stores.
#[must_use]
pub fn stored(store: &MemoryStore, policy: &Policy, key: &Key) -> Option<Stored> {
    store.stored(policy, key)
}

/// Gives back at once what `check` says was spent at `spent_us`.
pub fn refund(store: &MemoryStore, check: Check<'_>, spent_us: u64) {
    store.give_back(check, spent_us);
}

/// The calls that a [`RedisStore`](crate::RedisStore) makes for a set of policies.
#[cfg(feature = "redis")]
#[derive(Clone, Debug)]
pub struct Script {
    policies: PolicySet,
}

#[cfg(feature = "redis")]
impl Script {
    /// The calls for `policies`.
    #[must_use]
    pub fn new(policies: impl Into<PolicySet>) -> Self {
        Self { policies: policies.into() }
    }

    /// The text that decides.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.policies.plan().check.text
    }

    /// The name of the text that decides.
    #[must_use]
    pub fn sha(&self) -> &str {
        &self.policies.plan().check.sha
    }

    /// The name of the text that gives back.
    #[must_use]
    pub fn refund_sha(&self) -> &str {
        &self.policies.plan().refund.sha
    }

    /// The text that gives back.
    #[must_use]
    pub fn refund_text(&self) -> &str {
        &self.policies.plan().refund.text
    }

    /// The key of each policy at the server.
    #[must_use]
    pub fn keys(&self, key: &Key) -> Vec<String> {
        self.policies.plan().keys("tollgate", key.encoded()).collect()
    }

    /// The arguments of `EVALSHA` for a check at `now_us`, or at the server's time.
    #[must_use]
    pub fn check(&self, key: &Key, cost: Cost, now_us: Option<u64>) -> Vec<String> {
        self.check_tagged(key, cost, "", now_us)
    }

    /// The same with a tag, which is sent when one of the policies is a log.
    #[must_use]
    pub fn check_tagged(&self, key: &Key, cost: Cost, tag: &str, now_us: Option<u64>) -> Vec<String> {
        let plan = self.policies.plan();
        let tag = plan.tagged.then(|| tag.to_owned());
        self.call(&plan.check.sha, key, cost, now_us, tag.as_slice())
    }

    /// The arguments of `EVALSHA` for a refund at `now_us` of what was spent at `spent_us`.
    #[must_use]
    pub fn refund(&self, key: &Key, cost: Cost, now_us: Option<u64>, spent_us: u64) -> Vec<String> {
        self.call(&self.policies.plan().refund.sha, key, cost, now_us, &[spent_us.to_string()])
    }

    /// The decision in a reply of integers; one alone stands for a bare integer.
    ///
    /// # Errors
    ///
    /// The reply is none that the script makes.
    pub fn decision(&self, cost: Cost, words: &[i64]) -> Result<Decision, Error> {
        let value = match words {
            [word] => redis::Value::Int(*word),
            words => redis::Value::Array(words.iter().copied().map(redis::Value::Int).collect()),
        };
        crate::redis::decode(&self.policies, cost, &value)
    }

    /// The name of the text that decides for many keys.
    #[must_use]
    pub fn batch_sha(&self) -> &str {
        &self.policies.plan().batch.sha
    }

    /// The text that decides for many keys.
    #[must_use]
    pub fn batch_text(&self) -> &str {
        &self.policies.plan().batch.text
    }

    /// The arguments of `EVALSHA` for as many checks of each key as stand beside it.
    #[must_use]
    pub fn batch(&self, keys: &[(Key, usize)], cost: Cost, now_us: Option<u64>) -> Vec<String> {
        let plan = self.policies.plan();
        let names: Vec<String> = keys.iter().flat_map(|(key, _)| self.keys(key)).collect();
        let mut call = vec!["EVALSHA".to_owned(), plan.batch.sha.clone(), names.len().to_string()];
        call.extend(names);
        call.push(now_us.map_or_else(String::new, |now| now.to_string()));
        call.push(cost.units().to_string());
        call.extend(plan.tagged.then(String::new));
        call.extend(plan.args.iter().cloned());
        if keys.iter().any(|&(_, count)| count != 1) {
            call.extend(keys.iter().map(|(_, count)| count.to_string()));
        }
        call
    }

    /// The decisions in the reply to a [batch](Self::batch): for each key those of its checks.
    ///
    /// # Errors
    ///
    /// The reply is none that the script makes.
    pub fn batch_decisions(
        &self,
        keys: &[(Key, usize)],
        cost: Cost,
        words: &[i64],
    ) -> Result<Vec<Vec<Decision>>, Error> {
        let value = redis::Value::Array(words.iter().copied().map(redis::Value::Int).collect());
        crate::redis::decode_batch(&self.policies, keys, cost, &value)
    }

    fn call(&self, sha: &str, key: &Key, cost: Cost, now_us: Option<u64>, more: &[String]) -> Vec<String> {
        let keys = self.keys(key);
        let mut call = vec!["EVALSHA".to_owned(), sha.to_owned(), keys.len().to_string()];
        call.extend(keys);
        call.push(now_us.map_or_else(String::new, |now| now.to_string()));
        call.push(cost.units().to_string());
        call.extend_from_slice(more);
        call.extend(self.policies.plan().args.iter().cloned());
        call
    }
}
