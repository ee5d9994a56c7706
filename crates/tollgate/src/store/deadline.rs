use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use crate::{Error, ErrorKind, runtime};

/// Marks the time at which the caller of a store stops waiting.
///
/// A deadline keeps its start and its timeout apart. A store can then use the start as the time of sending, and
/// serve all checks with the same timeout from one timer.
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
    /// The time limit of a check by default: see [`LimiterBuilder::deadline`](crate::LimiterBuilder::deadline).
    pub(crate) const DEFAULT: Duration = Duration::from_millis(50);

    /// Creates a deadline that ends `timeout` from now.
    ///
    /// Time is tokio's, so a deadline follows a paused clock in tests.
    #[must_use]
    #[inline]
    pub fn after(timeout: Duration) -> Self {
        Self { start: runtime::now(), timeout }
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

    /// Returns the end. `None` when it lies beyond what an [`Instant`] can hold, so that it never comes.
    #[must_use]
    #[inline]
    pub fn instant(self) -> Option<Instant> {
        self.start.checked_add(self.timeout)
    }

    /// Returns whether the end has come.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only a store on a server counts late calls"))]
    pub(crate) fn is_over(self) -> bool {
        self.instant().is_some_and(|end| end <= runtime::now())
    }

    /// Returns the time from now to the end. Zero when the end has come.
    pub(crate) fn left(self) -> Duration {
        self.timeout.saturating_sub(runtime::now().saturating_duration_since(self.start))
    }

    /// Creates the error of a call that was not answered before the end.
    pub(crate) fn error(self) -> Error {
        Error::new(ErrorKind::Timeout, format!("the store did not answer within {:?}", self.timeout))
    }
}

/// Waits for an answer of a store until the deadline, and without one as long as the answer takes.
///
/// Every caller that waits for a store outside of the process waits here. The checks of one server alone are ended by
/// a timer that many of them share. At the deadline the answer is dropped: what sends to a server then counts the call
/// as late.
///
/// # Errors
///
/// [`ErrorKind::NoRuntime`] outside a runtime, and [`ErrorKind::Timeout`] at the deadline.
pub(crate) async fn answer_by<T>(
    deadline: Option<Deadline>,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    runtime::current()?;
    match deadline.and_then(|deadline| Some((deadline, deadline.instant()?))) {
        Some((deadline, end)) => timeout_at(end.into(), answer).await.unwrap_or_else(|_| Err(deadline.error())),
        None => answer.await,
    }
}
