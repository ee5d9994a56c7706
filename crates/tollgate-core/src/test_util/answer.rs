//! The answers that a test lets a store give.
//! The store that gives them in turn is in `scripted_store/`.

use std::{borrow::Cow, future::pending, time::Duration};

use tollgate_model::raw::ScriptedDecision;

use crate::{
    Cost, Decision, Error, ErrorKind, MemoryStore, Policy,
    store::{Check, CheckFuture, StoreFuture},
};

/// One answer of a [`ScriptedStore`](super::ScriptedStore) to a check.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ErrorKind, test_util::Answer};
///
/// let script = [
///     Answer::allow(),
///     Answer::deny(Duration::from_secs(30)).by("daily"),
///     Answer::fail(ErrorKind::ConnectionLost),
///     Answer::stall(),
/// ];
/// assert_ne!(script[0], script[1]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Allow,
    Deny {
        wait: Duration,
        /// `None` when every policy denies.
        by: Option<Cow<'static, str>>,
    },
    Fail(ErrorKind),
    Stall,
}

impl Answer {
    /// Allows the request. As on a fresh key, each policy has its burst left, less the cost.
    #[must_use]
    pub const fn allow() -> Self {
        Self(Kind::Allow)
    }

    /// Denies the request, by every policy. `retry_after` is the wait of the decision, at least 1
    /// µs.
    #[must_use]
    pub const fn deny(retry_after: Duration) -> Self {
        Self(Kind::Deny {
            wait: retry_after,
            by: None,
        })
    }

    /// Lets only the policy of this name deny the request. All other policies are then fresh. An
    /// answer that is not a denial stays as it is.
    ///
    /// The check panics when the limiter has no policy of this name.
    #[must_use]
    pub fn by(self, policy: impl Into<Cow<'static, str>>) -> Self {
        match self.0 {
            Kind::Deny { wait, .. } => Self(Kind::Deny {
                wait,
                by: Some(policy.into()),
            }),
            kind => Self(kind),
        }
    }

    /// Fails the check, so that the [`Outage`](crate::Outage) of the limiter decides.
    ///
    /// Use a kind that [`is_unavailable`](ErrorKind::is_unavailable), or [`ErrorKind::Timeout`].
    /// Other kinds are mistakes of the caller, and some of them are returned under every `Outage`.
    #[must_use]
    pub const fn fail(kind: ErrorKind) -> Self {
        Self(Kind::Fail(kind))
    }

    /// Never answers, so that the check ends at the [deadline](crate::LimiterBuilder::deadline) of
    /// the limiter.
    #[must_use]
    pub const fn stall() -> Self {
        Self(Kind::Stall)
    }

    pub(super) fn is_decision(&self) -> bool {
        matches!(self.0, Kind::Allow | Kind::Deny { .. })
    }

    /// Answers a check.
    ///
    /// # Panics
    ///
    /// When no policy has the name of the one that denies.
    pub(super) fn decide(&self, check: Check<'_>) -> CheckFuture {
        StoreFuture::ready(match &self.0 {
            Kind::Allow => Ok(on_a_fresh_key(check)),
            Kind::Deny { wait, by: None } => Ok(denial(check, |_| true, *wait)),
            Kind::Deny {
                wait,
                by: Some(name),
            } => {
                let mut names = check.policies.iter().map(|policy| policy.name());
                assert!(
                    names.any(|policy| policy == name),
                    "the limiter has no policy {name}, which the script lets deny"
                );
                Ok(denial(check, |policy| policy.name() == name, *wait))
            }
            Kind::Fail(kind) => Err(fault(*kind)),
            Kind::Stall => return StoreFuture::pending(pending()),
        })
    }
}

/// Returns the decision on a fresh key: it has the whole burst of each policy, less the cost.
fn on_a_fresh_key(check: Check<'_>) -> Decision {
    MemoryStore::new().decide(check)
}

/// Returns a denial with this wait, by the policies that `is_denying` selects.
fn denial(check: Check<'_>, is_denying: impl Fn(&Policy) -> bool, wait: Duration) -> Decision {
    let fresh = on_a_fresh_key(Check::new(check.policies, check.key, Cost::ZERO));
    fresh.into_denial(check.charge(), is_denying, wait)
}

/// Returns the error of a store that fails because a test wants it to.
pub(super) fn fault(kind: ErrorKind) -> Error {
    Error::new(kind, "a test made the store fail")
}
