//! Paces the checks of one server: when they leave, how many at a time, and when a new one is
//! refused. Time is passed in, so that tests need no clock.
//!
//! The checks themselves are not here: they wait in `queue.rs`, and `worker.rs` cuts and sends
//! them. The rate is measured in `rate.rs`, and what is under way is limited in `window.rs`.
//!
//! # Theory
//!
//! The pacer measures three things: the *round trip*, the *rate* at which the server answers, and
//! the *number* of checks that wait or are under way. Little's law connects them: a number is a
//! rate multiplied by a time.
//!
//! **When may a batch leave?** A path whose minimum round-trip time is *T* holds *rate × T* keys. With
//! fewer under way, the server has nothing to do at times. With more, keys wait at the server,
//! where their checks can no longer share a batch or be given up. So the limit follows this
//! product, and some keys more keep both ends busy. It is not computed from the rate alone, because
//! a limit that is too low lowers the rate as well. It is found as TCP finds its congestion window:
//! keys that wait at the server lengthen the round trips, and the limit shrinks; while nothing
//! waits there, it grows. All processes of a server see the same delay and give way alike.
//!
//! The minimum round-trip time may become longer, as with a new route. So it is measured again when most
//! answers were late, while nothing of the process waits at the server. A process that measured it
//! while others have much under way would take their queueing delay for the path. For this reason all
//! processes with a delay drain the path at the same times by the clock.
//!
//! **How much does it take?** A call has a fixed cost at both ends, most of it to wake the other
//! one, so checks share calls. But the checks of one batch travel in step: while the server works
//! on the only batch, the client waits, and the other way round. The number of checks decides which
//! counts for more:
//!
//! - Up to [`MOST_DIRECT`]: each caller sends its own check. A batch would add two wake-ups of the
//!   worker, and save fewer calls. On a short path, the system holds small writes back until the
//!   server has answered those before (Nagle's algorithm). So each answer brings the server its
//!   next checks, and it does not fall asleep in between.
//! - Up to [`MOST_TOGETHER`] on a short path: a batch takes all that wait, and one for each end is
//!   under way.
//! - More, or on a longer path: a batch takes a quarter, so that the client works on the answers to
//!   one while the server works on the next.
//!
//! The number is the greatest of the last batches, so one pause does not change the way of sending.
//!
//! **When is a check refused?** Behind *n* others, in the queue or under way, its answer comes after
//! *n / rate*, and not before a round trip. The rate may fall meanwhile. When this is too much of its
//! deadline, it fails at once: its caller would leave before the answer, and the server would work in
//! vain. The rate is measured only while the server is the limit: checks wait in the queue all the
//! time, and answers come late. At other times it is that of a few callers or of a long path, and
//! would refuse checks in vain. It is remembered for a while, because one burst follows another. On a
//! path that is longer than a sample, the callers come in waves, and it is forgotten between them. It
//! is also forgotten when the queue is empty while checks are refused: then it was that of a process
//! whose callers leave no time for the answers. Fairness between keys is a question of its own, and
//! the one rule that looks at a key: half of the wait is kept from those keys that fill the queue.

mod rate;
#[cfg(test)]
mod tests;
mod ticket;
mod window;

use std::time::{Duration, Instant};

pub(super) use self::ticket::Ticket;
use self::{
    rate::AnswerRate,
    window::{CongestionWindow, FLOOR_BATCHES, FLOOR_TOGETHER},
};

/// Decides when the checks of one server leave, how many at a time, and when a new one is refused.
#[derive(Clone, Debug)]
pub(super) struct Pacer {
    /// The batches under way, and their keys and checks.
    batches: usize,
    keys: usize,
    checks: usize,
    /// The checks under way that their callers sent.
    direct: usize,
    /// Callers may send their checks themselves.
    is_direct: bool,
    /// A caller that sent its check got the answer within [`SHORT`], and none has given up since.
    is_prompt: bool,
    /// The most checks that waited or were under way at a time, lately.
    peak: usize,
    /// The time for which the process kept answers waiting, lately.
    lag: Duration,
    rate: AnswerRate,
    /// `None` before there is a connection.
    window: Option<CongestionWindow>,
}

/// Limits a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchLimit {
    /// The most keys of callers.
    pub(super) keys: usize,
    pub(super) checks: usize,
}

/// The most checks at a time that their callers send.
const MOST_DIRECT: usize = 32;

