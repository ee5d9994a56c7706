//! Reservations as callers see them: an estimate is charged now, and the real cost settled later.
//! What a store keeps of one is in `store/reservation.rs`. Layers that reserve are in
//! tollgate-tower.

use std::{future::IntoFuture, mem, sync::Arc, time::Duration};

use tokio::time::Instant;
use tollgate_model::raw::{Charge, CostsParts, DecisionParts, PolicySetParts};

use super::{Limiter, LimiterInner, unsettled, wait};
use crate::{
    Cost, Costs, Decision, Denied, Error, Key, Policy,
    clock::micros,
    store::{Check, ReservationId, Settlement, StoreFuture, check::CheckParts},
};

/// The default of [`ReserveBuilder::time_to_live`].
const TIME_TO_LIVE: Duration = Duration::from_secs(600);

impl Limiter {
    /// Charges an estimate now, for work whose cost is known later. Await the returned builder.
    ///
    /// The estimate is charged on all policies or on none, as by a [check](Self::check).
    /// [`Reservation::commit`] then settles the final cost. An estimate of zero is always allowed,
    /// unless a policy [blocks](Decision::is_blocked).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota, reservation::{ReservationId, Settlement}};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("rows", Quota::per_day(1_000)));
    /// let id = ReservationId::try_new("export-7")?;
    /// let reservation = limiter
    ///     .reserve("acme", Cost::new(100))
    ///     .id(id.clone())
    ///     .time_to_live(Duration::from_secs(3_600))
    ///     .await?
    ///     .into_result()?;
    ///
    /// // The export had more rows than expected. The key is in debt until the next day.
    /// assert_eq!(reservation.commit(Cost::new(1_200)).await?, Settlement::Settled);
    /// assert_eq!(limiter.peek("acme").await?.state("rows").unwrap().remaining(), 0);
    /// assert!(limiter.check("acme").await?.is_denied());
    ///
    /// // A second commit changes nothing.
    /// assert_eq!(limiter.commit("acme", &id, Cost::ZERO).await?, Settlement::AlreadySettled);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`CheckBuilder::cost`](crate::limiter::CheckBuilder::cost). An estimate above the burst
    /// of a policy fails with [`ErrorKind::CostExceedsBurst`](crate::ErrorKind::CostExceedsBurst),
    /// unless it is [capped](ReserveBuilder::capped).
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when the store has no
    /// reservations.
    ///
    /// In an outage the [`Outage`](crate::Outage) decides, as for a check. With
    /// [`Outage::Local`](crate::Outage::Local), the reservation is held in this process. With
    /// [`Outage::Open`](crate::Outage::Open), no reservation is held, and its commit settles
    /// nothing.
    pub fn reserve(&self, key: impl Into<Key>, estimate: impl Into<Costs>) -> ReserveBuilder {
        ReserveBuilder {
            limiter: self.clone(),
            key: key.into(),
            estimate: estimate.into(),
            id: None,
            time_to_live: TIME_TO_LIVE,
            is_capped: false,
            max_wait: None,
        }
    }

    /// Settles the reservation of this key and id, which another task or process may have made.
    ///
    /// See [`Reservation::commit`]. The limiter must have the policies of the reservation, in the
    /// same order. Only their quotas may differ. With other policies, the answer is
    /// [`Settlement::Lapsed`]: an id belongs to a key and its policies. A limiter that
    /// [blocks](crate::PolicySet::is_blocked) settles nothing, and answers the same.
    ///
    /// One cost is that of every policy, also where the costs [cascade](Costs::cascading): nothing
    /// here knows what each policy gave. Settle such a reservation by [`Reservation::commit`], or
    /// name the final cost of each policy.
    ///
    /// A commit that does not reach the store is repeated, as by [`Reservation::commit`]. How long the
    /// reservation lives is not known here, so it is repeated for up to 7 days.
    ///
    /// # Errors
    ///
    /// As [`Reservation::commit`], and [`ErrorKind::KeyLevels`](crate::ErrorKind::KeyLevels) when
    /// the key has fewer levels or branches than a policy meters.
    pub async fn commit(
        &self,
        key: impl Into<Key>,
        id: &ReservationId,
        costs: impl Into<Costs>,
    ) -> Result<Settlement, Error> {
        let (key, policies, inner) = (key.into(), self.policies(), &self.inner);
        if policies.is_blocked() {
            return Ok(Settlement::Lapsed);
        }
        let charge = costs.into().charge(policies)?;
        policies.reaches(&key)?;
        let check = Check::of(policies, &key, charge.borrow());
        let outcome = inner
            .commit(check, id, Instant::now() + Reservation::MAX_TIME_TO_LIVE)
            .await;
        // The reservation may have been made in an outage.
        if let Ok(Settlement::Lapsed) = outcome
            && let Some(settlement) = inner.fallback.commit(check, id)
        {
            return Ok(settlement);
        }
        outcome
    }

