//! What happens to one HTTP request: it takes a slot, is answered, and gives the slot to its body.
//! Slots are counted in `slot.rs` and `limiter.rs`.

use std::sync::Arc;

use http::{Response, request::Parts};
use http_body::Body;

use super::{builder::Latency, class::Class, limiter::AdaptiveLimiter, signal::Signal, slot::Slot};
use crate::{
    body::{GuardedBody, guard_response},
    charge::Outcome,
    gate::{FromParts, GateOptions},
    rejection::{Overload, Reason, Respond},
};

/// Stores what all clones of a layer and all of its services share.
pub(super) struct Shared<R> {
    pub(super) limiter: AdaptiveLimiter,
    pub(super) class: Option<FromParts<Class>>,
    pub(super) signal: Option<SignalOf>,
    pub(super) latency: Latency,
    pub(super) gate: GateOptions<R>,
}

/// Returns the signal of an outcome. Boxed, as [`FromParts`] is.
type SignalOf = Box<dyn Fn(&Outcome<'_>) -> Signal + Send + Sync>;

/// The response body of an [`AdaptiveLimit`](super::AdaptiveLimit) service: the body of the inner
/// service, with a slot.
pub type AdaptiveBody<B> = GuardedBody<B, Slot>;

/// Keeps the slot of a request while the service works on it.
#[allow(
    missing_debug_implementations,
    reason = "only the skeleton of the layers sees it"
)]
pub struct HeldSlot<R> {
    slot: Slot,
    shared: Arc<Shared<R>>,
}

impl<R> Shared<R> {
    /// Takes a slot, unless the request is exempt.
    pub(super) fn admit(self: &Arc<Self>, parts: &Parts) -> Result<Option<HeldSlot<R>>, Overload> {
        if self.gate.is_exempt(parts) {
            return Ok(None);
        }
        let class = self
            .class
            .as_ref()
            .map_or(Class::CRITICAL, |class| class(parts));
        let slot = self.limiter.try_acquire(class)?;
        Ok(Some(HeldSlot {
            slot,
            shared: Arc::clone(self),
        }))
    }

    /// Builds the response to a request that is shed.
    pub(super) fn reject<B>(&self, overload: &Overload, parts: &Parts) -> Response<B>
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
        self.gate.reject(reason, parts)
    }

    fn signal_of(&self, outcome: &Outcome<'_>) -> Signal {
        self.signal
            .as_ref()
            .map_or_else(|| Signal::of(outcome), |signal| signal(outcome))
    }
}

impl<R> HeldSlot<R> {
    /// Counts a response, and gives the slot to its body. The signal is recorded now, unless the
    /// latency goes on.
    pub(super) fn complete<B: Body>(self, mut response: Response<B>) -> Response<AdaptiveBody<B>> {
        let Self { mut slot, shared } = self;
        let signal = if shared.signal.is_none() {
            Signal::of_head(response.status(), response.headers())
        } else {
            // Only a closure of the user needs the head apart from the body, which copies both.
            let (head, body) = response.into_parts();
            let signal = shared.signal_of(&Outcome::Response(&head));
            response = Response::from_parts(head, body);
            signal
        };
        if shared.latency == Latency::Head || signal != Signal::Success {
            slot.record(signal);
        }
        guard_response(response, slot)
    }

    /// Counts a request whose service returned an error.
    pub(super) fn fail(self) {
        self.slot.finish(self.shared.signal_of(&Outcome::Failed));
    }
}
