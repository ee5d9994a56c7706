//! Bounds what is under way to one server. Time is passed in, so that a simulation runs the same lines.

use std::time::Duration;

/// Limits the keys and the batches that are under way to one server.
///
/// The limit follows the bandwidth-delay product. What the line itself holds costs no time, so the limit grows with the
/// least round trip. What is beyond that waits at the server: it lengthens the round trips, and the limit shrinks. So a
/// server is busy, and checks gather in the process, where they share batches and can still be given up. All processes
/// of a server see the same delay and give way alike.
///
/// The least round trip may become longer, as with a new route. So it is measured again from time to time, while nothing
/// of the process waits at the server. A process that measured it while others have much under way would take their delay
/// for the line. For this reason all processes with a delay drain the line at the same times by the clock.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The most keys under way.
    keys: f64,
    least: Duration,
    /// The mean round trip and its mean deviation, in seconds.
    mean: f64,
    deviation: f64,
    /// Is true when the limit kept checks waiting since it was last set.
    is_limiting: bool,
    /// Is true when it did so in the round trip before. Answers may come all at once.
    was_limiting: bool,
    /// Round trips that began earlier were measured under the old limit.
    since: Duration,
    /// The answers of this period that came late, and those that did not.
    late: u32,
    in_time: u32,
    /// The end of the period.
    period_ends: Duration,
    /// The begin of a measurement. One batch at a time is sent until the line is drained. The next one is measured.
    drains_since: Option<Duration>,
    rate: Rate,
}

/// Belongs to a batch under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    sent: Duration,
    keys: usize,
}

/// Measures the keys that the server answers in a millisecond. The greatest of the last samples counts.
#[derive(Clone, Debug)]
struct Rate {
    began: Duration,
    keys: usize,
    last: [f64; 8],
    next: usize,
}

/// The keys that may be under way in any case, in four full batches: both ends of the connection are busy with them, also
/// where a sleeping core takes time to wake.
const FLOOR_KEYS: f64 = 256.0;

/// The batches that may be under way in any case.
const FLOOR_BATCHES: f64 = 4.0;

/// The same while checks are few: on the shortest lines two, one for each end. With more batches, each would be too small to
/// be worth a call.
const FLOOR_BATCHES_OF_FEW: f64 = 1.5;

/// The round trip below which a line is short.
const SHORT: Duration = Duration::from_micros(200);

/// The keys that the fastest server decides in a millisecond, with some room.
const FASTEST: f64 = 640.0;

/// The batches that may leave in a millisecond of the round trip. With more, each batch would share less.
const BATCHES_PER_MS: f64 = 10.0;

/// The time that checks may wait at the server, beside an eighth of the round trip and twice its usual deviation.
const PATIENCE: Duration = Duration::from_millis(1);

/// The time between two measurements of the least round trip. They begin at multiples of it, by the clock.
const PERIOD: Duration = Duration::from_secs(2);

/// The time in which the line drains. It covers the difference of two clocks.
const DRAIN: Duration = Duration::from_millis(12);

/// The longest measurement.
const LONGEST_MEASUREMENT: Duration = Duration::from_millis(500);

/// The factor by which the limit may exceed what the line holds at the present rate.
const ROOM: f64 = 1.5;

/// The part of a new round trip in the mean, as in TCP.
const GAIN: f64 = 0.125;

/// The shortest sample of the rate.
const SAMPLE: Duration = Duration::from_millis(5);

impl Window {
    /// Creates the limit for a connection whose first answer took this long. Times are those since the Unix epoch.
    pub(super) fn new(now: Duration, round_trip: Duration) -> Self {
        Self {
            keys: FLOOR_KEYS + FASTEST * millis(round_trip),
            least: round_trip,
            mean: round_trip.as_secs_f64(),
            deviation: 0.0,
            is_limiting: false,
            was_limiting: false,
            since: now,
            late: 0,
            in_time: 0,
            period_ends: period_after(now),
            drains_since: None,
            rate: Rate { began: now, keys: 0, last: [FASTEST; 8], next: 0 },
        }
    }

    /// Returns whether another batch may leave, while this many batches and keys are under way. `are_few` is true when one
    /// batch can hold all checks, and the line [is short](Self::is_short).
    pub(super) fn allows(
        &mut self,
        batches: usize,
        keys: usize,
        are_few: bool,
        now: impl FnOnce() -> Duration,
    ) -> bool {
        let floor = if are_few { FLOOR_BATCHES_OF_FEW } else { FLOOR_BATCHES };
        let most_batches = floor + BATCHES_PER_MS * millis(self.least);
        let drains = self.drains_since.is_some_and(|began| now() < began + DRAIN);
        let has_room = !drains && (batches as f64) < most_batches && (keys as f64) < self.keys;
        let allows = batches == 0 || has_room;
        self.is_limiting |= !allows;
        allows
    }

