//! Requests whose units are known later: they are looked at, reserved and committed, or charged when
//! they have been spent.
//! How descriptors come into steps is in `steps.rs`. What a reservation is, the core says.

use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use tollgate::{
    Cost, Decision, Error, ErrorKind,
    reservation::{Reservation, ReservationId, Settlement},
};

use super::{
    decision::RuleDecision,
    give_back::give_back,
    rule_limiter::RuleLimiter,
    settle::blocked_outcome,
    steps::{ChargedDescriptor, Pending, Step, all, costs},
};
use crate::{Code, DescriptorOutcome, Plan, Rule};

/// The time in which a debt is committed. It has to be longer than any deadline.
const DEBT: Duration = Duration::from_secs(60);

/// One step that holds a reservation, and what each of its descriptors was charged.
type Held = (Reservation, SmallVec<[(usize, ChargedDescriptor); 1]>);

impl RuleLimiter {
    /// Decides whether a request of a plan would pass now, and spends nothing.
    ///
    /// It passes while every limit has a unit left. The units of the plan do not count, and
    /// descriptors that give units back are looked at like the others. Native rules decide in every
    /// [mode](crate::Compat).
    ///
    /// # Errors
    ///
    /// Fails when the store failed and a limit is [closed](tollgate::Outage::Closed) in an outage.
    pub async fn peek_plan(&self, plan: &Plan<'_>) -> Result<RuleDecision, Error> {
        let looks = all(self.pending(plan).map(look)).await;
        let looks: Result<Vec<_>, Error> = looks.into_iter().collect();
        Ok(self.decided(plan, looks?))
    }

    /// Charges the units of a plan as an estimate, under an id by which
    /// [`commit_plan`](Self::commit_plan) settles the real number later.
    ///
    /// The request is charged on all limits or on none, in every [mode](crate::Compat). An estimate
    /// above the burst of a limit reserves that burst. One of 0 is denied while a limit has no unit
    /// left. A counter that the request names twice is charged once, and so is a request that is
    /// sent again under its id.
    ///
    /// A reservation that is not committed stays charged. `time_to_live` says how long a commit
    /// finds it: see [`ReserveBuilder::time_to_live`](tollgate::reservation::ReserveBuilder::time_to_live).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{MemoryStore, reservation::{ReservationId, Settlement}};
    /// use tollgate_rules::{Descriptor, Format, RuleLimiter, RuleSet, Rules};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rules = RuleSet::parse(
    ///     "{domain: llm, descriptors: [{key: tenant, rate_limit: {quota: 1000/h}}]}",
    ///     Format::Yaml,
    /// )?;
    /// let limiter = RuleLimiter::new(Rules::new(rules), MemoryStore::new());
    /// let set = limiter.rules().current();
    /// let tokens = |units| [Descriptor::from([("tenant", "acme")]).with_hits(units)];
    /// let id = ReservationId::random();
    ///
    /// let estimate = tokens(800);
    /// let plan = set.plan("llm", &estimate, 1)?;
    /// let decision = limiter.reserve_plan(&plan, &id, Duration::from_secs(600)).await?;
    /// assert_eq!(decision.verdict().statuses()[0].remaining(), 200);
    ///
    /// let spent = tokens(300);
    /// let plan = set.plan("llm", &spent, 1)?;
    /// assert_eq!(limiter.commit_plan(&plan, &id).await?, Settlement::Settled);
    /// let look = limiter.peek_plan(&plan).await?;
    /// assert_eq!(look.verdict().statuses()[0].remaining(), 700);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails when the store failed and a limit is [closed](tollgate::Outage::Closed) in an outage,
    /// and with [`ErrorKind::Config`] for a wrong time to live. What was reserved is then given
    /// back.
    ///
    /// # Cancellation
    ///
    /// A dropped future may have charged units of some or all descriptors.
    pub async fn reserve_plan(
        &self,
        plan: &Plan<'_>,
        id: &ReservationId,
        time_to_live: Duration,
    ) -> Result<RuleDecision, Error> {
        let steps = self.steps(plan).into_iter();
        let results = all(steps.map(|step| step.reserve(id, time_to_live))).await;
        let (mut held, mut charges, mut failed) = (Vec::new(), Vec::new(), None);
        for result in results {
            match result {
                Ok(Some((reservation, charged))) => {
                    held.push(reservation);
                    charges.extend(charged);
                }
                Ok(None) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            cancel(&held).await;
            return Err(error);
        }
        let decision = self.decided(plan, charges);
        if decision.verdict().code() == Code::OverLimit {
            cancel(&held).await;
        }
        Ok(decision)
    }

    /// Settles the reservation of this id at the units of a plan, which another process may have
    /// reserved.
    ///
    /// The plan has to be that of the same descriptors, and the limits those that were reserved.
    /// [`Settlement::Lapsed`] says that no limit holds a reservation of this id, for example
    /// because other rules are in force since: nothing is charged then, see
    /// [`charge_plan`](Self::charge_plan). What a commit of less or of more does, says
    /// [`Reservation::commit`].
    ///
    /// # Errors
    ///
    /// When the store cannot be reached before the deadline. The commit is then repeated in the
    /// background, and the same commit may be sent again.
    pub async fn commit_plan(
        &self,
        plan: &Plan<'_>,
        id: &ReservationId,
    ) -> Result<Settlement, Error> {
        let steps = self.steps(plan).into_iter();
        let mut settlement = Settlement::Lapsed;
        for result in all(steps.map(|step| step.commit(id))).await {
            settlement = match (settlement, result?) {
                (Settlement::Settled, _) | (_, Settlement::Settled) => Settlement::Settled,
                (Settlement::Lapsed, other) => other,
                (found, _) => found,
            };
        }
        Ok(settlement)
    }

    /// Charges the units of a plan, which have been spent: also where they do not fit.
    ///
    /// Units that do not fit are a debt, for which later requests wait, and the decision is a denial.
    /// A limit is charged at most eight times its burst in all. Descriptors that give units back do
    /// so.
    ///
    /// # Errors
    ///
    /// Fails when the store failed and a limit is [closed](tollgate::Outage::Closed) in an outage.
    /// Other limits may have been charged then.
    pub async fn charge_plan(&self, plan: &Plan<'_>) -> Result<RuleDecision, Error> {
        let (mut start, mut charges) = (0, Vec::new());
        for part in plan.parts() {
            let limiter = |rule: &Rule| self.limiter(rule);
            let returned = give_back(plan, part, &self.0.exceeded, limiter).await?;
            let looks = returned.into_iter().filter_map(|(place, outcome, look)| {
                let look = look?;
                Some((start + place, ChargedDescriptor { outcome, ..look }))
            });
            charges.extend(looks);
            start += part.len();
        }
        for charged in all(self.steps(plan).into_iter().map(Step::charge)).await {
            charges.extend(charged?);
        }
        Ok(self.decided(plan, charges))
    }

    /// Returns the descriptors that count something.
    fn pending<'p>(&'p self, plan: &'p Plan<'_>) -> impl Iterator<Item = Pending<'p, 'p>> {
        let places = plan.iter().enumerate();
        places.filter_map(move |(place, planned)| {
            let limiter = |rule: &Rule| self.limiter(rule);
            Pending::of(place, planned, plan, limiter).map(Pending::capped)
        })
    }

