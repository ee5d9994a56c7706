//! Counts the units of a growing reservation, and lets callers wait for the next slice.
//! The account and the calls of the store are in `shared.rs`.

use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

use super::{
    error::GrowthError,
    shared::{Refusal, SharedGrowth, Taken},
};

/// Counts the units of a [`GrowingReservation`](super::GrowingReservation), and asks for its slices.
/// Clones count for the same reservation.
///
/// Only what is reserved is counted. [`take`](Self::take) counts as soon as it is, and
/// [`try_take`](Self::try_take) counts at once or not at all. Over a store outside the process, both
/// ask for the next slice in the background, about two round trips before it is needed at the present
/// rate.
///
/// Counting takes a lock of this reservation for a moment, and allocates nothing.
#[derive(Clone)]
pub struct Growth(Arc<SharedGrowth>);

impl Growth {
    pub(super) fn new(shared: Arc<SharedGrowth>) -> Self {
        Self(shared)
    }

    pub(super) fn shared(&self) -> &Arc<SharedGrowth> {
        &self.0
    }

    /// Counts units as soon as they are reserved, all of them or none. Await the returned builder
    /// before the units leave.
    ///
    /// The call asks for slices until the units are covered. When a slice is denied, it fails at once,
    /// unless it [waits](Take::wait). A denial of a store outside the process stands for a second, or for
    /// the [time](GrowthError::retry_after) that it says if that is shorter: until then it is the answer
    /// to further calls. So a slice that was denied in advance is not asked for once more.
    ///
    /// # Errors
    ///
    /// [`GrowthError::Denied`] when a policy denies the next slice.
    ///
    /// # Cancellation
    ///
    /// A future that is dropped before it is ready has counted nothing. A slice that it has asked for
    /// belongs to the reservation.
    pub fn take(&self, units: u64) -> Take {
        Take {
            growth: self.clone(),
            units,
            max_wait: None,
        }
    }

    /// Counts units if they are reserved. Returns whether they were counted.
    ///
    /// If they are not, the next slice is asked for in the background, so a later call may count
    /// them. A store in the process grants it at once.
    #[must_use = "units that are not reserved are not counted"]
    pub fn try_take(&self, units: u64) -> bool {
        loop {
            match self.0.take(units) {
                Taken::Yes => return true,
                Taken::Settled => return false,
                Taken::Short if self.0.denial().is_some() => return false,
                Taken::Short => {
                    let reserved = self.reserved();
                    self.0.ask();
                    if self.reserved() == reserved {
                        return false;
                    }
                }
            }
        }
    }

    /// Counts as many of these units as are reserved, and returns how many. The rest is not charged.
    ///
    /// For work that has been done already: a stream counts by [`take`](Self::take) before an item
    /// leaves.
    #[must_use = "units that are not reserved are not counted"]
    pub fn take_up_to(&self, units: u64) -> u64 {
        if self.try_take(units) {
            return units;
        }
        loop {
            let most = units.min(self.left());
            match self.0.take(most) {
                Taken::Yes => return most,
                Taken::Settled => return 0,
                // Another clone was faster.
                Taken::Short => {}
            }
        }
    }

    /// Asks for the next slice now, also after a denial that stands, and returns when it is reserved.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    pub async fn grow(&self) -> Result<(), GrowthError> {
        let mut call = Asked::new(&self.0);
        match call.next().await {
            Some(refusal) => Err(refusal.error),
            None => Ok(()),
        }
    }

    /// Returns whether the policy with this name is charged slices, of its own or as one of those that
    /// cascade. It may be charged the estimate, too.
    #[must_use]
    pub fn grows(&self, policy: &str) -> bool {
        self.0.grows(policy)
    }

    /// Returns the units that were reserved for counting, without the estimate. After the settlement,
    /// those that were counted.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.0.units().0
    }

    /// Returns the units that were counted.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.0.units().1
    }

    /// Returns the units that are reserved and not counted.
    #[must_use]
    pub fn left(&self) -> u64 {
        let (reserved, counted) = self.0.units();
        reserved - counted
    }
}

// Leaves out the key, which may identify a person.
impl fmt::Debug for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reserved, counted) = self.0.units();
        f.debug_struct("Growth")
            .field("reserved", &reserved)
            .field("counted", &counted)
            .finish_non_exhaustive()
    }
}

