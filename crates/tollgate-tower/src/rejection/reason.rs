//! Why a request is rejected, with the status and the wait that follow: what a responder sees.
//! Who rejects, and when, is decided by each layer; the response is written in `problem.rs`.

use std::{error, fmt, time::Duration};

use http::{StatusCode, request::Parts};
use smallvec::SmallVec;
use tollgate_core::{
    Algorithm, Decision, Error, ErrorKind, Policy, limiter::PolicyState, permits::PermitDenied,
};

use crate::{
    headers,
    key::{KeyError, KeyErrorKind},
    outer_layers::OuterWait,
};

/// Describes a request that the middleware rejects, for the [responder](super::Respond).
#[doc(alias = "429")]
#[doc(alias = "503")]
#[doc(alias = "too many requests")]
#[derive(Clone, Copy)]
pub struct Rejection<'a> {
    reason: Reason<'a>,
    /// The states of the policies, if the request was denied. They are derived from the decision
    /// once, and the document and the headers read them here.
    states: &'a [PolicyState<'a>],
    retry_after: Option<Duration>,
    /// The wait for an outer layer, if it is the longest.
    outer: Option<&'a OuterWait>,
    request: &'a Parts,
}

/// Says why the middleware rejects a request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Reason<'a> {
    /// The quota is spent. If several limits deny, this is the decision with the longest wait.
    Denied(&'a Decision),
    /// A limit has an [amount of 0](tollgate_core::Quota::is_blocked): the tenant is
    /// [suspended](tollgate_core::limiter::Selection::Blocked), or a rule allows 0 requests.
    Blocked,
    /// The client is in a [denied network](crate::RateLimitBuilder::networks).
    Forbidden,
    /// The cost of the request is above the burst of a policy, so that the request can never fit.
    CostNeverFits(&'a Error),
    /// The request has no key.
    MissingKey(&'a KeyError),
    /// The service is [set up wrongly](crate::key::KeyErrorKind::Misconfigured), so that no request
    /// can be limited.
    Misconfigured(&'a KeyError),
    /// There is no decision. Most often, the store did not answer, and the limiter is
    /// [closed](tollgate_core::Outage::Closed) in an outage. The other causes are limits of a tenant
    /// that [could not be fetched](tollgate_core::tenants::SourceOutage::Closed), and a [lost
    /// permit](crate::concurrency#lost-permits).
    Unavailable(&'a Error),
    /// The key holds as many permits as it may: too many of its requests are in flight. A
    /// [`ConcurrencyLayer`](crate::concurrency::ConcurrencyLayer) rejects the request.
    NoPermit(&'a PermitDenied),
    /// The service is overloaded: an adaptive limiter of `tollgate-overload` sheds the request, or all
    /// permits of a limit that [protects the
    /// service](crate::concurrency::ConcurrencyBuilder::service_unavailable) are held.
    Overloaded(&'a Overload),
}

impl<'a> Reason<'a> {
    /// Returns the reason of a decision that denies: [`Blocked`](Self::Blocked) for a limit of 0, and
    /// [`Denied`](Self::Denied) for all others.
    #[inline]
    #[must_use]
    pub fn of_denial(decision: &'a Decision) -> Self {
        if decision.is_blocked() {
            Self::Blocked
        } else {
            Self::Denied(decision)
        }
    }

    /// Returns the reason of a request without a key.
    pub(crate) fn of_key_error(error: &'a KeyError) -> Self {
        if error.kind() == KeyErrorKind::Misconfigured {
            Self::Misconfigured(error)
        } else {
            Self::MissingKey(error)
        }
    }

    /// Returns the reason of a check without a decision.
    pub(crate) fn of_error(error: &'a Error) -> Self {
        match error.kind() {
            ErrorKind::CostExceedsBurst => Self::CostNeverFits(error),
            _ => Self::Unavailable(error),
        }
    }

    /// Returns the states of the policies, if the request was denied.
    // Inlined by force, and filled one by one: the states are built where they are read, instead of
    // being copied.
    #[inline(always)]
    pub(crate) fn states(self) -> SmallVec<[PolicyState<'a>; 4]> {
        let mut states = SmallVec::new();
        if let Self::Denied(decision) = self {
            decision.states().for_each(|state| states.push(state));
        }
        states
    }

    /// Returns the stable word for logs and metrics: `denied`, `blocked`, `forbidden`,
    /// `cost_never_fits`, `missing_key`, `misconfigured`, `unavailable`, `no_permit` or
    /// `overloaded`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::Blocked => "blocked",
            Self::Forbidden => "forbidden",
            Self::CostNeverFits(_) => "cost_never_fits",
            Self::MissingKey(_) => "missing_key",
            Self::Misconfigured(_) => "misconfigured",
            Self::Unavailable(_) => "unavailable",
            Self::NoPermit(_) => "no_permit",
            Self::Overloaded(_) => "overloaded",
        }
    }
}

impl<'a> Rejection<'a> {
    #[inline]
    pub(crate) fn new(
        reason: Reason<'a>,
        states: &'a [PolicyState<'a>],
        jitter: Duration,
        request: &'a Parts,
    ) -> Self {
        let own = states.iter().filter_map(PolicyState::retry_after).max();
        let own = own.or_else(|| {
            // A check of no units that a rule denies exceeds nothing itself.
            let spent = states.iter().filter(|state| state.remaining() == 0);
            spent.map(PolicyState::next_unit_after).max()
        });
        let own = match reason {
            Reason::Overloaded(overload) => Some(overload.retry_after()),
            Reason::NoPermit(denied) => Some(denied.retry_after()),
            _ => own,
        };
        let own = own.map(|own| own.saturating_add(jitter));
        let outer = own
            .and_then(|own| OuterWait::of(&request.extensions).filter(|outer| outer.wait() > own));
        let retry_after = outer.map(OuterWait::wait).or(own);
        Self {
            reason,
            states,
            retry_after,
            outer,
            request,
        }
    }

    /// Returns why the request is rejected.
    #[must_use]
    pub fn reason(&self) -> Reason<'a> {
        self.reason
    }

    /// Returns the head of the request.
    #[must_use]
    pub fn request(&self) -> &'a Parts {
        self.request
    }

    /// Returns the status that fits the reason: 429, 403, 413, 400, 404, 500 or 503. For a missing
    /// key it is the one that its error [has](KeyError::status).
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self.reason {
            Reason::Denied(_) | Reason::Blocked | Reason::NoPermit(_) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Reason::Forbidden => StatusCode::FORBIDDEN,
            Reason::CostNeverFits(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Reason::MissingKey(error) | Reason::Misconfigured(error) => error.status(),
            Reason::Unavailable(_) | Reason::Overloaded(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the decision, if the request was denied. If several limits deny, it is the decision
    /// with the longest wait.
    #[must_use]
    pub fn decision(&self) -> Option<&'a Decision> {
        match self.reason {
            Reason::Denied(decision) => Some(decision),
            _ => None,
        }
    }

    /// Returns the states of the policies, in the order of the limiter. Empty unless the request
    /// was denied.
    ///
    /// If several limits deny, the states of the limit with the longest wait come first.
    #[must_use]
    pub fn states(&self) -> &'a [PolicyState<'a>] {
        self.states
    }

    /// Returns the name of the policy that the client waits for, if the request was denied. `None`
    /// for a policy that is hidden.
    pub(super) fn awaited_policy(&self) -> Option<&'a str> {
        if let Some(outer) = self.outer {
            return outer.policy();
        }
        let state = match (self.states, self.reason) {
            ([state], _) => *state,
            (_, Reason::Denied(decision)) => decision.strictest()?,
            _ => return None,
        };
        let policy = state.policy();
        (!policy.is_hidden()).then(|| policy.name())
    }

    /// Returns the policies that deny the request and are not hidden.
    pub(super) fn violated(&self) -> impl Iterator<Item = &'a Policy> {
        let exceeded = self.states.iter().filter(|state| state.is_exceeded());
        exceeded
            .map(PolicyState::policy)
            .filter(|policy| !policy.is_hidden())
    }

    /// Returns whether a policy that is hidden denies the request.
    pub(super) fn is_hidden(&self) -> bool {
        let mut states = self.states.iter();
        states.any(|state| state.is_exceeded() && state.policy().is_hidden())
    }

    /// Returns whether a [lockout](tollgate_core::Policy::lockout) denies the request: its client has
    /// failed too often.
    pub(super) fn is_locked_out(&self) -> bool {
        let mut violated = self.violated();
        violated.any(|policy| matches!(policy.algorithm(), Algorithm::Lockout { .. }))
    }

    /// Returns the time until the request fits, if it was denied. If it was shed or got no permit,
    /// the time is an estimate.
    ///
    /// For a denial it is the exact time of this layer, plus the
    /// [jitter](crate::RateLimitBuilder::retry_jitter). If an outer layer has no unit left for a
    /// longer time, it is the time of that layer, unless that layer may give units back for the
    /// response.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the value of `Retry-After`, if the request was denied, shed or got no permit: whole
    /// seconds, rounded up, at least 1.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after
            .map(|retry_after| headers::round_up(retry_after).max(1))
    }
}

