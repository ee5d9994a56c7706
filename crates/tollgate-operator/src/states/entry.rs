//! One state, as an operator sees it.
//! The key of a state is taken apart in `state_key.rs`. Texts of it are made by each program.

use serde::Serialize;
use tollgate::Quota;

use super::{reading::Reading, state_key::StateKey};

/// Describes the state of a policy for a subject at one moment.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Quota, store::StoredState};
/// use tollgate_operator::states::{Reading, StateEntry, StateKey};
///
/// let key = StateKey::parse("tollgate", b"tollgate:{acme}:api:f1").unwrap();
/// let stored = StoredState::Window { start_us: 0, count: 3, period_us: 60_000_000 };
/// let quota = Quota::per_minute(4);
/// let state = StateEntry::new(&key, "tollgate", Some(&quota), 60_000, Reading::new(stored, 3, 0));
/// assert_eq!((state.subject.as_str(), state.share()), ("acme", Some(0.75)));
/// assert!(!state.is_limited());
/// ```
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StateEntry {
    /// The encoded key, or another name of it.
    pub subject: String,
    /// The name of the policy.
    pub policy: String,
    /// The name of the algorithm.
    pub algorithm: &'static str,
    /// The units that are spent.
    pub spent: u64,
    /// The units that can be spent at once, when the quota is known.
    pub limit: Option<u64>,
    /// The units that are spent beyond the limit, when the quota is known: they were charged
    /// although they did not fit.
    pub debt: Option<u64>,
    /// The microseconds after which the cost fits that was asked for, when the quota is known.
    /// `None` when it never fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fits_after_us: Option<u64>,
    /// The quota as text, when it is known.
    pub quota: Option<String>,
    /// The milliseconds until the state expires. Nothing is spent then.
    pub expires_ms: u64,
    /// The key in Redis. In PostgreSQL, the name of the table stands before the key.
    pub redis_key: String,
    /// The Redis key of the units that processes hold, when the policy is leased.
    #[serde(skip)]
    pub(super) held_key: Option<String>,
    /// The value that was read, to compare it with the next scan.
    #[serde(skip)]
    pub reading: Reading,
    /// The quota, when it is known.
    #[serde(skip)]
    pub known_quota: Option<Quota>,
}

impl StateEntry {
    /// Creates the entry of a state that was read under a key. It expires after this many
    /// milliseconds.
    #[must_use]
    pub fn new(
        key: &StateKey,
        prefix: &str,
        quota: Option<&Quota>,
        expires_ms: u64,
        reading: Reading,
    ) -> Self {
        let spent = reading.spent();
        Self {
            subject: key.subject.clone(),
            policy: key.policy.clone(),
            algorithm: key.kind.name(),
            spent,
            limit: quota.map(Quota::burst),
            debt: quota.map(|quota| spent.saturating_sub(quota.burst())),
            fits_after_us: None,
            quota: quota.map(ToString::to_string),
            expires_ms,
            redis_key: key.redis_key(prefix),
            held_key: key.held_key(prefix),
            reading,
            known_quota: quota.copied(),
        }
    }

    /// Shows another name in the place of the key.
    pub fn rename(&mut self, name: String) {
        // The Redis key has the outermost level in braces and the inner ones behind.
        let (outermost, inner) = self
            .subject
            .split_at(self.subject.find('>').unwrap_or(self.subject.len()));
        self.redis_key = self.redis_key.replacen(
            &format!("{{{outermost}}}{inner}:"),
            &format!("{{{name}}}:"),
            1,
        );
        self.subject = name;
    }

    /// Returns the share of the limit that is spent, when the limit is known.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        self.limit
            .map(|limit| self.spent as f64 / limit.max(1) as f64)
    }

    /// Returns whether a request is denied now. `false` when the limit is not known.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.limit.is_some_and(|limit| self.spent >= limit)
    }
}
