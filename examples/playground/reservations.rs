//! Reservations: an estimate is charged now, and the real cost is settled later.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::StatusCode;
use serde::Serialize;
use tokio::time::Instant;
use tollgate::{
    Cost, ErrorKind,
    reservation::{Reservation, Settlement},
};

use crate::{
    pane::{MAX_COST, Pane},
    problem::{FieldError, Refused},
};

/// The time in which a reservation can be settled.
const TIME_TO_LIVE: Duration = Duration::from_secs(120);

/// The most reservations of this process.
const MAX_HELD: usize = 12;

/// Holds the reservations that were not settled yet.
#[derive(Default)]
pub(crate) struct Reservations(Mutex<Vec<Held>>);

struct Held {
    reservation: Arc<Reservation>,
    pane: &'static str,
    estimate: u64,
    lapses: Instant,
}

/// Describes a reservation for the page.
#[derive(Debug, Serialize)]
pub(crate) struct HeldState {
    id: String,
    pane: &'static str,
    estimate: u64,
    lapses_in_ms: u64,
}

impl Reservations {
    /// Reserves an estimate from the limiter of a pane.
    ///
    /// # Errors
    ///
    /// Refuses an estimate of 0, one that can never fit, one that does not fit now, and the 13th
    /// reservation.
    pub(crate) async fn reserve(
        &self,
        pane: &Pane,
        key: &str,
        estimate: u64,
    ) -> Result<(), Refused> {
        FieldError::unless_within("estimate", estimate, 1..=MAX_COST)?;
        if self.lock().len() >= MAX_HELD {
            let message = format!(
                "at most {MAX_HELD} reservations are held here, got one more: settle one first"
            );
            return Err(FieldError::new("estimate", estimate, message).into());
        }
        let (limiter, key) = pane.limiter(key);
        let reserved = limiter
            .reserve(key, Cost::new(estimate))
            .time_to_live(TIME_TO_LIVE)
            .await;
        let reservation = reserved.map_err(|error| {
            let status = match error.kind() {
                ErrorKind::CostExceedsBurst => StatusCode::UNPROCESSABLE_ENTITY,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            Refused::new(
                status,
                "estimate",
                estimate,
                format!("estimate {estimate}: {error}"),
            )
        })?;
        if let Some(wait) = reservation.decision().retry_after() {
            let wait = wait.as_secs_f64();
            let message = format!(
                "estimate {estimate} does not fit now, and is not charged: try again in {wait:.1} s"
            );
            return Err(Refused::new(
                StatusCode::TOO_MANY_REQUESTS,
                "estimate",
                estimate,
                message,
            ));
        }
        let lapses = Instant::now() + TIME_TO_LIVE;
        let held = Held {
            reservation: Arc::new(reservation),
            pane: pane.name(),
            estimate,
            lapses,
        };
        self.lock().push(held);
        Ok(())
    }

    /// Settles a reservation at its real cost. It stays in the list if the store does not answer.
    ///
    /// # Errors
    ///
    /// Refuses an unknown id, and a cost above 10 000. Fails while the store does not answer.
    pub(crate) async fn commit(&self, id: &str, cost: u64) -> Result<Settlement, Refused> {
        FieldError::unless_within("cost", cost, 0..=MAX_COST)?;
        let held = self
            .lock()
            .iter()
            .find(|held| held.reservation.id().as_str() == id)
            .map(|held| Arc::clone(&held.reservation));
        let Some(reservation) = held else {
            let message = format!("id must be that of a reservation in the list, got {id}");
            return Err(Refused::new(StatusCode::NOT_FOUND, "id", id, message));
        };
        let settlement = reservation.commit(Cost::new(cost)).await.map_err(|error| {
            let message = format!("cost {cost} is not settled: {error}");
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, "cost", cost, message)
        })?;
        self.lock()
            .retain(|held| held.reservation.id().as_str() != id);
        Ok(settlement)
    }

    /// Returns the reservations that can be settled.
    pub(crate) fn state(&self) -> Vec<HeldState> {
        let (now, mut held) = (Instant::now(), self.lock());
        held.retain(|held| held.lapses > now);
        let states = held.iter().map(|held| HeldState {
            id: held.reservation.id().as_str().to_owned(),
            pane: held.pane,
            estimate: held.estimate,
            lapses_in_ms: u64::try_from((held.lapses - now).as_millis()).unwrap_or(u64::MAX),
        });
        states.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
