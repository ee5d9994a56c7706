//! Reports to an inner layer how long the client has to wait for an outer one.

use std::time::Duration;

use http::Extensions;
use tollgate::{Decision, PolicySet};

/// Stores the longest wait of the layers that have admitted a request and have no unit left. It is an extension of the
/// request. A layer further inside that denies the request reports this wait to the client where it is the longest.
#[derive(Clone)]
pub(crate) struct OuterWait {
    wait: Duration,
    policies: PolicySet,
    /// The index of the policy that the client waits for.
    index: usize,
}

impl OuterWait {
    /// Returns the wait that the outer layers have stored.
    pub(crate) fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// Stores the wait for the spent policies of an admitted request, unless it is shorter than the stored one.
    #[cold]
    pub(crate) fn store(decision: &Decision, jitter: Duration, extensions: &mut Extensions) {
        let spent = decision.states().enumerate().filter(|(_, state)| state.remaining() == 0);
        let Some((index, state)) = spent.max_by_key(|(_, state)| state.more_after()) else { return };
        let wait = state.more_after().saturating_add(jitter);
        if Self::of(extensions).is_none_or(|outer| outer.wait < wait) {
            extensions.insert(Self { wait, policies: decision.policies().clone(), index });
        }
    }

    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    /// Returns the name of the policy that the client waits for.
    pub(crate) fn policy(&self) -> &str {
        self.policies.iter().nth(self.index).map_or("", |policy| policy.name())
    }
}
