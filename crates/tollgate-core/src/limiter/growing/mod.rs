//! Reservations that grow: what callers build, hold and settle.
//! See `growth.rs` for how units are counted and slices asked for. A reservation of one estimate is in
//! `limiter/reservation.rs`: each slice is one of these, so stores know nothing of growth.

mod account;
mod error;
mod growth;
mod pace;
mod plan;
mod shared;
#[cfg(test)]
mod tests;
mod unknown;

use std::{fmt, future::IntoFuture};

pub use error::GrowthError;
pub use growth::{Growth, Take, TakeFuture};
use plan::GrowthPlan;
use shared::SharedGrowth;

use tokio::time::Instant;

use super::{LimiterHandle, reservation::ReserveBuilder};
use crate::{
    Costs, Decision, Denied, Error, Key,
    reservation::{Reservation, ReservationId, Settlement},
    store::StoreFuture,
};

impl ReserveBuilder {
    /// Lets the reservation grow by slices, for work whose length nobody knows: the tokens of a stream.
    /// Await the returned builder.
    ///
    /// The estimate is what is known at the start, such as the tokens of a prompt. The first slice is
    /// charged on top of it, and [`Growth::take`] asks for the next one before the present one is
    /// spent. So nothing is counted that was not reserved, and a stream never leaves a debt. What is
    /// reserved and not counted comes back when the reservation is settled.
    ///
    /// The slice has one number of units, for each policy that grows. `[("tokens", 256)]` lets one
    /// policy grow, and a plain number all of them. If the estimate [cascades](Costs::cascading),
    /// the slice cascades too. Choose a slice of a few seconds of the work, and small beside the
    /// quota: at the edge of a limit, less than a slice stays unused.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota, reservation::GrowthError};
    ///
    /// let policies = [
    ///     Policy::fixed_window("requests", Quota::per_day(60)),
    ///     Policy::fixed_window("tokens", Quota::per_day(1_000)),
    /// ];
    /// let limiter = Limiter::new(MemoryStore::new(), policies);
    /// let tokens_left = async || limiter.peek("acme").await.unwrap().state("tokens").unwrap().remaining();
    ///
    /// // A prompt of 12 tokens, and an answer of unknown length.
    /// let stream = limiter
    ///     .reserve("acme", [("requests", 1), ("tokens", 12)])
    ///     .growing([("tokens", 256)])
    ///     .await?
    ///     .into_result()?;
    /// assert_eq!(tokens_left().await, 732);
    ///
    /// for _token in 0..300 {
    ///     stream.growth().take(1).await?; // Send the token here.
    /// }
    /// assert_eq!(tokens_left().await, 476);
    ///
    /// stream.commit().await?;
    /// assert_eq!(tokens_left().await, 688);
    ///
    /// // The window has no third slice, so the stream ends here instead of in a debt.
    /// let stream = limiter.reserve("acme", 0).growing([("tokens", 256)]).await?.into_result()?;
    /// stream.growth().take(512).await?;
    /// assert!(matches!(stream.growth().take(1).await, Err(GrowthError::Denied(_))));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As the [reservation](crate::Limiter::reserve) of the estimate and one slice.
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for what does not combine: a slice without
    /// units, or with two different numbers; a slice that cascades and an estimate that does not; a
    /// policy that grows and is a leaky bucket, whose turns a stream cannot wait for, or a lockout,
    /// which counts failures. So is a [`wait`](Self::wait) for turns.
    pub fn growing(self, slice: impl Into<Costs>) -> GrowingBuilder {
        GrowingBuilder {
            reserve: self,
            slice: slice.into(),
            followed: None,
        }
    }
}

/// Builds a [`GrowingReservation`]. [`ReserveBuilder::growing`] returns it, after all other options.
/// Await it to reserve the estimate and the first slice.
#[must_use = "nothing is reserved until the builder is awaited"]
#[derive(Debug)]
pub struct GrowingBuilder {
    reserve: ReserveBuilder,
    slice: Costs,
    followed: Option<LimiterHandle>,
}

impl GrowingBuilder {
    /// Charges each further slice by the limiter that `handle` holds at that time. By default, all
    /// slices are charged by the policies with which the reservation began.
    ///
    /// A slice that was charged is settled by the policies that charged it. A slice above a lowered
    /// burst is cut to it.
    pub fn following(mut self, handle: &LimiterHandle) -> Self {
        self.followed = Some(handle.clone());
        self
    }
}

impl IntoFuture for GrowingBuilder {
    type Output = Result<GrowingReservation, Error>;
    type IntoFuture = StoreFuture<GrowingReservation>;

