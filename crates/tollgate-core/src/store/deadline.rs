//! The time until which a caller waits for a store, and the alarm that rings then.
//! What keeps the time is in `timer/mod.rs`.

use std::{
    task::{Context, Waker},
    time::{Duration, Instant},
};

use crate::{Error, ErrorKind, lock::Lock, runtime};

/// The time at which the caller of a store stops waiting.
///
/// A deadline consists of a start and a timeout. So a store can use the start as the time of
/// sending, and one timer serves all calls with the same timeout.
///
/// ```
/// use std::time::Duration;
/// use tollgate::store::Deadline;
///
/// let deadline = Deadline::after(Duration::from_millis(50));
/// assert_eq!(deadline.timeout(), Duration::from_millis(50));
/// assert_eq!(deadline.instant(), Some(deadline.start() + Duration::from_millis(50)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    start: Instant,
    timeout: Duration,
}

impl Deadline {
    /// The time limit of a check by default: see
    /// [`LimiterBuilder::deadline`](crate::LimiterBuilder::deadline).
    pub const DEFAULT: Duration = Duration::from_millis(50);

    /// Creates a deadline that ends `timeout` from now.
    ///
    /// Time is tokio's, so a deadline follows a paused clock in tests.
    #[must_use]
    #[inline]
    pub fn after(timeout: Duration) -> Self {
        Self {
            start: runtime::now(),
            timeout,
        }
    }

    /// Returns when the call began.
    #[must_use]
    pub fn start(self) -> Instant {
        self.start
    }

    /// Returns the time from the start to the end.
    #[must_use]
    pub fn timeout(self) -> Duration {
        self.timeout
    }

    /// Returns the end. `None` when it lies beyond what an [`Instant`] can hold, so that it never
    /// comes.
    #[must_use]
    #[inline]
    pub fn instant(self) -> Option<Instant> {
        self.start.checked_add(self.timeout)
    }

    /// Returns whether the end has come.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.instant().is_some_and(|end| end <= runtime::now())
    }

    /// Returns the time from now to the end. Zero when the end has come.
    pub(crate) fn left(self) -> Duration {
        self.timeout
            .saturating_sub(runtime::now().saturating_duration_since(self.start))
    }

    /// Creates the error of a call that was not answered before the end.
    #[must_use]
    pub fn error(self) -> Error {
        Error::new(
            ErrorKind::Timeout,
            format!("the store did not answer within {:?}", self.timeout),
        )
    }
}

/// Wakes a caller at its deadline. `None` before it is set, and after it rang.
#[derive(Default)]
pub(super) struct Alarm(Lock<Option<Waker>>);

impl Alarm {
    pub(super) fn set(&self, cx: &Context<'_>) {
        *self.0.lock() = Some(cx.waker().clone());
    }

    /// Returns whether the deadline has come. Otherwise the caller is woken then.
    pub(super) fn has_rung(&self, cx: &Context<'_>) -> bool {
        match &mut *self.0.lock() {
            Some(waker) => {
                waker.clone_from(cx.waker());
                false
            }
            None => true,
        }
    }

    pub(super) fn ring(&self) {
        let waker = self.0.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