    /// Settles a reservation where it is held.
    pub(crate) async fn settle(
        &self,
        reservation: &Reservation,
        costs: &Costs,
    ) -> Result<Settlement, Error> {
        let decision = reservation.decision();
        // The policies may have changed since. Those of the decision were charged.
        let policies = decision.policies();
        let charged = decision.charge();
        let charge = costs.settle(policies, charged)?;
        if decision.is_denied() {
            return Ok(Settlement::Lapsed);
        }
        let check = Check::of(policies, reservation.key(), charge.borrow());
        if decision.is_degraded() {
            let settlement = self.inner.fallback.commit_own(check, reservation.id());
            return Ok(settlement.unwrap_or(Settlement::Lapsed));
        }
        self.inner
            .commit(check, reservation.id(), reservation.lapses)
            .await
    }
}

/// Builds a [`Reservation`]. [`Limiter::reserve`] returns it. Await it to reserve.
#[must_use = "nothing is reserved until the builder is awaited"]
pub struct ReserveBuilder {
    pub(super) limiter: Limiter,
    pub(super) key: Key,
    pub(super) estimate: Costs,
    pub(super) id: Option<ReservationId>,
    pub(super) time_to_live: Duration,
    is_capped: bool,
    max_wait: Option<Duration>,
}

impl ReserveBuilder {
    /// Sets the id. A [random](ReservationId::random) id by default.
    ///
    /// Until the time to live ends, another reservation of the same key, id and policies charges
    /// nothing and gets the same answer. So a request may be sent again after a lost answer. The
    /// same id under other policies is another reservation, so the id of a request can be used with
    /// several limiters.
    pub fn id(mut self, id: ReservationId) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the time after which the reservation can no longer be settled, and the estimate stays
    /// charged. 10 minutes by default, 1 ms to 7 days.
    ///
    /// Set it longer than the work can take. Any other time fails with
    /// [`ErrorKind::Config`](crate::ErrorKind::Config).
    pub fn time_to_live(mut self, time_to_live: Duration) -> Self {
        self.time_to_live = time_to_live;
        self
    }

    /// Lowers an estimate above the burst of a policy to that burst. By default such an estimate is
    /// an error.
    ///
    /// The commit charges the rest as a debt.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Cost, ErrorKind, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("tokens", Quota::per_minute(100)));
    /// let error = limiter.reserve("acme", Cost::new(663)).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::CostExceedsBurst);
    ///
    /// let reservation = limiter.reserve("acme", Cost::new(663)).capped().await?;
    /// assert_eq!(reservation.decision().cost(), Cost::new(100));
    /// # Ok(()) }
    /// ```
    pub fn capped(mut self) -> Self {
        self.is_capped = true;
        self
    }

    /// Sets the longest time that the work waits for its turn in the leaky buckets of the limiter.
    /// By default, a bucket takes the reservation while it has room.
    ///
    /// A reservation whose turn would come later is denied, and charges nothing. The builder itself
    /// does not wait: start the work after the decision's [`delay`](Decision::delay). Other
    /// algorithms ignore the time.
    pub fn wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }

    /// Refuses a wait for turns, which a reservation that grows has not.
    pub(super) fn refuse_wait(&self) -> Result<(), Error> {
        match self.max_wait {
            Some(max_wait) => Err(Error::config(format!(
                "a reservation that grows does not wait for turns, got a wait of {max_wait:?}"
            ))),
            None => Ok(()),
        }
    }

    fn charge(&self) -> Result<Charge, Error> {
        let policies = self.limiter.policies();
        let (shortest, longest) = (Reservation::MIN_TIME_TO_LIVE, Reservation::MAX_TIME_TO_LIVE);
        if !(shortest..=longest).contains(&self.time_to_live) {
            return Err(Error::config(format!(
                "time to live must be {shortest:?} to {longest:?}, got {:?}",
                self.time_to_live
            )));
        }
        let mut charge = self.estimate.estimate(policies)?;
        let priority = self.estimate.priority();
        if self.is_capped && charge.borrow().cascade().is_some() {
            charge = policies.cut(charge.borrow());
        } else if self.is_capped {
            let each = policies.iter().zip(charge.borrow().iter(policies.len()));
            let most = |policy: &Policy| Cost::new(priority.units_of_policy(policy));
            charge = Charge::each(each.map(|(policy, cost)| cost.min(most(policy))));
        }
        match charge.borrow().cascade() {
            // Its cost is the sum, and says nothing about the policies.
            Some(_) => policies.refuse(charge.borrow())?,
            None => policies.admits(charge.borrow())?,
        }
        let charge = self.limiter.rank(&self.key, &self.estimate, charge)?;
        policies.reaches(&self.key)?;
        Ok(match self.max_wait {
            Some(max_wait) => wait::queueing(policies, &charge, max_wait),
            None => charge,
        })
    }
}

