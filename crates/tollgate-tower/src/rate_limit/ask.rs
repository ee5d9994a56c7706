//! Asks what limits a request: selects the limiter, charges the request, and waits for the answer.
//! What the answer means for the request is decided in `reply.rs`; where the limiter comes from is
//! in `source.rs`.

use std::{
    ops::ControlFlow::{self, Break, Continue},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::request::Parts;
use tollgate_core::{
    Cost, Costs, Decision, Error, Key, Limiter, Policy, Priority,
    limiter::{Limited, LimiterFuture, leave_queues},
    store::{CheckFuture, StoreFuture},
};

use crate::{
    Meter,
    charge::Due,
    gate::in_background,
    key::{Extraction, NetworkVerdict},
    metrics::LabelIndex,
    rate_limit::{
        joint::{self, JointCheck},
        limits::{Limit, LimitRef, Limits, Steps},
        options::{CostOf, NetworkOptions},
        request::{Admission, Asked, RequestContext, Step, StepVerdict},
        request_limiter::RequestLimiter,
        reservation::{HeldReservation, ReserveOptions},
        source::{Selector, Target},
    },
    rejection::Reason,
};

impl<B: 'static> Steps<'_, B> {
    /// Takes a request to its verdict, or to the first step that waits.
    // Inlined by force: key and decision are used where they are built, instead of being copied.
    #[inline(always)]
    pub(super) fn begin(
        self,
        key: impl Fn(&Parts) -> Extraction,
        parts: &mut Parts,
    ) -> StepVerdict<B> {
        match self.select(parts) {
            Continue(Target::Fixed(at)) => self.charge(LimitRef::Fixed(at), &key(parts), parts),
            Continue(Target::Lookup(at)) => self.look_up(at, key, parts),
            Continue(Target::Decider(at)) => self.decide(at, parts),
            Continue(Target::Exempt) => self.exempt(parts),
            Break(verdict) => verdict,
        }
    }

    /// Selects what limits a request, or returns the verdict on a request that nothing limits.
    // Inlined by force, as `begin` is.
    #[inline(always)]
    pub(super) fn select(self, parts: &mut Parts) -> ControlFlow<StepVerdict<B>, Target> {
        if self.limits.gate.is_exempt(parts) {
            return Break(self.exempt(parts));
        }
        if let Some(networks) = &self.limits.options.networks {
            self.check_network(networks, parts)?;
        }
        match &self.limits.selector {
            Selector::Always(target) => Continue(*target),
            Selector::By(select) => match select(parts) {
                Ok(target) => Continue(target),
                Err(error) => Break(self.judge_without_key(&error, parts)),
            },
        }
    }

    /// Exempts or rejects the request of a network that is listed.
    // Not inlined: a request without lists would pay for the larger stack frame.
    #[inline(never)]
    fn check_network(
        self,
        networks: &NetworkOptions,
        parts: &mut Parts,
    ) -> ControlFlow<StepVerdict<B>> {
        let address = match (networks.address)(parts) {
            Ok(address) => address,
            Err(error) => return Break(self.judge_without_key(&error, parts)),
        };
        match networks.networks.verdict(address) {
            NetworkVerdict::Allowed => Break(self.exempt(parts)),
            // The key that an address has by default.
            NetworkVerdict::Denied if self.limits.is_shadow(&Key::network(address, 64)) => {
                tracing::debug!(
                    "the network of the client is denied, the request passes in shadow mode"
                );
                Continue(())
            }
            NetworkVerdict::Denied => Break(self.undecided(Reason::Forbidden, None, false, parts)),
            _ => Continue(()),
        }
    }

    /// Admits a request that no limit applies to. Its handler finds what it finds in other
    /// requests: a limiter that admits everything, and a meter that counts nothing. Those of an
    /// outer layer stay.
    // Not inlined: a request with a limiter would pay for the larger stack frame.
    #[inline(never)]
    pub(super) fn exempt(self, parts: &mut Parts) -> StepVerdict<B> {
        let (options, extensions) = (&self.limits.options, &mut parts.extensions);
        if options.request_limiter.is_some() && extensions.get::<RequestLimiter>().is_none() {
            extensions.insert(RequestLimiter::WITHOUT_LIMIT);
        }
        if matches!(options.cost, Some(CostOf::Estimate(..))) && extensions.get::<Meter>().is_none()
        {
            extensions.insert(Meter::UNREAD);
        }
        StepVerdict::Admit(Admission::EXEMPT)
    }

    /// Looks up the limiter of a request, and checks it.
    // Not inlined: a request with a fixed limiter would pay for the larger stack frame.
    #[inline(never)]
    fn look_up(
        self,
        at: usize,
        key: impl Fn(&Parts) -> Extraction,
        parts: &mut Parts,
    ) -> StepVerdict<B> {
        match self.limits.lookups[at]
            .limiter_for(parts)
            .map(LimiterFuture::into_ready)
        {
            Ok(Ok(limiter)) => self.charge_looked_up(limiter, &key(parts), parts),
            Ok(Err(pending)) => StepVerdict::Wait(Step::LookUp(pending, Box::new(key(parts)))),
            Err(error) => self.judge_without_key(&error, parts),
        }
    }

    /// Checks a limiter that was looked up.
    #[inline(never)]
    pub(super) fn charge_looked_up(
        self,
        limiter: Result<Limited, Error>,
        key: &Extraction,
        parts: &mut Parts,
    ) -> StepVerdict<B> {
        match limiter {
            Ok(Limited::By(limiter)) => self.charge(self.limits.limit(limiter), key, parts),
            Ok(Limited::Exempt) => self.exempt(parts),
            Err(error) => {
                let is_shadow = self.limits.is_shadow_without_key();
                self.undecided(Reason::Unavailable(&error), None, is_shadow, parts)
            }
        }
    }

    /// Lets several limits decide a request.
    // Not inlined: a request with a fixed limiter would pay for the larger stack frame.
    #[inline(never)]
    fn decide(self, at: usize, parts: &mut Parts) -> StepVerdict<B> {
        let (options, costs) = (&self.limits.options, self.limits.costs(parts));
        // The costs of policies, and an estimate for each of them, are not known here.
        let is_estimate = matches!(options.cost, Some(CostOf::Estimate(..)));
        let cost = costs
            .cost_of("")
            .filter(|_| !is_estimate)
            .unwrap_or(Cost::ONE);
        let joint_check = JointCheck::new(cost, &costs, options.enforcement.as_ref())
            .recording(options.records_spans);
        let leave_queues = |decision| joint::leave_queues(decision, options.enforcement.clone());
        match (self.limits.deciders[at])(parts, joint_check)
            .map(|decision| leave_queues(decision).into_ready())
        {
            Ok(Ok(result)) => self.judge_joint(result, parts),
            Ok(Err(pending)) => StepVerdict::Wait(Step::Decide(pending)),
            Err(error) => self.judge_without_key(&error, parts),
        }
    }

    /// Checks the limiter of a request at its cost.
    // Inlined by force, as `begin` is.
    #[inline(always)]
    pub(super) fn charge(
        self,
        limit: LimitRef,
        key: &Extraction,
        parts: &mut Parts,
    ) -> StepVerdict<B> {
        let (limits, options) = (self.limits, &self.limits.options);
        // Key and result are borrowed, not moved: they are larger than what is done with them.
        let key = match key {
            Ok(Some(key)) => key,
            Ok(None) => return self.exempt(parts),
            Err(error) => return self.judge_without_key(error, parts),
        };
        if limits
            .double_count
            .inspect(parts, key, limit.get(&limits.fixed).limiter.policies())
        {
            limits.warn_of_unknown_units();
        }
        let cost = match (&options.cost, &options.rank) {
            (None, None) => Cost::ONE,
            (Some(CostOf::One(cost)), None) => cost(parts),
            (Some(CostOf::Estimate(_, options)), _) => {
                return self.reserve(limits.costs(parts), options.clone(), limit, key, parts);
            }
            _ => return self.charge_costs(limits.costs(parts), limit, key, parts),
        };
        let keeps_key = options.final_cost.is_some()
            || options.request_limiter.is_some()
            || options.partition_secret.is_some();
        let mut context = RequestContext {
            limit,
            key: keeps_key.then(|| Box::new(key.clone())),
            due: Due::One(cost),
            asked: Asked::One,
            is_shadow: limits.is_shadow(key),
            labels: LabelIndex::of(parts, &limits.gate.labels),
        };
        let limit = context.limit.get(&limits.fixed);
        let check = if options.charges_after {
            limit.look_or_check(key, cost.into(), options.wait, context.is_shadow)
        } else {
            limit.check(key, cost, options.wait, context.is_shadow)
        };
        match check.as_ready() {
            None => StepVerdict::Wait(Step::Check(check, context)),
            Some(result) => self.judge(result, &mut context, parts),
        }
    }

    /// Checks the limiter of a request with a cost for each policy.
    // Not inlined: a request with one cost would pay for the larger stack frame.
    #[inline(never)]
    pub(super) fn charge_costs(
        self,
        costs: Costs,
        limit: LimitRef,
        key: &Key,
        parts: &mut Parts,
    ) -> StepVerdict<B> {
        let options = &self.limits.options;
        let mut context = self.context(limit, key, Asked::Each, parts);
        let limit = context.limit.get(&self.limits.fixed);
        let check = if options.charges_after {
            context.due = Due::Each(Box::new(costs.clone()));
            limit.look_or_check(key, costs, options.wait, context.is_shadow)
        } else {
            limit.check(key, costs, options.wait, context.is_shadow)
        };
        match check.as_ready() {
            None => StepVerdict::Wait(Step::Check(check, context)),
            Some(result) => self.judge(result, &mut context, parts),
        }
    }

    /// Reserves the estimate of a request.
    // Not inlined: a request with one cost would pay for the larger stack frame.
    #[inline(never)]
    pub(super) fn reserve(
        self,
        estimate: Costs,
        options: ReserveOptions,
        limit: LimitRef,
        key: &Key,
        parts: &mut Parts,
    ) -> StepVerdict<B> {
        let mut context = self.context(limit, key, Asked::Estimate, parts);
        let limit = context.limit.get(&self.limits.fixed);
        let reservation = limit.reserve(
            key,
            estimate,
            options,
            self.limits.options.wait,
            context.is_shadow,
        );
        match reservation.into_ready() {
            Ok(result) => self.judge_reservation(result, &mut context, parts),
            Err(pending) => StepVerdict::Wait(Step::Reserve(Box::new((pending, context)))),
        }
    }

    /// Returns the context of a request that keeps its key.
    pub(super) fn context(
        self,
        limit: LimitRef,
        key: &Key,
        asked: Asked,
        parts: &Parts,
    ) -> RequestContext {
        RequestContext {
            limit,
            key: Some(Box::new(key.clone())),
            due: Due::One(Cost::ONE),
            asked,
            is_shadow: self.limits.is_shadow(key),
            labels: LabelIndex::of(parts, &self.limits.gate.labels),
        }
    }

    /// Waits for the next step of a request.
    pub(super) fn poll_step(
        self,
        step: &mut Step,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<StepVerdict<B>> {
        Poll::Ready(match step {
            Step::LookUp(limiter, key) => {
                let limiter = ready!(Pin::new(limiter).poll(cx));
                self.charge_looked_up(limiter, key, parts)
            }
            Step::Check(check, context) => {
                let result = ready!(Pin::new(check).poll(cx));
                self.judge(result.as_ref(), context, parts)
            }
            Step::Reserve(reserving) => {
                let (reservation, context) = &mut **reserving;
                let result = ready!(Pin::new(reservation).poll(cx));
                self.judge_reservation(result, context, parts)
            }
            Step::Decide(decision) => {
                let decision = ready!(Pin::new(decision).poll(cx));
                self.judge_joint(decision, parts)
            }
        })
    }
}

impl Limits {
    /// Returns the costs of a request, with its rank.
    pub(super) fn costs(&self, request: &Parts) -> Costs {
        let costs = match &self.options.cost {
            None => Cost::ONE.into(),
            Some(CostOf::One(cost)) => cost(request).into(),
            Some(CostOf::Each(costs) | CostOf::Estimate(costs, _)) => costs(request),
        };
        match &self.options.rank {
            Some(rank) => rank.of(costs, request),
            None => costs,
        }
    }

    /// Returns the costs of a request of a handler that checks this limiter.
    pub(super) fn costs_of_handler(&self, request: &Parts, limiter: &Limiter) -> Costs {
        let costs = self.costs(request);
        match &self.options.rank {
            Some(rank) if !rank.fits(limiter) => costs.with_customer(None),
            _ => costs,
        }
    }

    /// Gives costs of a handler that checks this limiter the rank of the request, unless they have
    /// one of their own.
    pub(super) fn ranked(&self, costs: Costs, request: &Parts, limiter: &Limiter) -> Costs {
        let has_rank = costs.priority() < Priority::CRITICAL || costs.customer().is_some();
        match &self.options.rank {
            Some(rank) if !has_rank && rank.fits(limiter) => rank.of(costs, request),
            _ => costs,
        }
    }
}

impl Limit<'_> {
    /// Checks the limiter. Waits for up to `max_wait` where the layer waits instead of denying, and
    /// for the turn in a queue. A limit that is tried out delays nobody.
    // Inlined by force: the decision is built where the caller reads it, instead of being copied
    // there.
    #[inline(always)]
    pub(super) fn check(
        self,
        key: &Key,
        costs: impl Into<Costs>,
        max_wait: Option<Duration>,
        is_shadow: bool,
    ) -> CheckFuture {
        let (max_wait, is_queued) = self.waits(max_wait, is_shadow);
        ask(self.limiter, key, costs, max_wait, is_queued)
    }

    /// Returns for how long a check waits for units, and whether it waits for its turn in a queue.
    #[inline(always)]
    fn waits(self, max_wait: Option<Duration>, is_shadow: bool) -> (Option<Duration>, bool) {
        match is_shadow {
            true => (None, false),
            false => (max_wait, self.profile.has_queue),
        }
    }

    /// Reserves an estimate, and waits in the queue of a limiter that has one, for up to `max_wait`
    /// if that is set.
    pub(super) fn reserve(
        self,
        key: &Key,
        estimate: Costs,
        options: ReserveOptions,
        max_wait: Option<Duration>,
        is_shadow: bool,
    ) -> StoreFuture<HeldReservation> {
        let reservation = options.reserve(self.limiter, key, estimate, max_wait);
        if !self.profile.has_queue || is_shadow {
            return reservation;
        }
        let is_in_process = self.limiter.is_in_process();
        let cancel = move |reservation: HeldReservation| {
            in_background(is_in_process, async move {
                if let Err(error) = reservation.cancel().await {
                    tracing::debug!(%error, "a refund failed");
                }
            });
        };
        StoreFuture::pending(async move {
            let reservation = reservation.await?;
            Ok(leave_queues(reservation.decision().delay(), reservation, cancel).await)
        })
    }

    /// Looks whether the costs fit, and charges nothing then. Costs that do not fit are checked,
    /// which denies them with the exact time to retry. Those that never fit are refused before the
    /// store is asked, as in other checks.
    pub(super) fn look_or_check(
        self,
        key: &Key,
        costs: Costs,
        max_wait: Option<Duration>,
        is_shadow: bool,
    ) -> CheckFuture {
        let may_fit = |policy: &Policy| {
            let most = costs.priority().units_of_policy(policy);
            costs
                .cost_of(policy.name())
                .is_some_and(|cost| cost.units() <= most)
        };
        if !self.limiter.policies().iter().all(may_fit) {
            return self.check(key, costs, max_wait, is_shadow);
        }
        let nothing = Costs::new(Cost::ZERO)
            .with_priority(costs.priority())
            .with_customer(costs.customer());
        let look = match self
            .limiter
            .check_key(key)
            .cost(nothing)
            .into_future()
            .into_ready()
        {
            Ok(Ok(look)) if !has_room(&look, &costs) => {
                return self.check(key, costs, max_wait, is_shadow);
            }
            Ok(result) => return StoreFuture::ready(result),
            Err(look) => look,
        };
        let (max_wait, is_queued) = self.waits(max_wait, is_shadow);
        let (limiter, key) = (self.limiter.clone(), key.clone());
        StoreFuture::pending(async move {
            let look = look.await?;
            if has_room(&look, &costs) {
                return Ok(look);
            }
            ask(&limiter, &key, costs, max_wait, is_queued).await
        })
    }
}

/// Checks a limiter. Waits for up to `max_wait` for the units, or without it in the queue alone.
#[inline(always)]
fn ask(
    limiter: &Limiter,
    key: &Key,
    costs: impl Into<Costs>,
    max_wait: Option<Duration>,
    is_queued: bool,
) -> CheckFuture {
    let check = limiter.check_key(key).cost(costs);
    match max_wait {
        Some(max_wait) => check.wait(max_wait).into_future(),
        None if is_queued => check.queued().into_future(),
        None => check.into_future(),
    }
}

/// Returns whether every policy has the units left, for the priority of the look. A cost above the
/// share of a replica spends the share.
fn has_room(look: &Decision, costs: &Costs) -> bool {
    look.states().all(|state| {
        let most = costs.priority().units_of_policy(state.policy());
        costs
            .cost_of(state.policy().name())
            .is_some_and(|cost| state.remaining() >= cost.units().min(most))
    })
}
