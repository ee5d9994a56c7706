//! Answers a request: completes the response of the service, or builds that to a rejected request.

use std::{mem, sync::Arc};

use http::{Response, request::Parts};
use tollgate::{Decision, Error, ErrorKind};

use crate::{
    charge::{Charge, Outcome},
    decisions::Decisions,
    headers::{HeaderUpdate, ResponseDetails},
    metrics::LabelIndex,
    rate_limit::{
        limits::{Profile, Steps},
        reservation::MeteredReservation,
    },
    rejection::{Reason, Rejection, add_headers},
};

/// Stores what is left to do for an admitted request when the service has answered.
#[allow(
    missing_debug_implementations,
    reason = "only the skeleton of the layers sees it"
)]
pub struct Admission {
    headers: HeaderUpdate,
    /// Boxed, because few layers use it, and the response future that carries it is moved several
    /// times.
    extras: Option<Box<Extras>>,
}

/// Stores what only layers with some options do.
#[derive(Default)]
pub(super) struct Extras {
    pub(super) charge: Option<Charge>,
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
    pub(super) const fn new(headers: HeaderUpdate, extras: Option<Box<Extras>>) -> Self {
        Self { headers, extras }
    }

    /// Notes for the charge whether the service runs.
    #[inline]
    pub(super) fn set_running(&mut self, is_running: bool) {
        if let Some(charge) = self.charge() {
            charge.is_running = is_running;
        }
    }

    #[inline]
    fn charge(&mut self) -> Option<&mut Charge> {
        self.extras.as_mut()?.charge.as_mut()
    }

    /// Holds a reservation until the response body does, or until the request ends without one.
    pub(super) fn hold(&mut self, reservation: MeteredReservation) {
        self.extras.get_or_insert_default().reservation = Some(reservation);
    }

    /// Takes the reservation, for the response body.
    pub(super) fn take_reservation(&mut self) -> Option<MeteredReservation> {
        self.extras.as_mut()?.reservation.take()
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
        if let Some(extras) = self.extras.take()
            && extras.complete(response)
        {
            self.headers.forget_wait();
        }
        self.headers.add_to(response.headers_mut());
    }
}

impl Extras {
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

/// A decision that denies a request, and what the layer keeps for its policies.
pub(super) type Denial<'a> = (&'a Decision, Arc<Profile>);

impl<B: 'static> Steps<'_, B> {
    /// Builds the response to a rejected request.
    ///
    /// When several limits deny a request, `others` are those beside the one of the reason: the
    /// header fields list their policies too.
    pub(super) fn reject(
        self,
        reason: Reason<'_>,
        profile: Option<&Profile>,
        others: &[Denial<'_>],
        details: &ResponseDetails,
        parts: &Parts,
        labels: LabelIndex,
    ) -> Response<B> {
        self.limits
            .record_rejection(reason, labels, &self.limits.rpc_name(parts));
        let mut states = reason.states();
        for state in others.iter().flat_map(|(other, _)| other.states()) {
            if states
                .iter()
                .all(|held| held.policy().name() != state.policy().name())
            {
                states.push(state);
            }
        }
        let rejection = Rejection::new(reason, &states, details.jitter, parts);
        let mut response = self.responder.respond(&rejection);
        // Header fields that the responder has set stay as they are.
        let mut own_names = self.limits.options.headers.formats.own_names();
        let has_own =
            !others.is_empty() && own_names.any(|name| response.headers().contains_key(name));
        let adds_retry_after = self.responder.adds_retry_after(&rejection);
        let writer = profile.map(|profile| &profile.headers);
        add_headers(
            &rejection,
            writer,
            details,
            adds_retry_after,
            response.headers_mut(),
        );
        if self.limits.options.exposes_decisions
            && let Some(decisions) = parts.extensions.get::<Decisions>()
        {
            response.extensions_mut().insert(decisions.clone());
        }
        for (other, profile) in others.iter().filter(|_| !has_own) {
            profile
                .headers
                .update(other, other.states(), details)
                .add_to(response.headers_mut());
        }
        response
    }
}

/// Returns why a check without a decision rejects the request.
pub(super) fn reason_of(error: &Error) -> Reason<'_> {
    match error.kind() {
        ErrorKind::CostExceedsBurst => Reason::CostNeverFits(error),
        _ => Reason::Unavailable(error),
    }
}