    /// Returns the steps of the descriptors that spend. They do not depend on the number of units,
    /// so a commit takes those of the reservation.
    pub(super) fn steps<'p>(&'p self, plan: &'p Plan<'_>) -> SmallVec<[Step<'p, 'p>; 1]> {
        let spending = self.pending(plan).filter(|one| !one.planned.is_refund());
        self.0.steps.of(true, self.0.modes, spending)
    }

    /// Combines what each descriptor was charged, and counts it.
    pub(super) fn decided(
        &self,
        plan: &Plan<'_>,
        charges: impl IntoIterator<Item = (usize, ChargedDescriptor)>,
    ) -> RuleDecision {
        let outcomes = plan.iter().map(blocked_outcome);
        let mut outcomes: Vec<Option<DescriptorOutcome>> = outcomes.collect();
        let mut decisions = smallvec![None; outcomes.len()];
        for (place, charge) in charges {
            outcomes[place] = Some(charge.outcome);
            decisions[place] = charge.decision.ok();
        }
        let verdict = plan.verdict(&outcomes, self.0.modes);
        self.record(plan, &outcomes, &verdict);
        RuleDecision::new(verdict, decisions)
    }
}

impl Step<'_, '_> {
    async fn reserve(
        self,
        id: &ReservationId,
        time_to_live: Duration,
    ) -> Result<Option<Held>, Error> {
        let Some((limiter, key)) = self.target() else {
            return Ok(None);
        };
        let reservation = limiter
            .reserve(key, costs(&self.descriptors))
            .id(id.clone())
            .time_to_live(time_to_live)
            .capped()
            .await?;
        let charged = self.charged(reservation.decision());
        Ok(Some((reservation, charged)))
    }

    async fn commit(self, id: &ReservationId) -> Result<Settlement, Error> {
        let Some((limiter, key)) = self.target() else {
            return Ok(Settlement::Lapsed);
        };
        limiter.commit(key, id, costs(&self.descriptors)).await
    }

    /// Charges the units, as a debt where they do not fit: a reservation of nothing is always
    /// admitted, and its commit may be of more.
    async fn charge(self) -> Result<SmallVec<[(usize, ChargedDescriptor); 1]>, Error> {
        let Some((limiter, key)) = self.target() else {
            return Ok(SmallVec::new());
        };
        let costs = costs(&self.descriptors);
        let decision = match limiter.check(&key).cost(costs.clone()).await {
            Ok(decision) if decision.is_allowed() => return Ok(self.charged(&decision)),
            Ok(denied) => Some(denied),
            Err(error) if error.kind() == ErrorKind::CostExceedsBurst => None,
            Err(error) => return Err(error),
        };
        let nothing = limiter.reserve(key, Cost::ZERO).time_to_live(DEBT).await?;
        nothing.commit(costs).await?;
        Ok(match decision {
            Some(denied) => self.charged(&denied),
            None => self.too_many(nothing.decision()),
        })
    }

    /// Returns the charges of units that no burst has. Those of each descriptor count as over its
    /// limit.
    fn too_many(self, decision: &Decision) -> SmallVec<[(usize, ChargedDescriptor); 1]> {
        let too_many = |one: &Pending<'_, '_>| one.too_many(one.planned.hits());
        let outcomes: SmallVec<[_; 1]> = self.descriptors.iter().map(too_many).collect();
        let mut charged = self.charged(decision);
        for ((_, charge), outcome) in charged.iter_mut().zip(outcomes) {
            charge.outcome = outcome;
        }
        charged
    }
}

async fn look(pending: Pending<'_, '_>) -> Result<(usize, ChargedDescriptor), Error> {
    Ok((pending.place, pending.spend(0).await?))
}

/// Gives back what the steps of a denied request have reserved.
async fn cancel(held: &[Reservation]) {
    let held = held.iter().filter(|reservation| reservation.is_allowed());
    for result in all(held.map(Reservation::cancel)).await {
        if let Err(error) = result {
            tracing::debug!(%error, "what a denied request has reserved is given back later");
        }
    }
}