    /// Returns whether the line is so short that the work at its ends takes longer.
    pub(super) fn is_short(&self) -> bool {
        self.least < SHORT
    }

    /// Returns the time until the answer to a batch that leaves now.
    pub(super) fn round_trip(&self) -> Duration {
        self.least + self.patience()
    }

    /// Notes that a batch leaves.
    pub(super) fn sent(now: Duration, keys: usize) -> Ticket {
        Ticket { sent: now, keys }
    }

    /// Notes the answer to a batch. `lag` is the time that the process itself took to take notice.
    pub(super) fn answered(&mut self, now: Duration, ticket: Ticket, lag: Duration) {
        let round_trip = now.saturating_sub(ticket.sent);
        let round_trip = round_trip.saturating_sub(lag.min(round_trip / 2));
        self.least = self.least.min(round_trip);
        let difference = round_trip.as_secs_f64() - self.mean;
        self.mean += GAIN * difference;
        self.deviation += GAIN * (difference.abs() - self.deviation);
        self.rate.answered(now, ticket.keys, self.least);
        if !self.measures(now, ticket, round_trip) {
            self.adapt(now, ticket, round_trip);
        }
    }

    /// Measures the least round trip again, if many answers of the period were late. Returns whether it does so now.
    fn measures(&mut self, now: Duration, ticket: Ticket, round_trip: Duration) -> bool {
        if let Some(began) = self.drains_since {
            if ticket.sent >= began + DRAIN {
                self.least = round_trip;
                self.begin_round_trip(now);
                self.drains_since = None;
            } else if now > began + LONGEST_MEASUREMENT {
                self.drains_since = None;
            }
            return true;
        }
        if now >= self.period_ends {
            self.drains_since = (self.late > self.in_time).then_some(now);
            self.period_ends = period_after(now);
            (self.late, self.in_time) = (0, 0);
        }
        self.drains_since.is_some()
    }

    /// Sets the limit by the delay of an answer.
    fn adapt(&mut self, now: Duration, ticket: Ticket, round_trip: Duration) {
        let (delay, patience) = (round_trip.saturating_sub(self.least), self.patience());
        match delay > patience / 2 {
            true => self.late += 1,
            false => self.in_time += 1,
        }
        let is_new = ticket.sent >= self.since;
        if delay > patience {
            // Once in a round trip.
            if is_new {
                let excess = (delay - patience).as_secs_f64() / delay.as_secs_f64();
                self.keys *= 1.0 - excess / 2.0;
            }
        } else if self.is_limiting || self.was_limiting {
            // Twice as much in a round trip while nothing waits, then one batch more.
            let step = if delay < patience / 4 { 1.0 } else { 64.0 / self.keys };
            self.keys += ticket.keys as f64 * step;
        }
        let line = millis(self.least);
        let most = FASTEST.min(ROOM * self.rate.greatest()) * line;
        self.keys = self.keys.clamp(FLOOR_KEYS, FLOOR_KEYS + most);
        if is_new {
            self.begin_round_trip(now);
        }
    }

    fn begin_round_trip(&mut self, now: Duration) {
        (self.since, self.was_limiting, self.is_limiting) = (now, self.is_limiting, false);
    }

    fn patience(&self) -> Duration {
        PATIENCE + self.least / 8 + Duration::from_secs_f64(2.0 * self.deviation)
    }
}

impl Rate {
    fn answered(&mut self, now: Duration, keys: usize, round_trip: Duration) {
        self.keys += keys;
        let took = now.saturating_sub(self.began);
        if took >= round_trip.max(SAMPLE) {
            self.last[self.next] = self.keys as f64 / millis(took);
            self.next = (self.next + 1) % self.last.len();
            (self.began, self.keys) = (now, 0);
        }
    }

    /// Returns the greatest rate of the last samples, in keys per millisecond.
    fn greatest(&self) -> f64 {
        self.last.iter().copied().fold(0.0, f64::max)
    }
}

