//! How much may be under way on one connection: a congestion window, as TCP has one, in keys.
//! How fast the server answers is measured in `rate.rs`; what leaves in one batch is decided in
//! `mod.rs`.

use std::time::{Duration, Instant};

use super::{
    rate::FASTEST,
    ticket::{Ticket, millis},
};

/// Limits the keys and the batches that are under way on one connection.
#[derive(Clone, Debug)]
pub(super) struct CongestionWindow {
    pub(super) connection: u64,
    /// The most keys under way.
    pub(super) keys: f64,
    pub(super) min_round_trip: Duration,
    /// The mean round trip and its mean deviation, in seconds.
    mean_round_trip: f64,
    deviation: f64,
    /// The limit kept checks waiting since it was last set.
    is_limiting: bool,
    /// The limit did so in the round trip before. Answers may come all at once.
    was_limiting: bool,
    /// Round trips that began earlier were measured under the old limit.
    since: Instant,
    /// The answers of this period that came late, and those that did not.
    late: u32,
    in_time: u32,
    /// The end of the period.
    period_ends: Instant,
    /// The begin of a measurement. One batch at a time is sent until the path is drained. The next
    /// one is measured.
    pub(super) drains_since: Option<Instant>,
}

/// The keys that may be under way in any case, in four full batches: both ends of the connection
/// are busy with them, also where a sleeping core takes time to wake.
const FLOOR_KEYS: f64 = 256.0;

/// The batches that may be under way in any case.
pub(super) const FLOOR_BATCHES: f64 = 4.0;

/// The same while a batch takes all checks: on the shortest paths two, one for each end. With more,
/// each would be too small to be worth a call.
pub(super) const FLOOR_TOGETHER: f64 = 1.5;

/// The batches that may leave in a millisecond of the round trip. With more, each batch would share
/// less.
const BATCHES_PER_MS: f64 = 10.0;

/// The queueing delay at the server that is tolerated, as the target of LEDBAT, beside an eighth of
/// the round trip and twice its usual deviation.
const TARGET_DELAY: Duration = Duration::from_millis(1);

/// The time between two measurements of the least round trip. They begin at multiples of it, by the
/// clock.
pub(super) const PERIOD: Duration = Duration::from_secs(2);

/// The time in which the path drains. It covers the difference of two clocks.
pub(super) const DRAIN: Duration = Duration::from_millis(12);

/// The longest measurement.
const LONGEST_MEASUREMENT: Duration = Duration::from_millis(500);

/// The factor by which the window may exceed the bandwidth-delay product at the present rate.
const ROOM: f64 = 1.5;

/// The part of a new round trip in the mean, as in TCP.
const GAIN: f64 = 0.125;

impl CongestionWindow {
    pub(super) fn new(
        connection: u64,
        now: Instant,
        since_epoch: Duration,
        round_trip: Duration,
    ) -> Self {
        let in_period = Duration::from_nanos((since_epoch.as_nanos() % PERIOD.as_nanos()) as u64);
        Self {
            connection,
            // What the fastest server needs: too much is taken back within some round trips, and
            // too little would keep the first callers waiting.
            keys: FLOOR_KEYS + FASTEST * millis(round_trip),
            min_round_trip: round_trip,
            mean_round_trip: round_trip.as_secs_f64(),
            deviation: 0.0,
            is_limiting: false,
            was_limiting: false,
            since: now,
            late: 0,
            in_time: 0,
            // By the clock, so that all processes of the server drain the path together.
            period_ends: now + (PERIOD - in_period),
            drains_since: None,
        }
    }

    /// Returns whether another batch may leave. One leaves in any case.
    pub(super) fn allows(&mut self, now: Instant, batches: usize, keys: usize, floor: f64) -> bool {
        let most_batches = floor + BATCHES_PER_MS * millis(self.min_round_trip);
        let drains = self.drains_since.is_some_and(|began| now < began + DRAIN);
        let has_room = !drains && (batches as f64) < most_batches && (keys as f64) < self.keys;
        // With nothing under way there would be no answer, and so nothing that ever raises the
        // limit.
        let allows = batches == 0 || has_room;
        self.is_limiting |= !allows;
        allows
    }

    /// Notes an answer. `rate` is that of the keys.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        ticket: Ticket,
        round_trip: Duration,
        rate: f64,
    ) {
        self.min_round_trip = self.min_round_trip.min(round_trip);
        let difference = round_trip.as_secs_f64() - self.mean_round_trip;
        self.mean_round_trip += GAIN * difference;
        self.deviation += GAIN * (difference.abs() - self.deviation);
        if !self.measures(now, ticket, round_trip) {
            self.adapt(now, ticket, round_trip, rate);
        }
    }

    /// Measures the least round trip again, if many answers of the period were late. Returns
    /// whether it does so now.
    fn measures(&mut self, now: Instant, ticket: Ticket, round_trip: Duration) -> bool {
        if let Some(began) = self.drains_since {
            if ticket.sent >= began + DRAIN {
                // Also when it has become longer, as by a new route: this is the one place where it
                // can.
                self.min_round_trip = round_trip;
                self.begin_round_trip(now);
                self.drains_since = None;
            } else if now > began + LONGEST_MEASUREMENT {
                self.drains_since = None;
            }
            return true;
        }
        if now >= self.period_ends {
            self.drains_since = (self.late > self.in_time).then_some(now);
            // Periods without an answer are left out, and not made up for.
            let periods =
                now.saturating_duration_since(self.period_ends).as_nanos() / PERIOD.as_nanos() + 1;
            self.period_ends += PERIOD * u32::try_from(periods).unwrap_or(u32::MAX);
            (self.late, self.in_time) = (0, 0);
        }
        self.drains_since.is_some()
    }

    /// Sets the limit by the delay of an answer.
    fn adapt(&mut self, now: Instant, ticket: Ticket, round_trip: Duration, rate: f64) {
        let (delay, target_delay) = (
            round_trip.saturating_sub(self.min_round_trip),
            self.target_delay(),
        );
        match self.is_late(round_trip) {
            true => self.late += 1,
            false => self.in_time += 1,
        }
        let is_new = ticket.sent >= self.since;
        if delay > target_delay {
            // Once in a round trip: answers to earlier batches are late for the same reason.
            if is_new {
                // By the part that is too much, so that a small delay costs little. At most by
                // half, as in TCP.
                let excess = (delay - target_delay).as_secs_f64() / delay.as_secs_f64();
                self.keys *= 1.0 - excess / 2.0;
            }
        } else if self.is_limiting || self.was_limiting {
            // Twice as much in a round trip while nothing waits, then one batch more.
            let step = if delay < target_delay / 4 {
                1.0
            } else {
                64.0 / self.keys
            };
            self.keys += ticket.keys as f64 * step;
        }
        let most = FASTEST.min(ROOM * rate) * millis(self.min_round_trip);
        self.keys = self.keys.clamp(FLOOR_KEYS, FLOOR_KEYS + most);
        if is_new {
            self.begin_round_trip(now);
        }
    }

    /// Returns whether checks waited at the server.
    pub(super) fn is_late(&self, round_trip: Duration) -> bool {
        round_trip.saturating_sub(self.min_round_trip) > self.target_delay() / 2
    }

    fn begin_round_trip(&mut self, now: Instant) {
        (self.since, self.was_limiting, self.is_limiting) = (now, self.is_limiting, false);
    }

    pub(super) fn target_delay(&self) -> Duration {
        TARGET_DELAY + self.min_round_trip / 8 + Duration::from_secs_f64(2.0 * self.deviation)
    }
}
