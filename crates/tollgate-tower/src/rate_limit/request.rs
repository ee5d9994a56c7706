//! What is known of one request: while it waits for the store, and until its response is written.
//! What all requests of a layer share is in `limits.rs`.

use std::mem;

use http::Response;
use tollgate_core::{
    Key,
    limiter::LimiterFuture,
    store::{CheckFuture, StoreFuture},
};

use crate::{
    charge::{Due, Outcome, UnsettledCharge},
    decisions::Decisions,
    gate,
    headers::HeaderUpdate,
    key::Extraction,
    metrics::LabelIndex,
    rate_limit::{
        joint::JointFuture,
        limits::LimitRef,
        reservation::{HeldReservation, MeteredReservation},
    },
};

/// Says what happens to a request next.
pub(crate) type StepVerdict<B> = gate::Verdict<Admission, Step, Response<B>>;

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
    Reserve(Box<(StoreFuture<HeldReservation>, RequestContext)>),
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

/// Stores what is left to do for an admitted request when the service has answered.
#[allow(
    missing_debug_implementations,
    reason = "only the skeleton of the layers sees it"
)]
pub struct Admission {
    headers: HeaderUpdate,
    /// Boxed, because few layers use it, and the response future that carries it is moved several
    /// times.
    deferred: Option<Box<Deferred>>,
}

/// Stores what is deferred to the response: layers with some options alone do it.
#[derive(Default)]
pub(super) struct Deferred {
    pub(super) charge: Option<UnsettledCharge>,
    pub(super) decisions: Option<Decisions>,
    /// The headers of a request that several limits decided.
    pub(super) headers: Vec<HeaderUpdate>,
    /// Settled when it is dropped.
    pub(super) reservation: Option<MeteredReservation>,
}

impl Admission {
    /// Admits a request without a decision.
    pub(super) const EXEMPT: Self = Self::new(HeaderUpdate::EMPTY, None);

    #[inline(always)]
    pub(super) const fn new(headers: HeaderUpdate, deferred: Option<Box<Deferred>>) -> Self {
        Self { headers, deferred }
    }

    /// Notes for the charge whether the service runs.
    #[inline]
    pub(super) fn set_running(&mut self, is_running: bool) {
        if let Some(charge) = self.charge() {
            charge.is_running = is_running;
        }
    }

    #[inline]
    fn charge(&mut self) -> Option<&mut UnsettledCharge> {
        self.deferred.as_mut()?.charge.as_mut()
    }

    /// Holds a reservation until the response body does, or until the request ends without one.
    pub(super) fn hold(&mut self, reservation: MeteredReservation) {
        self.deferred.get_or_insert_default().reservation = Some(reservation);
    }

    /// Takes the reservation, for the response body.
    pub(super) fn take_reservation(&mut self) -> Option<MeteredReservation> {
        self.deferred.as_mut()?.reservation.take()
    }

    /// Settles the charge or the reservation of a request whose service returned an error.
    pub(super) fn fail(&mut self) {
        drop(self.take_reservation());
        if let Some(charge) = self.charge() {
            charge.settle(Outcome::Failed);
        }
    }

    /// Completes the response of the service.
    // Inlined by force: the headers move once, from the future into the response.
    #[inline(always)]
    pub(super) fn complete<B>(&mut self, response: &mut Response<B>) {
        if let Some(deferred) = self.deferred.take()
            && deferred.complete(response)
        {
            self.headers.forget_wait();
        }
        self.headers.add_to(response.headers_mut());
    }
}

impl Deferred {
    /// Completes the response of the service. Returns whether units of the request are given back.
    fn complete<B>(mut self: Box<Self>, response: &mut Response<B>) -> bool {
        let mut is_refunded = false;
        if let Some(mut charge) = self.charge.take() {
            // The closure of the user reads a head without a body. It is lent to the closure and
            // put back.
            let (mut head, ()) = Response::new(()).into_parts();
            (head.status, head.version) = (response.status(), response.version());
            mem::swap(&mut head.headers, response.headers_mut());
            mem::swap(&mut head.extensions, response.extensions_mut());
            is_refunded = charge.settle(Outcome::Response(&head));
            mem::swap(&mut head.headers, response.headers_mut());
            mem::swap(&mut head.extensions, response.extensions_mut());
        }
        if let Some(decisions) = self.decisions.take() {
            decisions.insert_into(response.extensions_mut());
        }
        for update in &mut self.headers {
            if is_refunded {
                update.forget_wait();
            }
            update.add_to(response.headers_mut());
        }
        is_refunded
    }
}