// Omits the request, because its headers hold keys and secrets.
tollgate_core::debug_fields! { Rejection<'a>: reason, .. }

/// Describes a request that was shed, because too many requests are in flight.
///
/// An adaptive limiter of `tollgate-overload` returns it. A
/// [`ConcurrencyLayer`](crate::concurrency::ConcurrencyLayer) that protects the service reports it
/// too, and so can a [gate](crate::gate) of your own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload {
    in_flight: u32,
    limit: u32,
    retry_after: Duration,
}

impl Overload {
    /// Describes a request that met so many requests in flight, and should come back after a time.
    #[must_use]
    pub const fn new(in_flight: u32, limit: u32, retry_after: Duration) -> Self {
        Self {
            in_flight,
            limit,
            retry_after,
        }
    }

    /// Returns the number of requests that were in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the number of requests in flight that the limiter allows. For an adaptive limiter,
    /// it is the share of the limit that the class of the request may use.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the time after which the client should try again.
    ///
    /// It is an estimate, unlike the wait for a quota: nobody knows when a service is less busy. An
    /// adaptive limiter returns the mean latency of the last window, or the length of a window if
    /// that is longer. A concurrency limit returns [its own
    /// estimate](tollgate_core::permits::PermitDenied::retry_after).
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }
}

impl fmt::Display for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the service is overloaded: {} requests in flight, limit {}",
            self.in_flight, self.limit
        )
    }
}

impl error::Error for Overload {}
