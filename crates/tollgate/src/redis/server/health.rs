use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use super::{
    breaker::Breaker,
    distance::{self, Distance},
};
use crate::{Deadline, Error, ErrorKind, runtime::now};

/// Holds what is known of a server's health.
#[derive(Debug)]
pub(super) struct Health {
    pub(super) breaker: Breaker,
    pub(super) distance: Distance,
    /// The error of a check while the breaker is open.
    refusal: ArcSwap<Error>,
    /// The error of a check whose deadline is too short for the round trip.
    far: ArcSwap<Error>,
    /// The time of the last answer, in microseconds after `began`.
    heard_us: AtomicU64,
    began: Instant,
    /// Wakes all that wait for answers when the breaker has opened.
    opened: Notify,
    /// Makes the probe start again at once, because the server is another one now.
    pub(super) probe_now: Notify,
}

/// The part of the time of a check, from its beginning, in which an answer to another call does not excuse the server: a
/// tenth.
const SOON: u32 = 10;

impl Health {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            breaker: Breaker::new(),
            distance: Distance::new(),
            refusal: ArcSwap::from_pointee(silent()),
            far: ArcSwap::from_pointee(silent()),
            heard_us: AtomicU64::new(0),
            began: now(),
            opened: Notify::new(),
            probe_now: Notify::new(),
        })
    }

    pub(super) fn refusal(&self) -> Error {
        Error::clone(&self.refusal.load())
    }

    pub(super) fn refuse_with(&self, error: Error) {
        self.refusal.store(Arc::new(error));
    }

    /// Returns the error of a check whose deadline is too short for the round trip.
    #[inline]
    pub(super) fn refusal_as_far(&self, deadline: Duration) -> Option<Error> {
        self.distance.is_too_short(deadline).then(|| Error::clone(&self.far.load()))
    }

    pub(super) fn refuse_as_far(&self, round_trip: Duration) {
        let message = format!(
            "the round trip to redis takes {:?}, which needs a deadline of {:?} or more",
            shown(round_trip),
            shown(distance::needed(round_trip))
        );
        self.far.store(Arc::new(Error::new(ErrorKind::Distant, message)));
    }

    /// Notes an answer of the server.
    pub(super) fn heard(&self) {
        let heard_us = now().saturating_duration_since(self.began).as_micros() as u64;
        self.heard_us.store(heard_us, Ordering::Relaxed);
        self.breaker.heard();
    }

    /// Counts a check that missed its deadline. Returns whether that opened the breaker.
    ///
    /// A check does not count when the server answered another call after the first part of its time, [`SOON`]: the server
    /// is late, and not away. An earlier answer does not show that, because some checks have always begun shortly before the
    /// last answer of a server that falls silent.
    pub(super) fn missed(&self, deadline: Option<Deadline>) -> bool {
        let heard = self.began + Duration::from_micros(self.heard_us.load(Ordering::Relaxed));
        let soon = |deadline: Deadline| deadline.start().checked_add(deadline.timeout() / SOON);
        if deadline.and_then(soon).is_some_and(|soon| soon < heard) {
            return false;
        }
        let has_opened = self.breaker.missed();
        if has_opened {
            self.refuse_with(silent());
            tracing::debug!("redis did not answer several checks: none is sent until it answers a probe");
            self.opened.notify_waiters();
        }
        has_opened
    }

    /// Opens the breaker because a retry has no use before a probe was answered. Returns whether it was closed.
    pub(super) fn failed(&self, error: &Error) -> bool {
        self.refuse_with(error.clone());
        let has_opened = self.breaker.open();
        if has_opened {
            tracing::debug!(%error, "redis failed: no check is sent until it answers a probe");
            self.opened.notify_waiters();
        }
        has_opened
    }

    /// Waits until the breaker has opened since it had this epoch.
    pub(super) async fn until_opened_after(&self, epoch: u64) {
        let mut opened = pin!(self.opened.notified());
        opened.as_mut().enable();
        if self.breaker.epoch() == epoch {
            opened.await;
        }
    }
}

/// The code of a server that is too far for a deadline.
pub(in crate::redis) const DISTANT: &str = "TOLLGATE-DISTANT";

/// Returns the finding for an operator when a deadline is too short for a round trip, and `None` otherwise.
pub(in crate::redis) fn far(round_trip: Duration, deadline: Duration) -> Option<String> {
    let needed = distance::needed(round_trip);
    (deadline < needed).then(|| {
        format!(
            "the round trip to redis takes {:?}, too long for checks with a deadline of {deadline:?}; set \
             LimiterBuilder::deadline to {:?} or more, or use a nearer server",
            shown(round_trip),
            shown(needed)
        )
    })
}

pub(super) fn log_far(round_trip: Duration, deadline: Duration) {
    if let Some(detail) = far(round_trip, deadline) {
        tracing::warn!(code = DISTANT, "{detail}; these checks are decided without redis until it fits");
    }
}

/// Rounds up to tenths of a millisecond, for people.
fn shown(duration: Duration) -> Duration {
    Duration::from_micros(100 * u64::try_from(duration.as_micros().div_ceil(100)).unwrap_or(u64::MAX / 100))
}

/// Creates the error of a check that is not sent because the server did not answer before.
pub(super) fn silent() -> Error {
    Error::new(ErrorKind::CircuitOpen, "redis did not answer earlier checks and is not asked until it answers a probe")
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// Returns whether three checks with this timeout open the breaker, when the server is heard some time after they began
    /// and not again.
    async fn opens(timeout: Duration, heard_after: Duration) -> bool {
        let (health, deadline) = (Health::new(), Deadline::after(timeout));
        advance(heard_after).await;
        health.heard();
        advance(timeout.saturating_sub(heard_after).min(Duration::from_secs(60))).await;
        let opened = [(); 3].map(|()| health.missed(Some(deadline)));
        assert_eq!(opened[..2], [false; 2]);
        opened[2]
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_shortly_after_the_beginning_does_not_excuse_the_silence_after_it() {
        let times = [0, 1, 5, 6, 30, 49].map(Duration::from_millis);
        let mut counts = Vec::new();
        for heard_after in times {
            counts.push(opens(Duration::from_millis(50), heard_after).await);
        }
        assert_eq!(counts, [true, true, true, false, false, false]);
        assert!(opens(Duration::MAX, Duration::from_secs(60)).await, "a deadline that never comes");
    }
}
