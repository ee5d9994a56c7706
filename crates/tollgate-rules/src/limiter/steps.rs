//! Distributes the descriptors of a request to steps: one call of the store each.
//! What becomes of the charges is decided in `settle.rs`. Steps that reserve are taken in `reserve.rs`.
//! Nothing here knows what a verdict is.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use quick_cache::sync::Cache;
use smallvec::{SmallVec, smallvec};
use tollgate::{
    Cost, Costs, Customer, Decision, Error, ErrorKind, Key, Limiter, Policy, PolicySet, Priority,
};

use crate::{Compat, DescriptorOutcome, GlobalModes, Plan, Planned, Rule};

/// The number of policy sets of steps that are kept. A service has few combinations of rules.
const SETS: usize = 1_024;

/// Makes the steps of requests, and keeps their policy sets.
pub(super) struct Steps(Cache<Parts, PolicySet>);

/// The policies of each descriptor of a step.
type Parts = SmallVec<[PolicySet; Key::MAX_BRANCHES]>;

/// Descriptors that are decided together: either all are charged, or none.
pub(super) struct Step<'p, 'l> {
    pub(super) descriptors: SmallVec<[Pending<'p, 'l>; 1]>,
    /// The limiter and the key of several descriptors.
    together: Option<(Limiter, Key)>,
}

/// Charges the descriptors of a part of a plan. One that counts nothing, or gives units back, has
/// no charge.
///
/// Nearly all requests have a single descriptor, which needs no step. What several need is boxed:
/// a server copies the future of each request into a box, with room for all that it may need.
pub(super) async fn charge<'l>(
    plan: &Plan<'_>,
    part: &[Planned<'_>],
    steps: &Steps,
    modes: GlobalModes,
    limiter: impl Fn(&Rule) -> &'l Limiter,
) -> Result<Vec<Option<ChargedDescriptor>>, Error> {
    let [planned] = part else {
        return Box::pin(charge_several(plan, part, steps, modes, limiter)).await;
    };
    let pending = Pending::of(0, planned, plan, limiter).filter(|_| !planned.is_refund());
    Ok(vec![match &pending {
        Some(pending) => Some(pending.spend(planned.hits()).await?),
        None => None,
    }])
}

/// Charges descriptors that deny the request alone in one step where the store can do that: see
/// [`Steps::of`].
async fn charge_several<'l>(
    plan: &Plan<'_>,
    part: &[Planned<'_>],
    steps: &Steps,
    modes: GlobalModes,
    limiter: impl Fn(&Rule) -> &'l Limiter,
) -> Result<Vec<Option<ChargedDescriptor>>, Error> {
    let pending = |(place, planned)| Pending::of(place, planned, plan, &limiter);
    let spending = part.iter().enumerate().filter(|(_, one)| !one.is_refund());
    let pending = spending.filter_map(pending);
    let is_joint = !plan.compat().is_envoy();
    let steps = steps.of(is_joint, modes, pending);
    let results = all(steps.into_iter().map(Step::check)).await;
    let mut charges: Vec<Option<ChargedDescriptor>> = part.iter().map(|_| None).collect();
    let mut first = None;
    for result in results {
        match result {
            Ok(charged) => charged
                .into_iter()
                .for_each(|(place, charge)| charges[place] = Some(charge)),
            Err(error) => first = first.or(Some(error)),
        }
    }
    match first {
        Some(error) => {
            refund(&charges).await;
            Err(error)
        }
        None => Ok(charges),
    }
}

/// Awaits all futures at the same time. Nearly all requests have one, which is awaited in place:
/// [`join_all`] would box it.
pub(super) async fn all<F: Future>(futures: impl Iterator<Item = F>) -> SmallVec<[F::Output; 1]> {
    let mut futures: SmallVec<[F; 1]> = futures.collect();
    if futures.len() > 1 {
        return join_all(futures).await.into();
    }
    match futures.pop() {
        Some(only) => smallvec![only.await],
        None => SmallVec::new(),
    }
}

impl Steps {
    pub(super) fn new() -> Self {
        Self(Cache::new(SETS))
    }