impl IntoFuture for ReserveBuilder {
    type Output = Result<Reservation, Error>;
    type IntoFuture = StoreFuture<Reservation>;

    /// Reserves. A store in the process charges at once, also when the future is not polled.
    fn into_future(mut self) -> StoreFuture<Reservation> {
        // The reservation keeps the limiter without the exception, which may end before it.
        let in_force = self.limiter.in_force(&self.key);
        let kept = in_force.map(|in_force| mem::replace(&mut self.limiter, in_force));
        let policies = self.limiter.policies();
        if policies.is_blocked() {
            let decision = self.estimate.estimate(policies).map(|charge| {
                let decision = Decision::blocked(policies, charge.borrow());
                let check = Check::of(policies, &self.key, charge.borrow());
                self.limiter.inner.fallback.answered(check, Ok(&decision));
                if self.limiter.inner.has_exceptions() {
                    self.limiter.inner.note_exceptions(check, &decision);
                }
                decision
            });
            let id = self.id.unwrap_or_else(ReservationId::random);
            let held = decision.map(|decision| {
                let limiter = kept.unwrap_or(self.limiter);
                Reservation::new(limiter, self.key, id, decision, self.time_to_live)
            });
            return StoreFuture::ready(held);
        }
        let charge = self.charge();
        let Self {
            limiter,
            key,
            id,
            time_to_live,
            ..
        } = self;
        let id = id.unwrap_or_else(ReservationId::random);
        let charge = match charge {
            Ok(charge) => charge,
            Err(error) => {
                let check = Check::new(limiter.policies(), &key, Cost::ONE);
                limiter.inner.fallback.answered(check, Err(&error));
                return StoreFuture::ready(Err(error));
            }
        };
        let (inner, policies) = (Arc::clone(&limiter.inner), limiter.policies().clone());
        let check = Check {
            deadline: inner.deadline(),
            ..Check::of(&policies, &key, charge.borrow())
        };
        let answer = inner.store.reserve(check, &id, time_to_live);
        inner.ask(check, answer, move |inner, check, outcome| {
            let decision = inner.answer(check, outcome, |store, check| {
                store.reserve_now(check, &id, micros(time_to_live))
            })?;
            let key = check.key.clone();
            let limiter = kept.unwrap_or(limiter);
            Ok(Reservation::new(limiter, key, id, decision, time_to_live))
        })
    }
}

impl LimiterInner {
    /// Settles a reservation that the store holds until `lapses`. A commit that does not reach the
    /// store is repeated in the background.
    pub(super) async fn commit(
        self: &Arc<Self>,
        check: Check<'_>,
        id: &ReservationId,
        lapses: Instant,
    ) -> Result<Settlement, Error> {
        // The same number each time, so that the store knows the commit again.
        let number = || check.charge().numbered(check.number());
        let numbered = (!self.is_in_process).then(number);
        let check = numbered
            .as_ref()
            .map_or(check, |charge| check.with_charge(charge));
        let outcome = self.call(check, |check| self.store.commit(check, id)).await;
        self.fallback.committed(outcome.as_ref().ok());
        match &outcome {
            Err(error) if unsettled::is_repeated(error) => {
                self.unsettled.add(self, check, id, lapses);
            }
            _ => self.unsettled.resume(self),
        }
        outcome
    }
}

// Leaves out the key, which may identify a person.
crate::debug_fields! { ReserveBuilder: estimate, id, time_to_live, is_capped, max_wait, .. }

