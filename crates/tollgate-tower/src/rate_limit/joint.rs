//! Requests that several limiters and keys decide together.
//! It is only a record: who decides is a source of `source.rs`, and the answer is made in
//! `reply.rs`.

use std::time::Duration;

use tollgate_core::{
    Cost, Costs, Customer, Decision, Enforcement, Error, Key, Limiter, Priority, limiter,
    store::StoreFuture,
};

use crate::{charge::Charged, rejection::Reason};

/// Shows a [decider](crate::LimiterSource::from_decider) what its layer asks for: the cost and the
/// priority of a request, and the keys whose limits it enforces.
#[derive(Clone, Debug)]
pub struct JointCheck {
    cost: Cost,
    priority: Priority,
    customer: Option<Customer>,
    /// `None` for all keys.
    enforcement: Option<Enforcement>,
    is_look: bool,
    records_spans: bool,
}

impl JointCheck {
    /// Keeps the share that is in force, so that one share decides the whole request.
    pub(super) fn new(cost: Cost, ranked: &Costs, enforcement: Option<&Enforcement>) -> Self {
        let enforcement = enforcement.map(|enforcement| Enforcement::share(enforcement.percent()));
        Self {
            cost,
            priority: ranked.priority(),
            customer: ranked.customer(),
            enforcement,
            is_look: false,
            records_spans: false,
        }
    }

    /// Sets whether decisions are recorded in spans.
    pub(super) fn recording(mut self, records_spans: bool) -> Self {
        self.records_spans = records_spans;
        self
    }

    /// Returns whether the layer [records spans](crate::RateLimitBuilder::record_spans): then a decider
    /// may record more about its decision in the current one.
    #[must_use]
    pub fn records_spans(&self) -> bool {
        self.records_spans
    }

    /// Asks what is left of all limits.
    pub(super) fn look(enforcement: Option<&Enforcement>) -> Self {
        Self {
            is_look: true,
            ..Self::new(Cost::ZERO, &Costs::new(Cost::ZERO), enforcement)
        }
    }

    /// Returns whether a [`StateService`](crate::StateService) asks what is left.
    ///
    /// The cost is zero then. Charge nothing, and return [`JointDecision::allowed`] with the
    /// decisions of all limits, also of those that would deny a request.
    #[must_use]
    pub fn is_look(&self) -> bool {
        self.is_look
    }

    /// Returns the [cost](crate::RateLimitBuilder::cost) of the request.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns the [priority](crate::RateLimitBuilder::priority) of the request.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Returns the cost with the [priority](Self::priority) and the
    /// [customer](crate::RateLimitBuilder::customer), for the checks.
    #[must_use]
    pub fn costs(&self) -> Costs {
        Costs::new(self.cost)
            .with_priority(self.priority)
            .with_customer(self.customer)
    }

    /// Returns whether the limits of a key can deny the request: whether the key belongs to the
    /// [enforced share](crate::RateLimitBuilder::enforcement).
    ///
    /// The limits of any other key are only counted. If they are exceeded, the limits of the other
    /// keys are still checked and charged. Add their decisions as those of enforced keys: the layer
    /// hides them from the client.
    #[must_use]
    pub fn is_enforced(&self, key: &Key) -> bool {
        self.enforcement
            .as_ref()
            .is_none_or(|enforcement| enforcement.applies_to(key))
    }
}

/// Resolves to the decision of a [decider](crate::LimiterSource::from_decider), or to `None` when
/// no limit applies to the request.
pub type JointFuture = StoreFuture<Option<JointDecision>>;

/// A decision by all limits that apply to one request.
///
/// A [decider](crate::LimiterSource::from_decider) returns it. The layer responds as it does to the
/// decision of one limiter. The header fields list the policies of all decisions, and the wait of a
/// denial is the longest of all.
#[derive(Clone, Debug)]
#[must_use = "a decision that is ignored limits nothing"]
pub struct JointDecision {
    is_allowed: bool,
    parts: Vec<Part>,
    /// A key that no wait helps, and why. Boxed, because it is large and rare.
    refused: Option<Box<(Key, Refused)>>,
}

/// Says why no wait helps a key.
#[derive(Clone, Debug)]
enum Refused {
    Forbidden,
    Blocked,
    NeverFits(Error),
}

/// Pairs the decision of one limiter with its key.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) charged: Charged,
    /// The decision is only counted.
    pub(super) is_shadow: bool,
    /// The layer enforces the limit for the key.
    applies: bool,
}

impl Part {
    /// Returns whether the decision has a part in the answer of the layer.
    pub(super) fn is_enforced(&self) -> bool {
        self.applies && !self.is_shadow
    }
}

impl JointDecision {
    /// Creates a decision that lets the request pass.
    pub fn allowed() -> Self {
        Self {
            is_allowed: true,
            ..Self::denied()
        }
    }

    /// Creates a decision that denies the request.
    ///
    /// Add only the decisions that deny the request, because the response lists them. A denial
    /// without decisions means that waiting does not help: its response has no `Retry-After`. It
    /// belongs to no key, so it passes until all keys are
    /// [enforced](crate::RateLimitBuilder::enforcement). [`blocked`](Self::blocked) has a key.
    pub fn denied() -> Self {
        Self {
            is_allowed: false,
            parts: Vec::new(),
            refused: None,
        }
    }

