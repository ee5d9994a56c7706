//! Counts the units of items before they pass, by one meter after the other.
//! See `stream.rs` and `body.rs` for what an item is, and the core for how a reservation grows.

use std::{
    collections::VecDeque,
    future::IntoFuture,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tollgate_core::reservation::{GrowthError, Take};
use tollgate_tower::Meter;

/// Lets items pass whose units are counted.
pub(crate) struct UnitGate {
    /// The first one counts, until its reservation is denied.
    meters: VecDeque<Meter>,
    max_wait: Option<Duration>,
    /// The units of the item at hand are not reserved yet.
    taking: Option<<Take as IntoFuture>::IntoFuture>,
}

impl UnitGate {
    pub(crate) fn new(meter: &Meter) -> Self {
        Self {
            meters: VecDeque::from([meter.clone()]),
            max_wait: None,
            taking: None,
        }
    }

    pub(crate) fn wait(&mut self, max_wait: Duration) {
        self.max_wait = Some(max_wait);
    }

    pub(crate) fn or(&mut self, meter: &Meter) {
        self.meters.push_back(meter.clone());
    }

    /// Counts the units of the item at hand. Call it with the same number until it is ready.
    pub(crate) fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        units: u64,
    ) -> Poll<Result<(), GrowthError>> {
        loop {
            let Some(meter) = self.meters.front() else {
                return Poll::Ready(Err(GrowthError::Settled));
            };
            let Some(growth) = meter.growth() else {
                meter.add(units);
                return Poll::Ready(Ok(()));
            };
            let is_last = self.meters.len() == 1;
            let taking = self.taking.get_or_insert_with(|| {
                let take = growth.take(units);
                match self.max_wait.filter(|_| is_last) {
                    Some(max_wait) => take.wait(max_wait).into_future(),
                    None => take.into_future(),
                }
            });
            let outcome = ready!(Pin::new(taking).poll(cx));
            self.taking = None;
            match outcome {
                Err(GrowthError::Denied(_)) if !is_last => drop(self.meters.pop_front()),
                outcome => return Poll::Ready(outcome),
            }
        }
    }
}

tollgate_core::debug_fields! { UnitGate: meters, max_wait, .. }
