//! The state of a request between two steps.

use http::Response;
use tollgate::{
    Key,
    limiter::LimiterFuture,
    reservation::Reservation,
    store::{CheckFuture, StoreFuture},
};

use crate::{
    charge::Due,
    gate,
    key::Extraction,
    metrics::LabelIndex,
    rate_limit::{answer::Admission, joint::JointFuture, limits::LimitRef},
};

/// Says what happens to a request next.
pub(crate) type Verdict<B> = gate::Verdict<Admission, Step, Response<B>>;

/// Says what a request waits for.
#[allow(
    missing_debug_implementations,
    reason = "only the skeleton of the layers sees it"
)]
pub enum Step {
    /// Its limiter is looked up, to be checked with its key.
    LookUp(LimiterFuture, Box<Extraction>),
    /// The store has not answered yet.
    Check(CheckFuture, RequestContext),
    /// The store has not answered to a reservation yet. Boxed, because few layers reserve.
    Reserve(Box<(StoreFuture<Reservation>, RequestContext)>),
    /// Several limits have not decided yet.
    Decide(JointFuture),
}

/// Stores what is known of a request until the store answers.
#[allow(
    missing_debug_implementations,
    reason = "only the skeleton of the layers sees it"
)]
pub struct RequestContext {
    /// The limiter that is checked.
    pub(super) limit: LimitRef,
    /// The key of the request, where it is needed after the check.
    pub(super) key: Option<Box<Key>>,
    /// The charge that follows the response, if it does.
    pub(super) due: Due,
    pub(super) asked: Asked,
    /// The request is only counted. It stays so when the share that is enforced changes meanwhile.
    pub(super) is_shadow: bool,
    pub(super) labels: LabelIndex,
}

/// Says what the store was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// One cost for all policies.
    One,
    /// A cost for each policy. Costs that do not fit the policies are a wrong set-up.
    Each,
    /// A reservation, which charges the request, so that no final cost does. A store may hold none.
    Estimate,
}