/// Builds a call that counts units. [`Growth::take`] returns it. Await it to count.
#[must_use = "nothing is counted until the builder is awaited"]
#[derive(Debug)]
pub struct Take {
    growth: Growth,
    units: u64,
    max_wait: Option<Duration>,
}

impl Take {
    /// Waits for up to `max_wait` until the units are reserved. By default, the call fails at the
    /// first denial.
    ///
    /// A denied slice is asked for again when the denial says that it fits. If that is later than
    /// `max_wait`, the call fails at once. After an error it asks again every 250 ms.
    pub fn wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }
}

impl IntoFuture for Take {
    type Output = Result<(), GrowthError>;
    type IntoFuture = TakeFuture;

    fn into_future(self) -> TakeFuture {
        TakeFuture(TakePhase::Begin(self))
    }
}

/// The future of a [`Take`].
#[must_use = "futures do nothing until they are awaited"]
pub struct TakeFuture(TakePhase);

enum TakePhase {
    Begin(Take),
    /// Too little was left at first. The future is boxed only then.
    Short(Pin<Box<dyn Future<Output = Result<(), GrowthError>> + Send>>),
    Done,
}

impl Future for TakeFuture {
    type Output = Result<(), GrowthError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let TakePhase::Begin(take) = &self.0 {
            let Take {
                growth,
                units,
                max_wait,
            } = take;
            match growth.0.take(*units) {
                Taken::Yes => {
                    self.0 = TakePhase::Done;
                    return Poll::Ready(Ok(()));
                }
                Taken::Settled => {
                    self.0 = TakePhase::Done;
                    return Poll::Ready(Err(GrowthError::Settled));
                }
                Taken::Short => {
                    let ends = max_wait.map(|max_wait| Instant::now() + max_wait);
                    let shared = Arc::clone(&growth.0);
                    self.0 = TakePhase::Short(Box::pin(take_short(shared, *units, ends)));
                }
            }
        }
        match &mut self.0 {
            TakePhase::Short(call) => {
                let outcome = std::task::ready!(call.as_mut().poll(cx));
                self.0 = TakePhase::Done;
                Poll::Ready(outcome)
            }
            // As futures do that are polled after their end.
            TakePhase::Begin(_) | TakePhase::Done => Poll::Pending,
        }
    }
}

impl fmt::Debug for TakeFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TakeFuture")
    }
}

/// Asks for slices until the units are counted.
async fn take_short(
    shared: Arc<SharedGrowth>,
    units: u64,
    ends: Option<Instant>,
) -> Result<(), GrowthError> {
    loop {
        let mut call = Asked::new(&shared);
        match shared.take(units) {
            Taken::Yes => return Ok(()),
            Taken::Settled => return Err(GrowthError::Settled),
            Taken::Short => {}
        }
        let refusal = match shared.denial() {
            Some(denial) => denial,
            None => match call.next().await {
                Some(refusal) => refusal,
                None => continue,
            },
        };
        match (ends, refusal.until) {
            (Some(ends), Some(until)) if until <= ends => sleep_until(until).await,
            _ => return Err(refusal.error),
        }
    }
}

/// Waits for the end of a call for a slice that ends from now on.
struct Asked<'a> {
    shared: &'a Arc<SharedGrowth>,
    /// The calls that had ended before.
    answers: u64,
}

impl<'a> Asked<'a> {
    fn new(shared: &'a Arc<SharedGrowth>) -> Self {
        Self {
            shared,
            answers: shared.answers().0,
        }
    }

    /// Asks for a slice, or joins the call that is on its way. Returns why it brought none.
    async fn next(&mut self) -> Option<Refusal> {
        loop {
            let mut changed = pin!(self.shared.changed().notified());
            // Before the look, so that no end is missed.
            changed.as_mut().enable();
            let (answers, refusal) = self.shared.answers();
            if answers > self.answers {
                self.answers = answers;
                return refusal;
            }
            if !self.shared.ask() {
                return Some(Refusal::settled());
            }
            // A store in the process has answered.
            if self.shared.answers().0 == self.answers {
                changed.await;
            }
        }
    }
}