/// Callers send their own checks again once at most so many were under way at a time. It is half of
/// [`MOST_DIRECT`], and between the two the present mode stays (hysteresis): a steady load does not
/// flip it.
const FEW: usize = MOST_DIRECT / 2;

/// The most checks at a time that are not divided on a short path. A call of a part would cost more
/// than the time that it saves.
const MOST_TOGETHER: usize = 64;

/// The round trip below which a path is short: the work at its ends takes longer.
const SHORT: Duration = Duration::from_micros(200);

/// The parts into which more checks are divided.
const PARTS: usize = 4;

/// The part by which the peak of the checks falls with each batch.
const PEAK_FALLS: usize = 16;

/// The part of a deadline that the wait for the answer may take. The rest is for the caller to take
/// notice.
const MOST_OF_DEADLINE: f64 = 0.8;

/// The factor by which the rate may fall while a check waits.
const MAY_FALL: f64 = 1.25;

/// The part of the longest wait that the checks of one key may fill.
const MOST_OF_ONE_KEY: f64 = 0.5;

/// The number of waiting checks from which a key is hot. Fewer checks are always admitted.
const HOT_KEY: usize = 32;

impl Pacer {
    /// Creates the pacer of a server without a worker, which has to be started first.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            batches: 0,
            keys: 0,
            checks: 0,
            direct: 0,
            is_direct: false,
            is_prompt: false,
            peak: 0,
            lag: Duration::ZERO,
            rate: AnswerRate::new(now),
            window: None,
        }
    }

    /// Notes the connection that is in use, and the time of its first answer. On another one than
    /// before, all is measured again. `since_epoch` returns the time by the clock that other
    /// processes have too.
    pub(super) fn connected(
        &mut self,
        connection: u64,
        now: Instant,
        since_epoch: impl FnOnce() -> Duration,
        round_trip: Duration,
    ) {
        if self
            .window
            .as_ref()
            .is_none_or(|window| window.connection != connection)
        {
            // It may take another route, or lead to another server.
            self.window = Some(CongestionWindow::new(
                connection,
                now,
                since_epoch(),
                round_trip,
            ));
            self.rate = AnswerRate::new(now);
        }
    }

    /// Notes that nothing is under way any more, whatever was sent.
    pub(super) fn forget_sent(&mut self) {
        (self.batches, self.keys, self.checks) = (0, 0, 0);
    }

    /// Notes that no check waits: the callers are the limit, and not the server. When the checks were
    /// few for a while, callers send them: with nothing under way, as many as callers may send.
    pub(super) fn rests(&mut self) {
        let min_round_trip = self
            .window
            .as_ref()
            .map_or(Duration::ZERO, |it| it.min_round_trip);
        self.rate.rests(min_round_trip);
        let few = if self.batches == 0 { MOST_DIRECT } else { FEW };
        if self.peak <= few {
            // When callers queue again, many batches pass until this has fallen. So a load at the
            // threshold does not change the way of sending all the time.
            self.peak = MOST_TOGETHER;
            self.is_direct = true;
        }
    }

    /// Notes the time for which the runtime kept the worker waiting. A slow process is not a slow
    /// server.
    pub(super) fn lagged(&mut self, lag: Duration) {
        // A mean, because one pause says little of the next.
        self.lag = (self.lag * 3 + lag) / 4;
    }
}

/// When a check leaves.
impl Pacer {
    /// Returns whether a caller may send its check. [`ends_direct`](Self::ends_direct) belongs to
    /// it.
    pub(super) fn begins_direct(&mut self) -> bool {
        let begins = self.is_direct && self.direct < MOST_DIRECT;
        self.direct += usize::from(begins);
        begins
    }

    /// Notes that a check that its caller sent was answered, or given up. The path may have become
    /// longer then.
    pub(super) fn ends_direct(&mut self, is_answered: bool) {
        self.direct -= 1;
        self.is_prompt &= is_answered;
    }

    /// Notes how long the answer took to a check that its caller sent.
    pub(super) fn measured(&mut self, connection: u64, round_trip: Duration) {
        if let Some(window) = self
            .window
            .as_mut()
            .filter(|window| window.connection == connection)
        {
            window.min_round_trip = window.min_round_trip.min(round_trip);
            self.is_prompt |= round_trip < SHORT;
        }
    }

    /// Notes that a check was queued. The callers queue their checks until the worker has little to
    /// do.
    pub(super) fn queued(&mut self) {
        self.is_direct = false;
    }

