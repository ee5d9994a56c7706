//! Looks at each decision for those who want to know: which events it raises, and whose denial is
//! counted.
//! What an observer gets is defined in `mod.rs`, counts of keys are in `denied_keys.rs`.

use std::sync::Arc;

use tollgate_model::{
    PolicyState,
    raw::{DecisionParts, KeyParts, PolicyParts},
};

use super::{Event, KeyEvent, Observer};
use crate::{Algorithm, Cost, Decision, Key, limiter::DeniedKeys};

/// Looks at the decisions of a limiter for those who asked for it: an observer, and the sketch of
/// denied keys.
///
/// Few limiters have one, and a limiter without one pays a branch for it.
#[derive(Clone, Default)]
pub(crate) struct Watch {
    pub(crate) denied_keys: Option<DeniedKeys>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

impl Watch {
    /// Returns the watch, if anybody asked for it.
    pub(crate) fn if_used(self) -> Option<Self> {
        (self.denied_keys.is_some() || self.observer.is_some()).then_some(self)
    }

    /// Looks at the decision of a check. A look is none.
    // Not inlined: a limiter without a watch would pay for the larger stack frame.
    #[inline(never)]
    pub(crate) fn decided(&self, limiter: &str, key: &Key, decision: &Decision) {
        if decision.cost() == Cost::ZERO {
            return;
        }
        if decision.is_denied() {
            return self.denied(limiter, key, decision);
        }
        if let Some(observer) = &self.observer {
            allowed(&**observer, limiter, key, decision);
        }
    }

    /// Counts and shows a denial, once for each branch of the key that denies.
    fn denied(&self, limiter: &str, key: &Key, decision: &Decision) {
        for branch in 1..=key.branches().len() {
            let exceeded = |state: &PolicyState<'_>| {
                state.is_exceeded()
                    && (!key.has_branches() || usize::from(state.policy().branch()) == branch)
            };
            let Some(state) = decision
                .states()
                .filter(exceeded)
                .max_by_key(PolicyState::retry_after)
            else {
                continue;
            };
            let event = KeyEvent::new(
                limiter,
                key,
                &state,
                state.retry_after(),
                decision.degraded(),
            );
            if let Some(denied_keys) = &self.denied_keys {
                denied_keys.record(event.key());
            }
            self.show(&Event::Denied(event));
        }
    }

    /// Shows that a policy decided by the quota of an exception.
    pub(crate) fn used_exception(
        &self,
        limiter: &str,
        key: &Key,
        decision: &Decision,
        state: &PolicyState<'_>,
    ) {
        let wait = state.is_exceeded().then(|| state.retry_after()).flatten();
        let event = KeyEvent::new(limiter, key, state, wait, decision.degraded());
        self.show(&Event::Excepted(event));
    }

    pub(crate) fn show(&self, event: &Event<'_>) {
        if let Some(observer) = &self.observer {
            event.show(&**observer);
        }
    }
}

/// Shows what an admitted check did: it came near a limit, or began a lockout. Logs it too, as
/// nothing else does.
fn allowed(observer: &dyn Observer, limiter: &str, key: &Key, decision: &Decision) {
    for (at, state) in decision.states().enumerate() {
        let policy = state.policy();
        let event = |wait| KeyEvent::new(limiter, key, &state, wait, decision.degraded());
        if crosses_the_line(decision, at, &state) {
            tracing::debug!(name: "near_limit", limiter, policy = policy.name(), "a key came near its limit");
            Event::NearLimit(event(None)).show(observer);
        }
        // A check fits the failures that are left, so the one that takes the last of them begins
        // the lockout.
        let is_lockout = matches!(policy.algorithm(), Algorithm::Lockout { .. });
        if is_lockout && state.spent() == policy.quota().burst() && state.cost() > Cost::ZERO {
            tracing::debug!(name: "locked_out", limiter, policy = policy.name(), "a key was locked out");
            Event::LockedOut(event(Some(state.next_unit_after()))).show(observer);
        }
    }
}

/// Returns whether more than 80 % of the burst is spent after a check, and was not before.
fn crosses_the_line(decision: &Decision, at: usize, state: &PolicyState<'_>) -> bool {
    let policy = state.policy();
    let burst = policy.quota().burst();
    let is_beyond =
        |remaining: u64| u128::from(burst.saturating_sub(remaining)) * 5 > u128::from(burst) * 4;
    !policy.is_leased()
        && is_beyond(burst.saturating_sub(state.spent()))
        && !is_beyond(decision.remaining_before(at, state))
}