    /// Returns the steps that charge these descriptors.
    ///
    /// One step has descriptors that each deny the request alone, and that have one answer in
    /// an outage. All are leased, or none. A descriptor that is not enforced, a quota descriptor,
    /// and one whose units never fit have a step of their own. So has every descriptor without
    /// `is_joint`: in the mode `envoy`, a denied request is charged.
    pub(super) fn of<'p, 'l>(
        &self,
        is_joint: bool,
        modes: GlobalModes,
        descriptors: impl Iterator<Item = Pending<'p, 'l>>,
    ) -> SmallVec<[Step<'p, 'l>; 1]> {
        let mut steps: SmallVec<[Step<'p, 'l>; 1]> = SmallVec::new();
        let is_joint = is_joint && !modes.shadow && !modes.quota;
        for descriptor in descriptors {
            let found = steps
                .iter_mut()
                .find(|step| is_joint && step.takes(&descriptor));
            match found {
                Some(step) => step.descriptors.push(descriptor),
                None => steps.push(Step {
                    descriptors: smallvec![descriptor],
                    together: None,
                }),
            }
        }
        if steps.iter().all(|step| step.descriptors.len() == 1) {
            return steps;
        }
        steps
            .into_iter()
            .flat_map(|step| self.together(step))
            .collect()
    }

    /// Returns a step that decides its descriptors together, or one step for each when the store
    /// cannot.
    fn together<'p, 'l>(&self, mut step: Step<'p, 'l>) -> SmallVec<[Step<'p, 'l>; 1]> {
        if let [first, others @ ..] = &*step.descriptors
            && !others.is_empty()
        {
            let key = others
                .iter()
                .fold(first.key.clone(), |key, other| key.with_branch(&other.key));
            let limiter = self
                .set(&step.descriptors)
                .map(|set| first.limiter.with_policies(set));
            step.together = limiter
                .filter(|limiter| limiter.can_decide(&key))
                .map(|limiter| (limiter, key));
            if step.together.is_none() {
                let alone = |descriptor| Step {
                    descriptors: smallvec![descriptor],
                    together: None,
                };
                return step.descriptors.into_iter().map(alone).collect();
            }
        }
        smallvec![step]
    }

    /// Returns the policies of several descriptors, each on a branch of its own.
    fn set(&self, descriptors: &[Pending<'_, '_>]) -> Option<PolicySet> {
        let parts: Parts = descriptors
            .iter()
            .map(|descriptor| descriptor.policies.clone())
            .collect();
        if let Some(set) = self.0.get(&parts) {
            return Some(set);
        }
        let branches = (1..).zip(&parts);
        let policies = branches.flat_map(|(branch, part)| {
            part.iter()
                .map(move |one| one.clone().try_at_branch(branch))
        });
        let policies: Result<Vec<Policy>, Error> = policies.collect();
        let set = PolicySet::try_new(policies.ok()?).ok()?;
        self.0.insert(parts, set.clone());
        Some(set)
    }
}

impl<'p, 'l> Step<'p, 'l> {
    /// Returns whether a descriptor can be decided in this step.
    fn takes(&self, descriptor: &Pending<'p, 'l>) -> bool {
        let policies = || {
            self.descriptors
                .iter()
                .flat_map(|held| held.policies.iter())
        };
        let has_name = |policy: &Policy| policies().any(|held| held.name() == policy.name());
        let is_leased = descriptor.is_leased();
        let most = match is_leased {
            true => PolicySet::MAX_LEASED,
            false => PolicySet::MAX_POLICIES,
        };
        self.descriptors.len() < Key::MAX_BRANCHES
            && policies().count() + descriptor.policies.len() <= most
            && self
                .descriptors
                .iter()
                .all(|held| held.is_leased() == is_leased)
            && self
                .descriptors
                .iter()
                .chain([descriptor])
                .all(Pending::denies_alone)
            && self
                .descriptors
                .iter()
                .all(|held| std::ptr::eq(held.limiter, descriptor.limiter))
            && !descriptor.policies.iter().any(has_name)
    }

    /// Returns the limiter and the key of all descriptors of the step.
    pub(super) fn target(&self) -> Option<(Limiter, Key)> {
        self.together.clone().or_else(|| {
            let only = self.descriptors.first()?;
            let limiter = only.limiter.with_policies(only.policies.clone());
            Some((limiter, only.key.clone()))
        })
    }

    /// Returns the charge of each descriptor, with its place in the request.
    pub(super) fn charged(self, decision: &Decision) -> SmallVec<[(usize, ChargedDescriptor); 1]> {
        let is_alone = self.together.is_none();
        let charge = |(branch, descriptor): (u8, Pending<'_, '_>)| {
            let place = descriptor.place;
            match is_alone {
                true => (place, descriptor.charged_alone(decision.clone())),
                false => (place, descriptor.charged(branch, decision)),
            }
        };
        (1..).zip(self.descriptors).map(charge).collect()
    }