/// Returns the end of the period of this time.
fn period_after(now: Duration) -> Duration {
    let periods = now.as_nanos() / PERIOD.as_nanos() + 1;
    PERIOD * u32::try_from(periods).unwrap_or(u32::MAX)
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: Duration = Duration::from_secs(1_800_000_000);

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1_000.0)
    }

    /// Sends a full batch at this time after the begin, which is answered after a round trip.
    fn answer(window: &mut Window, sent: Duration, round_trip: Duration) {
        window.answered(BEGAN + sent + round_trip, Window::sent(BEGAN + sent, 64), Duration::ZERO);
    }

    #[test]
    fn four_full_batches_are_under_way_on_a_short_line_and_more_on_a_longer_one() {
        let mut near = Window::new(BEGAN, ms(0.05));
        assert!(near.allows(3, 255, false, || BEGAN) && !near.allows(5, 100, false, || BEGAN));
        assert!(!near.allows(3, 288, false, || BEGAN));
        let mut far = Window::new(BEGAN, ms(20.0));
        assert!(
            far.allows(200, 12_800, false, || BEGAN)
                && !far.allows(205, 100, false, || BEGAN)
                && !far.allows(100, 13_100, false, || BEGAN)
        );
        assert!(near.allows(0, 10_000, false, || BEGAN), "one batch leaves in any case");
    }

    #[test]
    fn few_checks_leave_in_two_batches_on_a_short_line() {
        let mut near = Window::new(BEGAN, ms(0.05));
        assert!(near.allows(1, 8, true, || BEGAN) && !near.allows(2, 16, true, || BEGAN));
        // No check waits for more than a fraction of the line.
        let mut farther = Window::new(BEGAN, ms(0.19));
        assert!(farther.allows(3, 3, true, || BEGAN) && farther.is_short());
        assert!(!Window::new(BEGAN, ms(0.2)).is_short());
    }

    #[test]
    fn late_answers_shrink_the_limit_once_in_a_round_trip_and_others_let_it_grow_again() {
        let mut window = Window::new(BEGAN, ms(5.0));
        let before = window.keys;
        answer(&mut window, ms(0.0), ms(15.0));
        let once = window.keys;
        assert!(once < before);
        // These left before the limit was set.
        (1..10).for_each(|at| answer(&mut window, ms(f64::from(at)), ms(15.0)));
        assert!((window.keys - once).abs() < 1.0, "{} and {once}", window.keys);
        answer(&mut window, ms(20.0), ms(15.0));
        let twice = window.keys;
        assert!(twice < once);
        assert!(!window.allows(5, 100_000, false, || BEGAN));
        (40..60).for_each(|at| answer(&mut window, ms(f64::from(at)), ms(5.0)));
        assert!(window.keys > twice);
    }

    #[test]
    fn a_lag_of_the_process_is_no_delay_of_the_server() {
        let limit_after = |lag| {
            let mut window = Window::new(BEGAN, ms(5.0));
            window.answered(BEGAN + ms(12.0), Window::sent(BEGAN, 64), lag);
            window.keys
        };
        assert!(limit_after(ms(6.0)) > limit_after(Duration::ZERO));
    }

    #[test]
    fn a_line_that_became_longer_is_measured_after_a_period_of_late_answers() {
        let mut window = Window::new(BEGAN, ms(1.0));
        let mut at = Duration::ZERO;
        while at < PERIOD * 3 {
            answer(&mut window, at, ms(40.0));
            at += ms(41.0);
        }
        assert_eq!(window.least, ms(40.0));
        // As many batches as the window allows leave in each round trip.
        for _ in 0..10 {
            let mut batches = 0;
            while window.allows(batches, batches * 64, false, || BEGAN + at) {
                batches += 1;
            }
            (0..batches).for_each(|_| answer(&mut window, at, ms(40.0)));
            at += ms(41.0);
        }
        assert!(window.allows(100, 2_000, false, || BEGAN + at), "{window:?}");
    }

    #[test]
    fn a_measurement_holds_batches_back_until_the_line_is_drained_and_no_longer() {
        let mut window = Window::new(BEGAN, ms(1.0));
        let mut at = Duration::ZERO;
        while window.drains_since.is_none() {
            answer(&mut window, at, ms(40.0));
            at += ms(41.0);
        }
        let began = window.drains_since.expect("a measurement");
        assert!(!window.allows(1, 64, false, || began + DRAIN - ms(0.1)));
        assert!(window.allows(0, 0, false, || began), "one batch leaves in any case");
        assert!(window.allows(3, 192, false, || began + DRAIN));
        // A batch from before says nothing about the drained line.
        window.answered(began + DRAIN + ms(41.0), Window::sent(began + ms(1.0), 64), Duration::ZERO);
        assert_eq!(window.least, ms(1.0));
        window.answered(began + DRAIN + ms(42.0), Window::sent(began + DRAIN, 64), Duration::ZERO);
        assert_eq!(window.least, ms(42.0));
    }
}
