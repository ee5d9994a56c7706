//! A reservation together with its meter, until it is settled once, at the end of the response
//! body.
//! How it is made is in `layer.rs` and `handler.rs`, how a store keeps it in the core.

use tokio::runtime::Handle;
use tollgate_core::{
    Cost, Costs, Decision, Error, ErrorKind, Limiter,
    reservation::{Reservation, Settlement},
};

use super::HeldReservation;
use crate::{
    Meter,
    body::{BodyEnd, BodyGuard},
    gate::in_background,
};

/// A reservation with the [meter](Self::meter) that counts its cost.
///
/// It is settled once: at the cost that the meter has counted. A policy without a count keeps what
/// was reserved. If the costs [cascade](Costs::cascading), the count for all policies is their sum.
/// As a [`BodyGuard`], it is settled when the body of the response ends, fails or is dropped.
/// Dropping it elsewhere settles it too.
///
/// One that [grows](super::HandlerReserve::growing) settles at the estimate and what the meter has
/// counted, also when that is nothing.
///
/// The cost is committed to a store outside the process in the background, in the tokio runtime in
/// which the reservation was made, and [repeated](Reservation::commit) while the store is away. The
/// estimate stays charged if there is no runtime.
///
/// [`HandlerLimiter::reserve`](crate::HandlerLimiter::reserve) returns it, with an example. A
/// [`ReservationLayer`](super::ReservationLayer) puts it into the body of each response.
#[must_use = "dropping the reservation settles it"]
pub struct MeteredReservation {
    /// `None` once it is settled, and for a request that was admitted without a reservation.
    reservation: Option<HeldReservation>,
    meter: Meter,
    is_in_process: bool,
    /// The runtime of the commits to a store outside the process.
    runtime: Option<Handle>,
}

impl MeteredReservation {
    /// Joins a reservation with a new meter. A denied one holds nothing.
    pub(crate) fn new(limiter: &Limiter, reservation: Option<HeldReservation>) -> Self {
        let reservation = reservation.filter(|held| held.decision().is_allowed());
        let policies = reservation
            .as_ref()
            .map_or(limiter.policies(), |held| held.decision().policies());
        let is_in_process = limiter.is_in_process();
        Self {
            meter: match &reservation {
                Some(HeldReservation::Growing(held)) => Meter::growing(held),
                _ => Meter::for_policies(policies),
            },
            reservation,
            is_in_process,
            runtime: if is_in_process {
                None
            } else {
                Handle::try_current().ok()
            },
        }
    }

    /// Returns the meter. Its clones share the counts.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Returns the decision: what was charged, and what every policy has left.
    ///
    /// Returns `None` for a request that [shadow mode](crate::RateLimitBuilder::shadow) has
    /// admitted without a reservation.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        self.reservation.as_ref().map(HeldReservation::decision)
    }

    /// Settles the reservation now, at this cost instead of the one that the meter has counted.
    ///
    /// Returns [`Settlement::Lapsed`] for a request that was admitted without a reservation.
    ///
    /// # Errors
    ///
    /// Fails as [`Reservation::commit`] does. The estimate stays charged then.
    ///
    /// [`ErrorKind::Unsupported`] for a reservation that grows, which is settled at what was counted:
    /// call [`finish`](Self::finish).
    pub async fn commit(mut self, costs: impl Into<Costs>) -> Result<Settlement, Error> {
        match self.reservation.take() {
            Some(HeldReservation::Estimate(reservation)) => reservation.commit(costs).await,
            Some(HeldReservation::Growing(_)) => Err(Error::new(
                ErrorKind::Unsupported,
                "a reservation that grows is settled at what its meter has counted",
            )),
            None => Ok(Settlement::Lapsed),
        }
    }

    /// Settles the reservation now at what the meter has counted, and returns when the store has
    /// answered.
    ///
    /// Returns [`Settlement::Lapsed`] for a request that was admitted without a reservation. Where
    /// nothing was counted, an estimate stays charged, and [`Settlement::Settled`] is returned.
    ///
    /// # Errors
    ///
    /// Fails as [`Reservation::commit`] does, which is then repeated in the background.
    pub async fn finish(mut self) -> Result<Settlement, Error> {
        match self.reservation.take() {
            Some(HeldReservation::Estimate(reservation)) => match self.counted(&reservation) {
                Some(costs) => reservation.commit(costs).await,
                None => Ok(Settlement::Settled),
            },
            Some(HeldReservation::Growing(reservation)) => reservation.commit().await,
            None => Ok(Settlement::Lapsed),
        }
    }

    /// Returns the costs that the meter has counted. `None` when it has counted nothing.
    fn counted(&self, reservation: &Reservation) -> Option<Costs> {
        if !self.meter.has_counted() {
            return None;
        }
        // The count for all policies is the sum of costs that cascade.
        let sum = self.meter.sum().filter(|_| reservation.cascades());
        Some(sum.unwrap_or_else(|| self.meter.costs(charged(reservation.decision()))))
    }

    /// Settles the reservation at what was counted. Only the first call has an effect.
    fn settle(&mut self) {
        match self.reservation.take() {
            Some(HeldReservation::Estimate(reservation)) => {
                if let Some(costs) = self.counted(&reservation) {
                    let _runtime = self.runtime.as_ref().map(Handle::enter);
                    in_background(self.is_in_process, commit(reservation, costs));
                }
            }
            // It settles itself, in the runtime in which it was made.
            Some(HeldReservation::Growing(reservation)) => drop(reservation),
            None => {}
        }
    }
}

/// Returns what a decision has charged on each policy.
fn charged(decision: &Decision) -> Costs {
    let states = decision.states();
    states.fold(Costs::new(Cost::ZERO), |costs, state| {
        costs.with(state.policy().name().to_owned(), state.cost())
    })
}

/// Commits a reservation. The limiter repeats what does not reach the store.
async fn commit(reservation: Reservation, costs: Costs) {
    match reservation.commit(costs).await {
        Ok(Settlement::Lapsed) => tracing::debug!(
            "a reservation has lapsed before its response ended, its estimate stays charged"
        ),
        Ok(_) => {}
        Err(error) => {
            tracing::debug!(%error, "a commit failed, the estimate stays charged until it is repeated");
        }
    }
}

impl BodyGuard for MeteredReservation {
    fn on_end(&mut self, _: BodyEnd) {
        self.settle();
    }
}

impl Drop for MeteredReservation {
    fn drop(&mut self) {
        self.settle();
    }
}

tollgate_core::debug_fields! { MeteredReservation: reservation, meter, .. }
