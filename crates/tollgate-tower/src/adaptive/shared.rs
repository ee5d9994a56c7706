use http::{Response, request::Parts};
use http_body::Body;

use super::{
    builder::{Latency, Options},
    limiter::AdaptiveLimiter,
    priority::Priority,
    signal::Signal,
    slot::Slot,
};
use crate::{
    body::{GuardedBody, guard_response},
    charge::Outcome,
    rejection::{Overload, Reason, Respond, reject},
};

/// Stores what all clones of a layer and all of its services share.
pub(super) struct Shared<R> {
    pub(super) limiter: AdaptiveLimiter,
    pub(super) options: Options,
    pub(super) responder: R,
}

/// The body of a response of an [`Adaptive`](super::Adaptive) service: that of the inner service, and a slot.
pub type AdaptiveBody<B> = GuardedBody<B, Slot>;

impl<R> Shared<R> {
    /// Takes a slot, unless the request is exempt.
    pub(super) fn admit(&self, parts: &Parts) -> Result<Option<Slot>, Overload> {
        if self.options.exempt.as_ref().is_some_and(|exempt| exempt(parts)) {
            return Ok(None);
        }
        let priority = self.options.priority.as_ref().map_or(Priority::CRITICAL, |priority| priority(parts));
        self.limiter.try_acquire(priority).map(Some)
    }

    /// Builds the response to a request that is shed.
    pub(super) fn reject<B: Body>(&self, overload: &Overload, parts: &Parts) -> Response<AdaptiveBody<B>>
    where
        R: Respond<B>,
    {
        let reason = Reason::Overloaded(overload);
        tracing::debug!(
            reason = reason.as_str(),
            in_flight = overload.in_flight(),
            limit = overload.limit(),
            "rejected"
        );
        let Options { retry_jitter, labels, .. } = &self.options;
        reject(&self.responder, reason, *retry_jitter, labels, parts).map(GuardedBody::unguarded)
    }

    /// Counts a response, and gives the slot to its body.
    pub(super) fn complete<B: Body>(&self, response: Response<B>, slot: Option<Slot>) -> Response<AdaptiveBody<B>> {
        let Some(slot) = slot else { return response.map(GuardedBody::unguarded) };
        if self.options.signal.is_none() {
            let signal = Signal::of_head(response.status(), response.headers());
            return guard(response, slot, signal, self.options.latency);
        }
        // Only a closure of the user needs the head apart from the body, which copies both.
        let (head, body) = response.into_parts();
        let signal = self.options.signal(&Outcome::Response(&head));
        guard(Response::from_parts(head, body), slot, signal, self.options.latency)
    }

    /// Counts a request whose service returned an error.
    pub(super) fn fail(&self, slot: Option<Slot>) {
        if let Some(slot) = slot {
            slot.finish(self.options.signal(&Outcome::Failed));
        }
    }
}

/// Gives a slot to the body of a response. The signal is recorded now, unless the latency goes on.
fn guard<B: Body>(
    response: Response<B>,
    mut slot: Slot,
    signal: Signal,
    latency: Latency,
) -> Response<AdaptiveBody<B>> {
    if latency == Latency::Head || signal != Signal::Success {
        slot.record(signal);
    }
    guard_response(response, slot)
}
