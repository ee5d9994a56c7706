use std::fmt;

use crate::{
    Cost, Costs, Decision, Denied, Error, Key, Limiter,
    store::reservation::{ReservationId, Settlement},
};

/// Units that were charged before the real cost was known. [`Limiter::reserve`] makes it.
///
/// Call [`commit`](Self::commit) with the final cost when the work has ended. A reservation that is dropped stays
/// charged, and so does one whose process dies: nothing is refunded without a commit.
///
/// A reservation can be sent to another task. Another process settles it by its id: see [`Limiter::commit`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Limiter, MemoryStore, Policy, Quota, reservation::Settlement};
///
/// let limiter = Limiter::new(
///     MemoryStore::new(),
///     [
///         Policy::fixed_window("requests", Quota::per_day(60)),
///         Policy::fixed_window("tokens", Quota::per_day(10_000)),
///     ],
/// );
/// let reservation = limiter.reserve("acme", [("requests", 1), ("tokens", 1_000)]).await?.into_result()?;
/// // The model answered with fewer tokens than were reserved.
/// assert_eq!(reservation.commit([("requests", 1), ("tokens", 620)]).await?, Settlement::Settled);
///
/// let left = limiter.peek("acme").await?;
/// assert_eq!(left.state("requests").unwrap().remaining(), 59);
/// assert_eq!(left.state("tokens").unwrap().remaining(), 9_380);
/// # Ok(()) }
/// ```
#[must_use = "a reservation that is dropped stays charged"]
pub struct Reservation {
    limiter: Limiter,
    key: Key,
    id: ReservationId,
    decision: Decision,
}

impl Reservation {
    pub(crate) fn new(limiter: Limiter, key: Key, id: ReservationId, decision: Decision) -> Self {
        Self { limiter, key, id, decision }
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

    /// Returns the id, with which another process settles the reservation.
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

    /// Settles the reservation at the final cost: one [`Cost`] for all policies, or [`Costs`] for each.
    ///
    /// - Less than reserved: the rest is refunded, at the time of the reservation. A window that opened later gets
    ///   nothing.
    /// - More than reserved: the rest is charged now, although it may not fit. The policy is in debt then: later requests
    ///   wait until the debt is paid. A policy spends at most eight times its burst in all, so that one wrong commit does
    ///   not lock a key for ever.
    ///
    /// Only the first commit counts. It may be repeated after an error.
    ///
    /// # Errors
    ///
    /// The store cannot be reached before the deadline. The reservation may be settled or not: repeat the commit, or
    /// leave it to the [time to live](crate::reservation::Reserve::time_to_live), after which the estimate stays charged.
    ///
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when `costs` name a policy that did not decide, or
    /// do not name each of them.
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

impl fmt::Debug for Reservation {
    /// Leaves out the key, which may identify a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("id", &self.id).field("decision", &self.decision).finish_non_exhaustive()
    }
}
