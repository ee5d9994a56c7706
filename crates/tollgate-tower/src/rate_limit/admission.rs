//! What a layer knows of a request: what it waits for, and what is left to do for it once it is admitted.

use std::mem;

use http::Response;
use tollgate::{
    Cost, Costs, Key,
    limiter::LimiterFuture,
    reservation::Reservation,
    store::{CheckFuture, StoreFuture},
};

use crate::{
    charge::{Charge, Outcome},
    decisions::Decisions,
    gate,
    headers::HeaderUpdate,
    metrics::LabelIndex,
    rate_limit::{joint::JointFuture, limit::LimitRef, reservation::MeteredReservation},
};

/// Says what happens to a request next.
pub(crate) type Verdict<B> = gate::Verdict<Admission, Step, Response<B>>;

/// Says what a request waits for.
#[allow(missing_debug_implementations, reason = "only the skeleton of the layers sees it")]
pub enum Step {
    /// Its limiter is looked up.
    LookUp(LimiterFuture),
    /// The store has not answered yet.
    Check(CheckFuture, RequestContext),
    /// The store has not answered to a reservation yet. Boxed, because few layers reserve.
    Reserve(Box<(StoreFuture<Reservation>, RequestContext)>),
    /// A decider has not answered yet.
    Decide(JointFuture),
}

/// Stores what is known of a request until the store answers.
#[allow(missing_debug_implementations, reason = "only the skeleton of the layers sees it")]
pub struct RequestContext {
    /// The limiter that is checked.
    pub(crate) limit: LimitRef,
    /// The key of the request, where it is needed after the check.
    pub(crate) key: Option<Box<Key>>,
    pub(crate) cost: Cost,
    /// The cost for each policy, where it is needed after the check.
    pub(crate) costs: Option<Box<Costs>>,
    pub(crate) asked: Asked,
    /// The request is only counted. It stays so when the share that is enforced changes meanwhile.
    pub(crate) is_shadow: bool,
    pub(crate) labels: LabelIndex,
}

/// Says what the store was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// One cost for all policies.
    One,
    /// A cost for each policy. Costs that do not fit the policies are a wrong set-up.
    Each,
    /// A reservation, which charges the request, so that no final cost does. A store may hold none.
    Estimate,
}

/// Stores what is left to do for an admitted request when the service has answered.
#[allow(missing_debug_implementations, reason = "only the skeleton of the layers sees it")]
pub struct Admission {
    headers: HeaderUpdate,
    /// Boxed, because few layers use it, and the response future that carries it is moved several times.
    extras: Option<Box<Extras>>,
}

/// Stores what only layers with some options do.
#[derive(Default)]
pub(crate) struct Extras {
    pub(crate) charge: Option<Charge>,
    pub(crate) decisions: Option<Decisions>,
    /// The headers of a request that several limits decided.
    pub(crate) headers: Vec<HeaderUpdate>,
    /// Settled when it is dropped.
    pub(crate) reservation: Option<MeteredReservation>,
}

impl Admission {
    /// Admits a request without a decision.
    pub(crate) const EXEMPT: Self = Self { headers: HeaderUpdate::EMPTY, extras: None };

    #[inline(always)]
    pub(crate) fn new(headers: HeaderUpdate, extras: Option<Box<Extras>>) -> Self {
        Self { headers, extras }
    }

    /// Admits a request that several limits decided.
    pub(crate) fn with_extras(extras: Box<Extras>) -> Self {
        Self { headers: HeaderUpdate::EMPTY, extras: Some(extras) }
    }

    /// Notes for the charge whether the service runs.
    #[inline]
    pub(crate) fn set_running(&mut self, is_running: bool) {
        if let Some(charge) = self.charge() {
            charge.is_running = is_running;
        }
    }

    #[inline]
    fn charge(&mut self) -> Option<&mut Charge> {
        self.extras.as_mut()?.charge.as_mut()
    }

    /// Holds a reservation until the response body does, or until the request ends without one.
    pub(crate) fn hold(&mut self, reservation: MeteredReservation) {
        self.extras.get_or_insert_default().reservation = Some(reservation);
    }

    /// Takes the reservation, for the response body.
    pub(crate) fn take_reservation(&mut self) -> Option<MeteredReservation> {
        self.extras.as_mut()?.reservation.take()
    }

    /// Settles the charge or the reservation of a request whose service returned an error.
    pub(crate) fn fail(&mut self) {
        drop(self.take_reservation());
        if let Some(charge) = self.charge() {
            charge.settle(Outcome::Failed);
        }
    }

    /// Completes the response of the service.
    // Inlined by force: the headers move once, from the future into the response.
    #[inline(always)]
    pub(crate) fn complete<B>(&mut self, response: &mut Response<B>) {
        if let Some(extras) = self.extras.take() {
            extras.complete(response);
        }
        self.headers.add_to(response.headers_mut());
    }
}

impl Extras {
    fn complete<B>(mut self: Box<Self>, response: &mut Response<B>) {
        if let Some(mut charge) = self.charge.take() {
            // The closure of the user reads a head without a body. It is lent to the closure and put back.
            let (mut head, ()) = Response::new(()).into_parts();
            (head.status, head.version) = (response.status(), response.version());
            mem::swap(&mut head.headers, response.headers_mut());
            mem::swap(&mut head.extensions, response.extensions_mut());
            charge.settle(Outcome::Response(&head));
            mem::swap(&mut head.headers, response.headers_mut());
            mem::swap(&mut head.extensions, response.extensions_mut());
        }
        if let Some(decisions) = self.decisions.take() {
            decisions.insert_into(response.extensions_mut());
        }
        for update in &mut self.headers {
            update.add_to(response.headers_mut());
        }
    }
}