    /// Charges the descriptors. Returns the charge of each, with its place in the request.
    async fn check(mut self) -> Result<SmallVec<[(usize, ChargedDescriptor); 1]>, Error> {
        let Some((limiter, key)) = &self.together else {
            return match self.descriptors.pop() {
                Some(descriptor) => {
                    let charge = descriptor.spend(descriptor.planned.hits()).await?;
                    Ok(smallvec![(descriptor.place, charge)])
                }
                None => Ok(SmallVec::new()),
            };
        };
        let decision = limiter
            .check_key(key)
            .cost(costs(&self.descriptors))
            .await?;
        Ok(self.charged(&decision))
    }
}

impl Pending<'_, '_> {
    /// Returns whether replicas take units of the descriptor in advance.
    fn is_leased(&self) -> bool {
        self.policies.iter().any(|policy| policy.lease().is_some())
    }

    /// Returns whether the request is denied when this descriptor is over its limit, and its units
    /// fit at some time.
    pub(super) fn denies_alone(&self) -> bool {
        let least = self
            .policies
            .iter()
            .map(|policy| self.priority.units_of_policy(policy))
            .min();
        !self.is_shadow
            && self.is_enforced
            && !self.rule.is_quota()
            && (self.is_capped || least.is_some_and(|least| self.planned.hits() <= least))
    }
}

/// Returns the units of each descriptor.
pub(super) fn costs(descriptors: &[Pending<'_, '_>]) -> Costs {
    let (priority, customer) = descriptors
        .first()
        .map_or((Priority::CRITICAL, None), |descriptor| {
            (descriptor.priority, descriptor.customer)
        });
    let mut hits = descriptors
        .iter()
        .map(|descriptor| descriptor.planned.hits());
    let first = hits.next().unwrap_or_default();
    let costs = Costs::new(Cost::new(first))
        .with_priority(priority)
        .with_customer(customer);
    if hits.all(|other| other == first) {
        return costs;
    }
    descriptors.iter().fold(costs, |costs, descriptor| {
        let names = descriptor
            .policies
            .iter()
            .map(|policy| policy.name().to_owned());
        names.fold(costs, |costs, name| {
            costs.with(name, descriptor.planned.hits())
        })
    })
}

/// One descriptor before it is charged.
pub(super) struct Pending<'p, 'l> {
    pub(super) planned: &'p Planned<'p>,
    pub(super) rule: &'p Rule,
    pub(super) policies: &'p PolicySet,
    /// The limiter with the answer that the rule has in an outage.
    pub(super) limiter: &'l Limiter,
    pub(super) key: Key,
    /// The rule is not enforced for the key.
    is_shadow: bool,
    /// The layer enforces the limits of the key.
    is_enforced: bool,
    /// The place of the descriptor in the request.
    pub(super) place: usize,
    pub(super) compat: Compat,
    priority: Priority,
    customer: Option<Customer>,
    /// Units that never fit are lowered.
    is_capped: bool,
}

impl<'p, 'l> Pending<'p, 'l> {
    /// Returns the descriptor at this place, if it counts something.
    pub(super) fn of(
        place: usize,
        planned: &'p Planned<'_>,
        plan: &Plan<'_>,
        limiter: impl Fn(&Rule) -> &'l Limiter,
    ) -> Option<Self> {
        let found = planned.charged()?;
        let (rule, key) = (found.rule(), found.key());
        let (policies, is_shadow) = (rule.policies()?, !rule.enforcement.applies_to(&key));
        let (is_enforced, compat, priority) =
            (plan.is_enforced(&key), plan.compat(), plan.priority());
        let limiter = limiter(rule);
        Some(Self {
            planned,
            rule,
            policies,
            limiter,
            key,
            is_shadow,
            is_enforced,
            place,
            compat,
            priority,
            customer: plan.customer(),
            is_capped: false,
        })
    }

    /// Lowers units that never fit, and counts natively in every mode: for descriptors that are
    /// reserved or looked at, of which a denial charges nothing.
    pub(super) fn capped(self) -> Self {
        Self {
            is_capped: true,
            compat: Compat::Native,
            ..self
        }
    }
}