/// Units that are charged before the real cost is known. [`Limiter::reserve`] creates it.
///
/// Call [`commit`](Self::commit) with the final cost when the work has ended. A reservation that is
/// dropped stays charged, and so does one whose process dies: nothing is refunded without a commit.
///
/// A reservation can be sent to another task. Another process settles it by its id: see
/// [`Limiter::commit`].
#[must_use = "a reservation that is dropped stays charged"]
pub struct Reservation {
    limiter: Limiter,
    key: Key,
    id: ReservationId,
    decision: Decision,
    /// The store holds the reservation no longer.
    lapses: Instant,
}

impl Reservation {
    /// The least [time to live](ReserveBuilder::time_to_live): 1 ms.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::reservation::Reservation;
    ///
    /// assert_eq!(Reservation::MIN_TIME_TO_LIVE, Duration::from_millis(1));
    /// ```
    pub const MIN_TIME_TO_LIVE: Duration = Duration::from_millis(1);

    /// The greatest [time to live](ReserveBuilder::time_to_live): 7 days.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::reservation::Reservation;
    ///
    /// assert_eq!(Reservation::MAX_TIME_TO_LIVE, Duration::from_secs(7 * 86_400));
    /// ```
    pub const MAX_TIME_TO_LIVE: Duration = Duration::from_secs(7 * 86_400);

    /// Creates a reservation that was made just now.
    fn new(
        limiter: Limiter,
        key: Key,
        id: ReservationId,
        decision: Decision,
        time_to_live: Duration,
    ) -> Self {
        Self {
            lapses: Instant::now() + time_to_live,
            limiter,
            key,
            id,
            decision,
        }
    }

    /// Returns the limiter that made it.
    pub(super) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Returns whether the work may begin.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// Returns whether the work must not begin. Nothing was charged then.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.decision.is_denied()
    }

    /// Returns the decision: what was charged, and what every policy has left.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns whether the costs [cascade](Costs::cascading): a commit of one cost is their sum.
    #[must_use]
    pub fn cascades(&self) -> bool {
        self.decision.charge().cascade().is_some()
    }

    /// Returns the id, by which another process can settle the reservation.
    #[must_use]
    pub fn id(&self) -> &ReservationId {
        &self.id
    }

    /// Returns the key that was charged.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Turns a denial into an error, so that `?` ends the work.
    ///
    /// # Errors
    ///
    /// [`Denied`], which holds the decision, when the request is denied.
    pub fn into_result(self) -> Result<Self, Denied> {
        match self.decision.clone().into_result() {
            Ok(()) => Ok(self),
            Err(denied) => Err(denied),
        }
    }

    /// Settles the reservation at the final cost: one [`Cost`] for all policies, or [`Costs`] for
    /// each.
    ///
    /// - Less than reserved: the rest is refunded, at the time of the reservation. A window that
    ///   opened later gets nothing.
    /// - One cost is the sum of costs that [cascade](Costs::cascading), and that of each policy
    ///   beside them. Name these where they count something else. What was spent last comes back
    ///   first.
    /// - More than reserved: the rest is charged now, although it may not fit. The policy is in
    ///   debt then: later requests wait until the debt is paid. A policy spends at most eight times
    ///   its burst in all, so that one wrong commit does not lock a key for ever.
    ///
    /// Only the first commit counts, so it may be repeated.
    ///
    /// A commit that does not reach the store before the deadline returns its error then, and is
    /// repeated in the background until the store answers or the reservation lapses. Up to 4 096
    /// commits of a limiter wait, in 8 MB at most. When there are more, the oldest are given up. None
    /// outlives the process, and one whose future is dropped before it is ready does not wait.
    ///
    /// # Errors
    ///
    /// When the store cannot be reached before the deadline. The reservation may be settled or not,
    /// and the commit is repeated.
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when `costs` name a policy that did not
    /// decide, or leave one out.
    pub async fn commit(&self, costs: impl Into<Costs>) -> Result<Settlement, Error> {
        let costs = costs.into();
        self.limiter.settle(self, &costs).await
    }

    /// Refunds the whole reservation: a commit of zero.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    pub async fn cancel(&self) -> Result<Settlement, Error> {
        self.commit(Cost::ZERO).await
    }
}

// Leaves out the key, which may identify a person.
crate::debug_fields! { Reservation: id, decision, .. }
