//! One state, as the commands show it.

use std::time::Duration;

use serde::Serialize;
use tollgate::Quota;

use super::state_key::StateKey;

/// Describes the state of a policy for a subject at one moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Entry {
    pub(crate) subject: String,
    pub(crate) policy: String,
    pub(crate) algorithm: &'static str,
    /// The units that are spent.
    pub(crate) spent: u64,
    /// The units that can be spent at once, when the quota is known.
    pub(crate) limit: Option<u64>,
    /// The quota as text, when it is known.
    pub(crate) quota: Option<String>,
    /// The milliseconds until the state expires. Nothing is spent then.
    pub(crate) expires_ms: u64,
    pub(crate) redis_key: String,
}

impl Entry {
    pub(super) fn new(key: &StateKey, prefix: &str, spent: u64, quota: Option<&Quota>, expires_ms: u64) -> Self {
        Self {
            subject: key.subject.clone(),
            policy: key.policy.clone(),
            algorithm: key.kind.name(),
            spent,
            limit: quota.map(Quota::burst),
            quota: quota.map(ToString::to_string),
            expires_ms,
            redis_key: key.redis_key(prefix),
        }
    }

    /// Returns the share of the limit that is spent, when the limit is known.
    pub(crate) fn share(&self) -> Option<f64> {
        self.limit.map(|limit| self.spent as f64 / limit.max(1) as f64)
    }

    /// Returns whether a request is denied now. `false` when the limit is not known.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_some_and(|limit| self.spent >= limit)
    }

    /// Returns the time until nothing is spent, as text.
    pub(crate) fn expires(&self) -> String {
        let time = Duration::from_millis(self.expires_ms);
        let seconds = time.as_secs();
        match seconds {
            0..60 => format!("{}.{} s", seconds, time.subsec_millis() / 100),
            60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
            3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
            _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
        }
    }
}