    /// Returns whether another batch may leave while so many checks wait.
    pub(super) fn may_leave(&mut self, now: Instant, waiting: usize) -> bool {
        let floor = if self.is_together(waiting) {
            FLOOR_TOGETHER
        } else {
            FLOOR_BATCHES
        };
        self.window
            .as_mut()
            // Without a connection nothing is known of the server, and the first batch is what
            // dials it.
            .is_none_or(|window| window.allows(now, self.batches, self.keys, floor))
    }

    /// Notes that a batch leaves.
    pub(super) fn sent(&mut self, now: Instant, keys: usize, checks: usize) -> Ticket {
        self.batches += 1;
        self.keys += keys;
        self.checks += checks;
        Ticket {
            connection: self.window.as_ref().map_or(0, |window| window.connection),
            sent: now,
            keys,
            checks,
        }
    }

    /// Notes the answer to a batch.
    pub(super) fn answered(&mut self, now: Instant, ticket: Ticket) {
        self.batches -= 1;
        self.keys -= ticket.keys;
        self.checks -= ticket.checks;
        if let Some(window) = self
            .window
            .as_mut()
            // The answer of an old connection says nothing of this path.
            .filter(|window| window.connection == ticket.connection)
        {
            let round_trip = now.saturating_duration_since(ticket.sent);
            // At most half, because the lag is a mean: where it is greater than the round trip,
            // nothing would remain, and that would be the least from then on.
            let round_trip = round_trip - self.lag.min(round_trip / 2);
            let is_late = window.is_late(round_trip);
            self.rate
                .answered(now, ticket, window.min_round_trip, is_late);
            window.answered(now, ticket, round_trip, self.rate.keys);
        }
    }
}

/// Bounds what leaves at once.
impl Pacer {
    /// Returns the most that the next batch takes.
    pub(super) fn share(&mut self, waiting: usize) -> BatchLimit {
        // Those under way are the other parts of what the callers have asked.
        let all = waiting + self.checks;
        self.peak = all.max(self.peak - self.peak.div_ceil(PEAK_FALLS));
        // The script reads a key once for all its checks, so those of the same keys leave in two
        // parts.
        BatchLimit {
            keys: if self.is_together(waiting) {
                all
            } else {
                all.div_ceil(PARTS)
            },
            checks: all.div_ceil(2),
        }
    }

    /// Returns whether one batch takes all checks.
    pub(super) fn is_together(&self, waiting: usize) -> bool {
        self.peak.max(waiting + self.checks) <= MOST_TOGETHER && self.is_short()
    }

    fn is_short(&self) -> bool {
        self.window
            .as_ref()
            .is_some_and(|window| window.min_round_trip < SHORT)
    }

    /// Returns the connection, if its path is so short that the work at its ends takes longer, and
    /// no caller has given up since. Checks that their callers send then share a write while the
    /// server has not noticed those before.
    pub(super) fn short_path(&self) -> Option<u64> {
        let window = self
            .window
            .as_ref()
            .filter(|_| self.is_prompt && self.is_short());
        window.map(|window| window.connection)
    }
}

/// When a check is refused.
impl Pacer {
    /// Admits a check that can be answered within its timeout. `of_key` is how many of the waiting
    /// checks have its key.
    ///
    /// # Errors
    ///
    /// Returns the time that the answer may take.
    pub(super) fn admits(
        &mut self,
        timeout: Duration,
        waiting: usize,
        of_key: usize,
    ) -> Result<(), Duration> {
        if waiting < HOT_KEY {
            return Ok(());
        }
        let most = timeout.as_secs_f64() * MOST_OF_DEADLINE;
        let round_trip = self.round_trip().as_secs_f64();
        // A server that is too far for the timeout has a reason of its own.
        if round_trip > most {
            return Ok(());
        }
        let ahead = (waiting + self.checks) as f64;
        let wait = MAY_FALL * ahead / self.rate.checks / 1_000.0;
        // The count is of all keys whose hashes share a place. A quarter of the queue is not there
        // by chance.
        let is_hot = of_key >= HOT_KEY.max(waiting / 4);
        if wait > most || (wait > most * MOST_OF_ONE_KEY && is_hot) {
            self.rate.refuses();
            return Err(Duration::from_secs_f64(wait.max(round_trip)));
        }
        Ok(())
    }

    /// Returns the time until the answer to a batch that leaves now.
    pub(super) fn round_trip(&self) -> Duration {
        self.window.as_ref().map_or(Duration::ZERO, |window| {
            window.min_round_trip + window.target_delay()
        })
    }
}
