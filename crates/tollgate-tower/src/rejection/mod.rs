//! Why the middleware answered by itself, and how.
//!
//! | reason | status | `Retry-After` |
//! |---|---|---|
//! | [denied](Reason::Denied) | 429 | whole seconds, rounded up, at least 1 |
//! | [cost never fits](Reason::CostNeverFits) | 413 | none: there is nothing to wait for |
//! | [missing key](Reason::MissingKey) | 400, or 500 when the service is set up wrongly | none |
//! | [unavailable](Reason::Unavailable) | 503 | none |
//!
//! A [responder](Respond) writes the answer: [`Problem`] unless told otherwise. The middleware
//! then adds what the responder left out: `Retry-After`, the `RateLimit` fields, and
//! `Cache-Control: no-store` on a denial. So no responder can forget to tell the client when to
//! come back.

mod accept;
mod completion;
mod kept;
mod problem;
mod respond;

use std::{fmt, time::Duration};

use http::{StatusCode, request::Parts};
use tollgate::{Decision, Error};

use crate::{
    fields,
    key::{KeyError, KeyErrorKind},
};

pub(crate) use completion::Completion;
pub use problem::Problem;
pub use respond::{Empty, Respond, RespondFn, respond_fn};

/// A request that the middleware answers by itself.
#[derive(Clone, Copy)]
pub struct Rejection<'a> {
    reason: Reason<'a>,
    retry_after: Option<Duration>,
    request: &'a Parts,
}

/// Why the middleware answers by itself.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Reason<'a> {
    /// The quota is spent.
    Denied(&'a Decision),
    /// The request costs more than a policy ever lets pass at once.
    CostNeverFits(&'a Error),
    /// Nobody knows whose quota the request spends.
    MissingKey(&'a KeyError),
    /// The store cannot decide, and the limiter is [closed](tollgate::Outage::Closed) then.
    Unavailable(&'a Error),
}

impl Reason<'_> {
    /// A word for logs and metrics.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::CostNeverFits(_) => "cost_never_fits",
            Self::MissingKey(_) => "missing_key",
            Self::Unavailable(_) => "unavailable",
        }
    }
}

impl<'a> Rejection<'a> {
    pub(crate) fn new(reason: Reason<'a>, retry_after: Option<Duration>, request: &'a Parts) -> Self {
        Self { reason, retry_after, request }
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> Reason<'a> {
        self.reason
    }

    /// The head of the request.
    #[must_use]
    pub fn request(&self) -> &'a Parts {
        self.request
    }

    /// The status that fits the reason.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self.reason {
            Reason::Denied(_) => StatusCode::TOO_MANY_REQUESTS,
            Reason::CostNeverFits(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Reason::MissingKey(error) if error.kind() == KeyErrorKind::Missing => StatusCode::BAD_REQUEST,
            Reason::MissingKey(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Reason::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The decision, when the request was denied.
    #[must_use]
    pub fn decision(&self) -> Option<&'a Decision> {
        match self.reason {
            Reason::Denied(decision) => Some(decision),
            _ => None,
        }
    }

    /// How long until the request would pass, when it was denied: exact.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// What `Retry-After` says: whole seconds, rounded up, at least 1.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after().map(|retry_after| fields::seconds(retry_after).max(1))
    }
}

impl fmt::Debug for Rejection<'_> {
    /// The request is not shown: its headers hold who it is from, and secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejection").field("reason", &self.reason).finish_non_exhaustive()
    }
}