impl Pending<'_, '_> {
    /// Charges the descriptor this number of units, in a step of its own. 0 only looks at it.
    pub(super) async fn spend(&self, hits: u64) -> Result<ChargedDescriptor, Error> {
        let (outcome, decision) = self.decide(hits).await?;
        Ok(ChargedDescriptor {
            limiter: self.limiter.with_policies(self.policies.clone()),
            key: self.key.clone(),
            outcome,
            decision,
            is_shadow: self.is_shadow,
        })
    }

    /// Charges the descriptor, as [`spend`](Self::spend) does. Returns the outcome, and the decision or
    /// the error that the units never fit.
    pub(super) async fn decide(
        &self,
        hits: u64,
    ) -> Result<(DescriptorOutcome, Result<Decision, Error>), Error> {
        let limiter = self.limiter.with_policies(self.policies.clone());
        let check = limiter.check_key(&self.key).cost(
            Costs::new(Cost::new(hits))
                .with_priority(self.priority)
                .with_customer(self.customer),
        );
        match check.await {
            Ok(decision) => Ok((
                DescriptorOutcome::from_decision(&decision, self.compat),
                Ok(decision),
            )),
            Err(error) if error.kind() == ErrorKind::CostExceedsBurst => {
                let is_hidden = self.policies.iter().any(Policy::is_hidden);
                Ok((self.too_many(hits).with_hidden(is_hidden), Err(error)))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the outcome of units that no burst has.
    pub(super) fn too_many(&self, hits: u64) -> DescriptorOutcome {
        let period = self.rule.amount().map(|(_, period)| period);
        DescriptorOutcome::blocked(period.unwrap_or_default(), hits, now())
    }

    /// Returns the charge of a descriptor that was decided alone.
    fn charged_alone(self, decision: Decision) -> ChargedDescriptor {
        ChargedDescriptor {
            limiter: self.limiter.with_policies(self.policies.clone()),
            key: self.key,
            outcome: DescriptorOutcome::from_decision(&decision, self.compat),
            decision: Ok(decision),
            is_shadow: self.is_shadow,
        }
    }

    /// Returns the charge of a descriptor that was decided together with others. `branch` is its
    /// branch, from 1.
    pub(super) fn charged(self, branch: u8, decision: &Decision) -> ChargedDescriptor {
        let hits = self.planned.hits();
        let limiter = self.limiter.with_policies(self.policies.clone());
        // Every descriptor has policies, so the decision has a part for it.
        let part = decision.branch(branch).unwrap_or_else(|| decision.clone());
        let is_uncharged = decision.is_denied() && part.is_allowed() && hits > 0;
        let outcome = if is_uncharged {
            DescriptorOutcome::uncharged(&part, hits)
        } else {
            DescriptorOutcome::from_decision(&part, self.compat)
        };
        ChargedDescriptor {
            limiter,
            key: self.key,
            outcome,
            decision: Ok(part),
            is_shadow: self.is_shadow,
        }
    }
}

/// One descriptor that was charged.
pub(super) struct ChargedDescriptor {
    pub(super) limiter: Limiter,
    pub(super) key: Key,
    pub(super) outcome: DescriptorOutcome,
    /// The error says that the units never fit.
    pub(super) decision: Result<Decision, Error>,
    /// The rule is in shadow mode, or not enforced for the key.
    #[cfg_attr(
        not(feature = "http"),
        allow(dead_code, reason = "only a layer hides such decisions")
    )]
    pub(super) is_shadow: bool,
}

/// Refunds everything that was charged. A single descriptor that denies its request was not.
pub(super) async fn refund(charges: &[Option<ChargedDescriptor>]) {
    let spent = charges.iter().flatten().filter(|charge| charge.has_spent());
    if spent.clone().next().is_some() {
        Box::pin(all(spent.map(ChargedDescriptor::refund))).await;
    }
}

impl ChargedDescriptor {
    fn has_spent(&self) -> bool {
        self.decision.as_ref().is_ok_and(Decision::is_allowed)
    }

    async fn refund(&self) {
        let Ok(decision) = &self.decision else { return };
        if let Err(error) = self
            .limiter
            .refund(self.key.clone(), decision.cost())
            .of(decision)
            .await
        {
            tracing::debug!(limiter = self.limiter.name(), %error, "a denied request was not refunded");
        }
    }
}

/// Returns the time since the Unix epoch, from which the end of a window is computed.
pub(super) fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
