//! What happens to one HTTP request: it takes a slot, is answered, and gives the slot to its body.
//! Slots are counted in `slot.rs` and `limiter.rs`.

use std::sync::Arc;

use http::{Response, request::Parts};
use http_body::Body;

use tollgate_tower::{
    Outcome, Respond,
    body::{GuardedBody, guard_response},
    gate::GateOptions,
    rejection::{Overload, Reason},
};

use crate::{class::Class, limiter::AdaptiveLimiter, signal::Signal, slot::Slot};

/// Stores what all clones of a layer and all of its services share.
pub(crate) struct LayerState<R> {
    pub(crate) limiter: AdaptiveLimiter,
    pub(crate) class: Option<ClassOf>,
    pub(crate) signal: Option<SignalOf>,
    pub(crate) latency: Latency,
    pub(crate) gate: GateOptions<R>,
}

/// Selects where the latency of a request ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Latency {
    /// At the head of the response. This is the default.
    ///
    /// A client that reads slowly does not make the service look slow.
    #[default]
    Head,
    /// At the end of the response body.
    ///
    /// Use it when the service works while it sends the body, and its clients read without delay: a
    /// proxy between your own services, for example. A body that fails does not count.
    Body,
}

/// Returns the class of a request. Boxed, so that the closure does not appear in the type of the
/// layer.
type ClassOf = Box<dyn Fn(&Parts) -> Class + Send + Sync>;

/// Returns the signal of an outcome.
type SignalOf = Box<dyn Fn(&Outcome<'_>) -> Signal + Send + Sync>;

/// The response body of an [`AdaptiveLimit`](crate::AdaptiveLimit) service: the body of the inner
/// service, with a slot.
pub type AdaptiveBody<B> = GuardedBody<B, Slot>;

/// Keeps the slot of a request while the service works on it.
#[allow(
    missing_debug_implementations,
    reason = "only the skeleton of the layers sees it"
)]
pub struct HeldSlot<R> {
    slot: Slot,
    shared: Arc<LayerState<R>>,
}

impl<R> LayerState<R> {
    /// Takes a slot, unless the request is exempt.
    pub(crate) fn admit(self: &Arc<Self>, parts: &Parts) -> Result<Option<HeldSlot<R>>, Overload> {
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
    pub(crate) fn reject<B>(&self, overload: &Overload, parts: &Parts) -> Response<B>
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
    pub(crate) fn complete<B: Body>(self, mut response: Response<B>) -> Response<AdaptiveBody<B>> {
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
    pub(crate) fn fail(self) {
        self.slot.finish(self.shared.signal_of(&Outcome::Failed));
    }
}
