//! One state, as the commands show it.
//! Rows and columns are laid out in `output.rs`. The key of a state is taken apart in
//! `state_key.rs`.

use std::time::Duration;

use serde::Serialize;
use tollgate::Quota;

use super::{reading::Reading, state_key::StateKey};

/// Describes the state of a policy for a subject at one moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StateEntry {
    pub(crate) subject: String,
    pub(crate) policy: String,
    pub(crate) algorithm: &'static str,
    /// The units that are spent.
    pub(crate) spent: u64,
    /// The units that can be spent at once, when the quota is known.
    pub(crate) limit: Option<u64>,
    /// The units that are spent beyond the limit, when the quota is known: they were charged
    /// although they did not fit.
    pub(crate) debt: Option<u64>,
    /// The microseconds after which the cost fits that was asked for, when the quota is known.
    /// `None` when it never fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fits_after_us: Option<u64>,
    /// The quota as text, when it is known.
    pub(crate) quota: Option<String>,
    /// The milliseconds until the state expires. Nothing is spent then.
    pub(crate) expires_ms: u64,
    pub(crate) redis_key: String,
    /// The Redis key of the units that processes hold, when the policy is leased.
    #[serde(skip)]
    pub(super) held_key: Option<String>,
    /// Keeps the value that was read, to compare it with the next scan.
    #[serde(skip)]
    pub(crate) reading: Reading,
    #[serde(skip)]
    pub(crate) known_quota: Option<Quota>,
}

impl StateEntry {
    pub(super) fn new(
        key: &StateKey,
        prefix: &str,
        spent: u64,
        quota: Option<&Quota>,
        expires_ms: u64,
        reading: Reading,
    ) -> Self {
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
    pub(crate) fn rename(&mut self, name: String) {
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
    pub(crate) fn share(&self) -> Option<f64> {
        self.limit
            .map(|limit| self.spent as f64 / limit.max(1) as f64)
    }

    /// Returns whether a request is denied now. `false` when the limit is not known.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_some_and(|limit| self.spent >= limit)
    }

    /// Returns the units that are left of the limit, or the debt, as text. Empty when the limit is
    /// not known.
    fn left(&self) -> String {
        match (self.limit, self.debt) {
            (Some(_), Some(debt)) if debt > 0 => format!("debt {debt}"),
            (Some(limit), _) => limit.saturating_sub(self.spent).to_string(),
            (None, _) => String::new(),
        }
    }

    /// Returns when the cost fits, as text.
    pub(crate) fn fits_in(&self) -> String {
        match (self.fits_after_us, self.limit) {
            (Some(0), _) => "now".to_owned(),
            // Rounded up: a request that comes at that time is admitted.
            (Some(wait_us), _) if wait_us < 60_000_000 => {
                format!("in {:.3} s", wait_us.div_ceil(1_000) as f64 / 1e3)
            }
            (Some(wait_us), _) => format!(
                "in {}",
                span(Duration::from_secs(wait_us.div_ceil(1_000_000)))
            ),
            (None, Some(_)) => "never".to_owned(),
            (None, None) => "at an unknown time".to_owned(),
        }
    }

    /// Returns the state as cells: spent, left, share in percent, time to expiry, key, policy,
    /// algorithm and quota.
    pub(crate) fn cells(&self) -> [String; 8] {
        [
            self.spent.to_string(),
            self.left(),
            self.share()
                .map(|share| format!("{:.1}", 100.0 * share))
                .unwrap_or_default(),
            span(Duration::from_millis(self.expires_ms)),
            self.subject.clone(),
            self.policy.clone(),
            self.algorithm.to_owned(),
            self.quota.clone().unwrap_or_default(),
        ]
    }

    /// Creates the state of a fixed window of the year 1970.
    #[cfg(test)]
    pub(crate) fn of_window(subject: &str, policy: &str, count: u64, limit: Option<u64>) -> Self {
        use tollgate::store::StoredState;

        use super::state_key::Kind;

        let key = StateKey {
            subject: subject.to_owned(),
            policy: policy.to_owned(),
            kind: Kind::parse("f1").expect("a fixed window"),
        };
        let quota = limit.map(|limit| Quota::new(limit, Duration::from_secs(60)));
        let stored = StoredState::Window {
            start_us: 0,
            count,
            period_us: 60_000_000,
        };
        Self::new(
            &key,
            "tollgate",
            count,
            quota.as_ref(),
            60_000,
            Reading::new(stored, count, 0),
        )
    }
}

/// Returns a time as text, in its two greatest units.
pub(crate) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{}.{} s", seconds, time.subsec_millis() / 100),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}