    /// Reserves. A store in the process charges at once, also when the future is not polled.
    fn into_future(self) -> StoreFuture<GrowingReservation> {
        let Self {
            mut reserve,
            slice,
            followed,
        } = self;
        let policies = reserve.limiter.policies();
        let plan = GrowthPlan::try_new(policies, &reserve.estimate, &slice);
        let plan = match plan.and_then(|plan| reserve.refuse_wait().map(|()| plan)) {
            Ok(plan) => plan,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        reserve.estimate = plan.costs(0).clone();
        let (time_to_live, asked) = (reserve.time_to_live, Instant::now());
        let begin = move |first: Reservation| {
            let shared = SharedGrowth::new(first, asked, plan, time_to_live, followed);
            GrowingReservation {
                growth: Growth::new(shared),
            }
        };
        reserve.into_future().map(begin)
    }
}

/// A reservation that grows by slices while units are counted. [`ReserveBuilder::growing`] creates
/// it.
///
/// It is settled once: by [`commit`](Self::commit), or in the background when it is dropped. A store
/// outside the process is then called in the runtime in which the reservation was made. What is
/// reserved and not counted comes back, each unit at the time of its own slice. A window that ended
/// keeps its own.
///
/// Each slice is a reservation with an id and a [time to live](ReserveBuilder::time_to_live) of its
/// own. What it has left goes back shortly before that ends, by an eighth of the time or 5 s. So a stream that stands
/// still holds nothing for longer, and asks for a slice when it goes on. Outside a tokio runtime with
/// timers, a slice that is held for longer stays charged, and may still be spent.
///
/// When the process dies, the units of the present slice and of the one that was asked for in advance
/// stay charged, until the quota brings them back: nobody knows how many of them were counted.
///
/// In an outage, each slice follows the [`Outage`](crate::Outage) of the limiter. A slice that the
/// store may have charged, although its answer was lost, is asked for again under the same id, or
/// cancelled at the end.
#[must_use = "a reservation that is dropped is settled"]
pub struct GrowingReservation {
    growth: Growth,
}

impl GrowingReservation {
    /// Returns whether the work may begin.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.decision().is_allowed()
    }

    /// Returns whether the work must not begin. Nothing was charged then.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.decision().is_denied()
    }

    /// Returns the decision over the estimate and the first slice.
    pub fn decision(&self) -> &Decision {
        self.growth.shared().decision()
    }

    /// Returns the id: that of the first slice.
    ///
    /// A request that is repeated under the same id is charged for no slice a second time, until its
    /// time to live ends.
    #[must_use]
    pub fn id(&self) -> &ReservationId {
        self.growth.shared().id()
    }

    /// Returns the key that is charged.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.growth.shared().key()
    }

    /// Turns a denial into an error, so that `?` ends the work.
    ///
    /// # Errors
    ///
    /// [`Denied`], which holds the decision, when the request is denied.
    pub fn into_result(self) -> Result<Self, Denied> {
        match self.decision().clone().into_result() {
            Ok(()) => Ok(self),
            Err(denied) => Err(denied),
        }
    }

    /// Returns what counts the units, and asks for slices. Its clones count for this reservation.
    #[must_use]
    pub fn growth(&self) -> &Growth {
        &self.growth
    }

    /// Settles the reservation at the estimate and what was counted, and returns when the store has
    /// answered. What was not counted comes back.
    ///
    /// Returns [`Settlement::Lapsed`] when a slice that had something to return has lapsed, or was
    /// admitted by [`Outage::Open`](crate::Outage::Open), and for a denied reservation.
    ///
    /// # Errors
    ///
    /// When the store cannot be reached before the deadline. The commit is then repeated in the
    /// background, as [`Reservation::commit`](crate::reservation::Reservation::commit) says.
    pub async fn commit(self) -> Result<Settlement, Error> {
        self.growth.shared().settle(false).await
    }

    /// Settles the reservation without the estimate: the work failed before it cost anything. Units
    /// that were counted stay charged.
    ///
    /// Returns [`Settlement::AlreadySettled`] when the estimate stays charged, because the time to live
    /// of the first slice ended and its units went back.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    pub async fn cancel(self) -> Result<Settlement, Error> {
        self.growth.shared().settle(true).await
    }
}

impl Drop for GrowingReservation {
    fn drop(&mut self) {
        self.growth.shared().settle_in_background();
    }
}

// Leaves out the key, which may identify a person.
impl fmt::Debug for GrowingReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrowingReservation")
            .field("id", self.id())
            .field("growth", &self.growth)
            .finish_non_exhaustive()
    }
}
