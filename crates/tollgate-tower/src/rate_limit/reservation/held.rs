//! The reservation of a layer or a handler: one estimate, or slices that follow each other.
//! See `metered.rs` for what is counted of it.

use tollgate_core::{
    Decision, Error,
    reservation::{GrowingReservation, Reservation, Settlement},
};

/// A reservation of one estimate, or one that grows.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most reservations are of an estimate, and a box would be an allocation for each"
)]
pub enum HeldReservation {
    Estimate(Reservation),
    Growing(GrowingReservation),
}

impl HeldReservation {
    pub(crate) fn decision(&self) -> &Decision {
        match self {
            Self::Estimate(reservation) => reservation.decision(),
            Self::Growing(reservation) => reservation.decision(),
        }
    }

    /// Returns all units: the work has not begun.
    pub(crate) async fn cancel(self) -> Result<Settlement, Error> {
        match self {
            Self::Estimate(reservation) => reservation.cancel().await,
            Self::Growing(reservation) => reservation.cancel().await,
        }
    }
}