    /// Creates a decision that rejects the request with 403, because its client is never served.
    ///
    /// In shadow mode the request passes. `key` is the key of the client: it decides whether the
    /// client belongs to the [enforced share](crate::RateLimitBuilder::enforcement).
    pub fn forbidden(key: Key) -> Self {
        Self {
            refused: Some(Box::new((key, Refused::Forbidden))),
            ..Self::denied()
        }
    }

    /// Creates a decision that denies the request, because a limit of `key` has an amount of 0.
    ///
    /// Its response has no `Retry-After`. In shadow mode the request passes.
    pub fn blocked(key: Key) -> Self {
        Self {
            refused: Some(Box::new((key, Refused::Blocked))),
            ..Self::denied()
        }
    }

    /// Creates a decision that rejects the request with 413, because a limit of `key` never has as
    /// many units.
    ///
    /// `error` is that of the [check](tollgate_core::ErrorKind::CostExceedsBurst). In shadow mode the
    /// request passes.
    pub fn never_fits(key: Key, error: Error) -> Self {
        Self {
            refused: Some(Box::new((key, Refused::NeverFits(error)))),
            ..Self::denied()
        }
    }

    /// Returns a key that no wait helps, and why.
    pub(super) fn refused(&self) -> Option<(&Key, Reason<'_>)> {
        let (key, why) = self.refused.as_deref()?;
        let reason = match why {
            Refused::Forbidden => Reason::Forbidden,
            Refused::Blocked => Reason::Blocked,
            Refused::NeverFits(error) => Reason::CostNeverFits(error),
        };
        Some((key, reason))
    }

    /// Adds the decision of a limiter for a key. A [final
    /// cost](crate::RateLimitBuilder::final_cost) refunds units of it.
    pub fn with(self, limiter: Limiter, key: Key, decision: Decision) -> Self {
        self.push(limiter, key, decision, false)
    }

    /// Adds the decision of a limit that is tried out: it is counted in the metrics, and does not
    /// change the response. A [final cost](crate::RateLimitBuilder::final_cost) refunds units of
    /// it, too.
    pub fn with_shadow(self, limiter: Limiter, key: Key, decision: Decision) -> Self {
        self.push(limiter, key, decision, true)
    }

    fn push(mut self, limiter: Limiter, key: Key, decision: Decision, is_shadow: bool) -> Self {
        let charged = Charged {
            limiter,
            key,
            decision,
        };
        self.parts.push(Part {
            charged,
            is_shadow,
            applies: true,
        });
        self
    }

    /// Notes for which keys the layer enforces the limit.
    pub(super) fn enforce(&mut self, applies: impl Fn(&Key) -> bool) {
        self.parts
            .iter_mut()
            .for_each(|part| part.applies = applies(&part.charged.key));
    }

    /// Returns whether the request may pass.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// Returns the decisions in the order in which they were added, without those of
    /// [`with_shadow`](Self::with_shadow).
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        let parts = self.parts.iter().filter(|part| !part.is_shadow);
        parts.map(|part| &part.charged.decision)
    }

    /// Returns all decisions, also those that are only counted.
    pub(super) fn all(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the decisions that have a part in the answer of the layer.
    pub(super) fn enforced(&self) -> impl Iterator<Item = &Decision> {
        let parts = self.parts.iter().filter(|part| part.is_enforced());
        parts.map(|part| &part.charged.decision)
    }

    /// Returns how long an allowed request waits for its turn in all
    /// [queues](tollgate_core::Algorithm::LeakyBucket). A limit that is tried out delays nobody.
    pub(super) fn delay(&self) -> Duration {
        if !self.is_allowed {
            return Duration::ZERO;
        }
        self.enforced()
            .map(Decision::delay)
            .max()
            .unwrap_or_default()
    }
}

/// Returns the decision of several limits when the request has left the queues of those that the
/// layer enforces for it.
pub(super) fn leave_queues(decision: JointFuture, enforcement: Option<Enforcement>) -> JointFuture {
    let enforced = move |joint: Option<JointDecision>| {
        let mut joint = joint?;
        joint.enforce(|key| {
            enforcement
                .as_ref()
                .is_none_or(|enforcement| enforcement.applies_to(key))
        });
        Some(joint)
    };
    match decision.into_ready().map(|result| result.map(&enforced)) {
        Ok(Ok(Some(joint))) if !joint.delay().is_zero() => {
            StoreFuture::pending(take_joint_turn(Some(joint)))
        }
        Ok(result) => StoreFuture::ready(result),
        Err(pending) => {
            StoreFuture::pending(async move { take_joint_turn(enforced(pending.await?)).await })
        }
    }
}

async fn take_joint_turn(joint: Option<JointDecision>) -> Result<Option<JointDecision>, Error> {
    let Some(joint) = joint else { return Ok(None) };
    let give_back = |joint: JointDecision| {
        joint
            .all()
            .iter()
            .for_each(|part| part.charged.refund_all());
    };
    Ok(Some(
        limiter::leave_queues(joint.delay(), joint, give_back).await,
    ))
}
