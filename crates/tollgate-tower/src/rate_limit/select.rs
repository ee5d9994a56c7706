//! Selects what limits a request: no limit, one limiter, or several.

use std::ops::ControlFlow::{self, Break, Continue};

use http::request::Parts;
use tollgate::{
    Cost, Error, Key,
    limiter::{Limited, LimiterFuture},
};

use crate::{
    Meter,
    key::{Extraction, NetworkVerdict},
    rate_limit::{
        answer::Admission,
        builder::{CostOf, NetworkOptions},
        check,
        joint::JointCheck,
        limits::{LimitRef, Steps},
        request::{Step, Verdict},
        request_limiter::RequestLimiter,
        source::{Selector, Target},
    },
    rejection::Reason,
};

impl<B: 'static> Steps<'_, B> {
    /// Takes a request to its verdict, or to the first step that waits.
    // Inlined by force: key and decision are used where they are built, instead of being copied.
    #[inline(always)]
    pub(super) fn begin(self, key: impl Fn(&Parts) -> Extraction, parts: &mut Parts) -> Verdict<B> {
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
    pub(super) fn select(self, parts: &mut Parts) -> ControlFlow<Verdict<B>, Target> {
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
    ) -> ControlFlow<Verdict<B>> {
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
    pub(super) fn exempt(self, parts: &mut Parts) -> Verdict<B> {
        let (options, extensions) = (&self.limits.options, &mut parts.extensions);
        if options.request_limiter.is_some() && extensions.get::<RequestLimiter>().is_none() {
            extensions.insert(RequestLimiter::WITHOUT_LIMIT);
        }
        if matches!(options.cost, Some(CostOf::Estimate(..))) && extensions.get::<Meter>().is_none()
        {
            extensions.insert(Meter::UNREAD);
        }
        Verdict::Admit(Admission::EXEMPT)
    }

    /// Looks up the limiter of a request, and checks it.
    // Not inlined: a request with a fixed limiter would pay for the larger stack frame.
    #[inline(never)]
    fn look_up(
        self,
        at: usize,
        key: impl Fn(&Parts) -> Extraction,
        parts: &mut Parts,
    ) -> Verdict<B> {
        match self.limits.lookups[at]
            .limiter_for(parts)
            .map(LimiterFuture::into_ready)
        {
            Ok(Ok(limiter)) => self.charge_looked_up(limiter, &key(parts), parts),
            Ok(Err(pending)) => Verdict::Wait(Step::LookUp(pending, Box::new(key(parts)))),
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
    ) -> Verdict<B> {
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
    fn decide(self, at: usize, parts: &mut Parts) -> Verdict<B> {
        let (options, costs) = (&self.limits.options, self.limits.costs(parts));
        // The costs of policies, and an estimate for each of them, are not known here.
        let is_estimate = matches!(options.cost, Some(CostOf::Estimate(..)));
        let cost = costs
            .cost_of("")
            .filter(|_| !is_estimate)
            .unwrap_or(Cost::ONE);
        let joint_check = JointCheck::new(cost, costs.priority(), options.enforcement.as_ref());
        let leave_queues = |decision| check::leave_queues(decision, options.enforcement.clone());
        match (self.limits.deciders[at])(parts, joint_check)
            .map(|decision| leave_queues(decision).into_ready())
        {
            Ok(Ok(result)) => self.judge_joint(result, parts),
            Ok(Err(pending)) => Verdict::Wait(Step::Decide(pending)),
            Err(error) => self.judge_without_key(&error, parts),
        }
    }
}
