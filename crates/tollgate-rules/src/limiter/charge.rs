//! Charges the descriptors of a request, and refunds them.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tollgate::{Decision, Error, Key, Limiter};

use crate::Outcome;

/// One descriptor that was charged.
pub(super) struct Charge {
    pub(super) limiter: Limiter,
    pub(super) key: Key,
    pub(super) outcome: Outcome,
    /// The error says that the units never fit.
    pub(super) decision: Result<Decision, Error>,
    /// The rule is in shadow mode.
    #[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only a layer hides such decisions"))]
    pub(super) is_shadow: bool,
}

/// Refunds everything that was charged.
pub(super) async fn refund(charges: &[Option<Charge>]) {
    join_all(charges.iter().flatten().map(Charge::refund)).await;
}

impl Charge {
    async fn refund(&self) {
        let Ok(decision) = &self.decision else { return };
        if let Err(error) = self.limiter.refund_decision(self.key.clone(), decision, decision.cost()).await {
            tracing::debug!(limiter = self.limiter.name(), %error, "a denied request was not refunded");
        }
    }
}

/// Returns the time since the Unix epoch, from which the end of a window is told.
pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
