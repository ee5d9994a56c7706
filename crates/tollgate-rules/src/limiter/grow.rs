//! Streams of unknown length under rules: a plan is reserved, and grows by the units of a second one.
//! The growth of a reservation is in the core. Plans that are reserved at one estimate are in `reserve.rs`.

use tollgate::{Error, ErrorKind, reservation::GrowingReservation};

use super::{
    decision::RuleDecision,
    rule_limiter::RuleLimiter,
    steps::{Pending, costs},
};
use crate::{Code, Plan};

impl RuleLimiter {
    /// Reserves the units of a plan and one slice, and lets the reservation
    /// [grow](tollgate::reservation::ReserveBuilder::growing) by further slices, for a stream of unknown length.
    ///
    /// `slice` is a plan of the same descriptors, whose units are those of a slice. One with 0 units
    /// does not grow, such as a limit of requests; all others have the same number.
    ///
    /// The reservation is `None` for a denied request, of which nothing was charged, and for one
    /// that no limit counts. It has a random id and a time to live of 10 minutes. All slices are charged by
    /// the rules with which the stream began: a reload is in force for the streams that begin after it.
    /// The metrics of a rule count the units of the plan, and not those of the slices.
    ///
    /// In a handler, `Meter::growing` of tollgate-tower makes a meter of it, which ends streams and
    /// bodies where their limit ends.
    ///
    /// ```
    /// use tollgate::MemoryStore;
    /// use tollgate_rules::{Descriptor, Format, RuleLimiter, RuleSet, Rules};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rules = RuleSet::parse(
    ///     "
    ///     domain: llm
    ///     descriptors:
    ///       - {key: calls, rate_limit: {quota: 60/m}}
    ///       - {key: tokens, rate_limit: {quota: 1000/h}}
    ///     ",
    ///     Format::Yaml,
    /// )?;
    /// let limiter = RuleLimiter::new(Rules::new(rules), MemoryStore::new());
    /// let set = limiter.rules().current();
    /// let units = |calls, tokens| {
    ///     let calls = Descriptor::from([("calls", "acme")]).with_hits(calls);
    ///     [calls, Descriptor::from([("tokens", "acme")]).with_hits(tokens)]
    /// };
    ///
    /// // One call with a prompt of 12 tokens, and an answer of unknown length.
    /// let (request, slice) = (units(1, 12), units(0, 256));
    /// let (plan, slice) = (set.plan("llm", &request, 1)?, set.plan("llm", &slice, 1)?);
    /// let (decision, stream) = limiter.grow_plan(&plan, &slice).await?;
    /// assert!(decision.is_allowed());
    /// let stream = stream.ok_or("a limit counts the request")?;
    /// for _token in 0..300 {
    ///     stream.growth().take(1).await?; // Send the token here.
    /// }
    /// stream.commit().await?;
    ///
    /// let look = limiter.peek_plan(&plan).await?;
    /// assert_eq!(look.verdict().statuses()[0].remaining(), 59);
    /// assert_eq!(look.verdict().statuses()[1].remaining(), 688);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails when the store failed and a limit is [closed](tollgate::Outage::Closed) in an outage.
    ///
    /// [`ErrorKind::Config`] for what does not grow, with its name: a rule that does not deny the
    /// request alone (in shadow mode, not enforced, or a quota rule); rules that have [steps of their
    /// own](RuleLimiter), as in a Redis Cluster; a slice of other descriptors; and what
    /// [`growing`](tollgate::reservation::ReserveBuilder::growing) refuses.
    ///
    /// # Cancellation
    ///
    /// A dropped future may have charged the units of the plan and one slice.
    pub async fn grow_plan(
        &self,
        plan: &Plan<'_>,
        slice: &Plan<'_>,
    ) -> Result<(RuleDecision, Option<GrowingReservation>), Error> {
        let (mut steps, slices) = (self.steps(plan), self.steps(slice));
        let modes = self.0.modes;
        let denies = |one: &Pending<'_, '_>| one.denies_alone() && !modes.shadow && !modes.quota;
        let name = |one: &Pending<'_, '_>| one.rule.metric_name().to_owned();
        let mut descriptors = steps.iter().flat_map(|step| &step.descriptors);
        if let Some(other) = descriptors.clone().find(|one| !denies(one)) {
            let name = name(other);
            return Err(refused(format!(
                "rule {name:?} does not deny a request alone, so it cannot grow"
            )));
        }
        if steps.len() > 1 {
            let names: Vec<_> = descriptors.map(name).collect();
            return Err(refused(format!(
                "rules {names:?} are not decided in one step, so they cannot grow together"
            )));
        }
        // The same descriptors are one step again.
        let sliced = slices.iter().flat_map(|step| &step.descriptors);
        if !descriptors
            .by_ref()
            .map(|one| &one.key)
            .eq(sliced.map(|one| &one.key))
        {
            return Err(refused(
                "a slice has the descriptors of its plan, got others",
            ));
        }
        let (step, slice) = (steps.pop(), slices.first());
        let target = step.as_ref().and_then(|step| step.target());
        let (Some(step), Some(slice), Some((limiter, key))) = (step, slice, target) else {
            return Ok((self.decided(plan, []), None));
        };
        let stream = limiter
            .reserve(key, costs(&step.descriptors))
            .capped()
            .growing(costs(&slice.descriptors))
            .await?;
        let decision = self.decided(plan, step.charged(stream.decision()));
        if decision.verdict().code() == Code::Ok {
            return Ok((decision, Some(stream)));
        }
        // A rule beside it may deny every request.
        if let Err(error) = stream.cancel().await {
            tracing::debug!(%error, "what a denied stream has reserved is given back later");
        }
        Ok((decision, None))
    }
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message.into())
}
