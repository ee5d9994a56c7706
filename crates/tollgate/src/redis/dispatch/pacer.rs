//! Paces the checks of one server: when they leave, how many at a time, and when a new one is
//! refused. Time is passed in, so that tests need no clock.
//!
//! # Theory
//!
//! The pacer measures three things: the *round trip*, the *rate* at which the server answers, and
//! the *number* of checks that wait or are under way. Little's law connects them: a number is a
//! rate multiplied by a time.
//!
//! **When may a batch leave?** A line whose least round trip is *T* holds *rate × T* keys. With
//! fewer under way, the server has nothing to do at times. With more, keys wait at the server,
//! where their checks can no longer share a batch or be given up. So the limit follows this
//! product, and some keys more keep both ends busy. It is not computed from the rate alone, because
//! the rate is the lower the less is sent. It is found, as in TCP: keys that wait at the server
//! lengthen the round trips, and the limit shrinks; while nothing waits there, it grows. All
//! processes of a server see the same delay and give way alike.
//!
//! The least round trip may become longer, as with a new route. So it is measured again when most
//! answers were late, while nothing of the process waits at the server. A process that measured it
//! while others have much under way would take their delay for the line. For this reason all
//! processes with a delay drain the line at the same times by the clock.
//!
//! **How much does it take?** A call has a fixed cost at both ends, most of it to wake the other
//! one, so checks share calls. But the checks of one batch travel in step: while the server works
//! on the only batch, the client waits, and the other way round. The number of checks decides which
//! counts for more:
//!
//! - Up to [`MOST_DIRECT`]: each caller sends its own check. A batch would add two wake-ups of the
//!   worker, and save fewer calls. On a short line, the system holds small writes back until the
//!   server has answered those before (Nagle's algorithm). So each answer brings the server its
//!   next checks, and it does not fall asleep in between.
//! - Up to [`MOST_TOGETHER`] on a short line: a batch takes all that wait, and one for each end is
//!   under way.
//! - More, or on a longer line: a batch takes a quarter, so that the client works on the answers to
//!   one while the server works on the next.
//!
//! The number is the greatest of the last batches, so one pause does not change the way of sending.
//!
//! **When is a check refused?** Behind *n* others, its answer comes after *n / rate* and a round
//! trip. When this is too much of its deadline, it fails at once: its caller would leave before the
//! answer, and the server would work in vain. Fairness between keys is a question of its own, and
//! the one rule that looks at a key: half of the wait is kept from those keys that fill the queue.

use std::time::{Duration, Instant};

/// Decides when the checks of one server leave, how many at a time, and when a new one is refused.
#[derive(Clone, Debug)]
pub(super) struct Pacer {
    /// The batches under way, and their keys and checks.
    batches: usize,
    keys: usize,
    checks: usize,
    /// The checks under way that their callers sent.
    direct: usize,
    /// Is true while callers may send their checks.
    is_direct: bool,
    /// Is true from an answer on that a caller got as soon as on a short line, until a caller gives
    /// up.
    is_prompt: bool,
    /// The most checks that waited or were under way at a time, lately.
    peak: usize,
    /// The time for which the process kept answers waiting, lately.
    lag: Duration,
    rate: Rate,
    /// `None` before there is a connection.
    window: Option<Window>,
}

/// Limits a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// The most keys of callers.
    pub(super) keys: usize,
    pub(super) checks: usize,
}

/// Belongs to a batch under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    connection: u64,
    sent: Instant,
    keys: usize,
    checks: usize,
}

/// The most checks at a time that their callers send.
const MOST_DIRECT: usize = 16;

/// Callers send their checks again when no more than this were under way at a time. It is half of
/// [`MOST_DIRECT`]: between the two, what is done goes on while something is under way, so a steady
/// load does not change it again and again.
const FEW: usize = MOST_DIRECT / 2;

/// The most checks at a time that are not divided on a short line. A call of a part would cost more
/// than the time that it saves.
const MOST_TOGETHER: usize = 64;

/// The round trip below which a line is short: the work at its ends takes longer.
const SHORT: Duration = Duration::from_micros(200);

/// The parts into which more checks are divided.
const PARTS: usize = 4;

/// The part by which the peak of the checks falls with each batch.
const PEAK_FALLS: usize = 16;

/// The part of a deadline that the wait for the answer may take. The rest is for the caller to take
/// notice.
const MOST_OF_DEADLINE: f64 = 0.8;

/// The part of the longest wait that the checks of one key may fill.
const MOST_OF_ONE_KEY: f64 = 0.5;

/// The number of waiting checks of a key from which they count as a crowd. Fewer checks are always
/// admitted.
const CROWD: usize = 32;

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
            rate: Rate::new(now),
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
            self.window = Some(Window::new(connection, now, since_epoch(), round_trip));
            self.rate = Rate::new(now);
        }
    }

    /// Notes that nothing is under way any more, whatever was sent.
    pub(super) fn forget_sent(&mut self) {
        (self.batches, self.keys, self.checks) = (0, 0, 0);
    }

    /// Notes that no check waits. The measured rate is that of the callers from now on, and not
    /// that of the server. When the checks were few for a while, callers send them: with nothing
    /// under way, as many as callers may send.
    pub(super) fn rests(&mut self) {
        self.rate.rests();
        let few = if self.batches == 0 { MOST_DIRECT } else { FEW };
        if self.peak <= few {
            self.peak = MOST_TOGETHER;
            self.is_direct = true;
        }
    }

    /// Notes the time for which the runtime kept the worker waiting. A slow process is not a slow
    /// server.
    pub(super) fn lagged(&mut self, lag: Duration) {
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

    /// Notes that a check that its caller sent was answered, or given up. The line may have become
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
            window.least = window.least.min(round_trip);
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
            .filter(|window| window.connection == ticket.connection)
        {
            let round_trip = now.saturating_duration_since(ticket.sent);
            let round_trip = round_trip - self.lag.min(round_trip / 2);
            self.rate.answered(now, ticket, window.least);
            window.answered(now, ticket, round_trip, self.rate.keys);
        }
    }
}

/// Bounds what leaves at once.
impl Pacer {
    /// Returns the most that the next batch takes.
    pub(super) fn share(&mut self, waiting: usize) -> Share {
        let all = waiting + self.checks;
        self.peak = all.max(self.peak - self.peak.div_ceil(PEAK_FALLS));
        // The script reads a key once for all its checks, so those of the same keys leave in two
        // parts.
        Share {
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
            .is_some_and(|window| window.least < SHORT)
    }

    /// Returns the connection, if its line is so short that the work at its ends takes longer, and
    /// no caller has given up since. Checks that their callers send then share a write while the
    /// server has not noticed those before.
    pub(super) fn short_line(&self) -> Option<u64> {
        let window = self
            .window
            .as_ref()
            .filter(|_| self.is_prompt && self.is_short());
        window.map(|window| window.connection)
    }
}

/// When a check is refused.
impl Pacer {
    /// Admits a check that can be answered within its timeout. `crowd` returns how many of the
    /// waiting checks have its key.
    ///
    /// # Errors
    ///
    /// Returns the time that the answer would take.
    pub(super) fn admits(
        &self,
        timeout: Duration,
        waiting: usize,
        crowd: impl FnOnce() -> usize,
    ) -> Result<(), Duration> {
        if waiting < CROWD {
            return Ok(());
        }
        let most = timeout.as_secs_f64() * MOST_OF_DEADLINE;
        let round_trip = self.round_trip().as_secs_f64();
        // A server that is too far for the timeout has a reason of its own.
        if round_trip > most {
            return Ok(());
        }
        let wait = waiting as f64 / self.rate.checks / 1_000.0 + round_trip;
        let is_of_a_crowd = || crowd() >= CROWD.max(waiting / 4);
        match wait > most || (wait > most * MOST_OF_ONE_KEY && is_of_a_crowd()) {
            true => Err(Duration::from_secs_f64(wait)),
            false => Ok(()),
        }
    }

    /// Returns the time until the answer to a batch that leaves now.
    pub(super) fn round_trip(&self) -> Duration {
        self.window
            .as_ref()
            .map_or(Duration::ZERO, |window| window.least + window.patience())
    }
}

/// Measures how many keys and checks the server answers in a millisecond.
#[derive(Clone, Debug)]
struct Rate {
    /// The greatest of the last samples: what the line has carried.
    keys: f64,
    /// One of the greater of the last samples in which checks waited, because a server that stands
    /// still for a moment is not slow.
    checks: f64,
    last: [Sample; SAMPLES],
    next: usize,
    /// The begin of the present sample, and what was answered since.
    began: Instant,
    answered: (usize, usize),
    /// Checks waited all the time, so that the server was the limit.
    is_busy: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    keys: f64,
    /// 0 when the server was not the limit.
    checks: f64,
}

/// The keys that the fastest server decides in a millisecond, with some room. It counts until there
/// are samples.
const FASTEST: f64 = 640.0;

const SAMPLES: usize = 8;

/// The place of the sample that counts for checks, of those in order. Two others are greater.
const GREATER: usize = 2;

/// The shortest sample, on a line that is no longer.
const SAMPLE: Duration = Duration::from_millis(5);

impl Rate {
    fn new(now: Instant) -> Self {
        Self {
            keys: FASTEST,
            checks: FASTEST,
            last: [Sample {
                keys: FASTEST,
                checks: 0.0,
            }; SAMPLES],
            next: 0,
            began: now,
            answered: (0, 0),
            is_busy: false,
        }
    }

    fn answered(&mut self, now: Instant, ticket: Ticket, least: Duration) {
        self.answered.0 += ticket.keys;
        self.answered.1 += ticket.checks;
        let took = now.saturating_duration_since(self.began);
        if took < least.max(SAMPLE) {
            return;
        }
        let (keys, checks) = (
            self.answered.0 as f64 / millis(took),
            self.answered.1 as f64 / millis(took),
        );
        self.last[self.next] = Sample {
            keys,
            checks: if self.is_busy { checks } else { 0.0 },
        };
        self.next = (self.next + 1) % SAMPLES;
        (self.began, self.answered, self.is_busy) = (now, (0, 0), true);
        self.keys = self
            .last
            .iter()
            .map(|sample| sample.keys)
            .fold(0.0, f64::max);
        let mut sorted = self.last.map(|sample| sample.checks);
        sorted.sort_unstable_by(|a, b| b.total_cmp(a));
        self.checks = if sorted[GREATER] > 0.0 {
            sorted[GREATER]
        } else {
            FASTEST
        };
    }

    /// Notes that no check waits. The server may be faster by the next time.
    fn rests(&mut self) {
        if self.is_busy {
            self.is_busy = false;
            self.checks = FASTEST;
            self.last.iter_mut().for_each(|sample| sample.checks = 0.0);
        }
    }
}

/// Limits the keys and the batches that are under way on one connection.
#[derive(Clone, Debug)]
struct Window {
    connection: u64,
    /// The most keys under way.
    keys: f64,
    least: Duration,
    /// The mean round trip and its mean deviation, in seconds.
    mean: f64,
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
    /// The begin of a measurement. One batch at a time is sent until the line is drained. The next
    /// one is measured.
    drains_since: Option<Instant>,
}

/// The keys that may be under way in any case, in four full batches: both ends of the connection
/// are busy with them, also where a sleeping core takes time to wake.
const FLOOR_KEYS: f64 = 256.0;

/// The batches that may be under way in any case.
const FLOOR_BATCHES: f64 = 4.0;

/// The same while a batch takes all checks: on the shortest lines two, one for each end. With more,
/// each would be too small to be worth a call.
const FLOOR_TOGETHER: f64 = 1.5;

/// The batches that may leave in a millisecond of the round trip. With more, each batch would share
/// less.
const BATCHES_PER_MS: f64 = 10.0;

/// The time that checks may wait at the server, beside an eighth of the round trip and twice its
/// usual deviation.
const PATIENCE: Duration = Duration::from_millis(1);

/// The time between two measurements of the least round trip. They begin at multiples of it, by the
/// clock.
const PERIOD: Duration = Duration::from_secs(2);

/// The time in which the line drains. It covers the difference of two clocks.
const DRAIN: Duration = Duration::from_millis(12);

/// The longest measurement.
const LONGEST_MEASUREMENT: Duration = Duration::from_millis(500);

/// The factor by which the limit may exceed what the line holds at the present rate.
const ROOM: f64 = 1.5;

/// The part of a new round trip in the mean, as in TCP.
const GAIN: f64 = 0.125;

impl Window {
    fn new(connection: u64, now: Instant, since_epoch: Duration, round_trip: Duration) -> Self {
        let in_period = Duration::from_nanos((since_epoch.as_nanos() % PERIOD.as_nanos()) as u64);
        Self {
            connection,
            keys: FLOOR_KEYS + FASTEST * millis(round_trip),
            least: round_trip,
            mean: round_trip.as_secs_f64(),
            deviation: 0.0,
            is_limiting: false,
            was_limiting: false,
            since: now,
            late: 0,
            in_time: 0,
            period_ends: now + (PERIOD - in_period),
            drains_since: None,
        }
    }

    /// Returns whether another batch may leave. One leaves in any case.
    fn allows(&mut self, now: Instant, batches: usize, keys: usize, floor: f64) -> bool {
        let most_batches = floor + BATCHES_PER_MS * millis(self.least);
        let drains = self.drains_since.is_some_and(|began| now < began + DRAIN);
        let has_room = !drains && (batches as f64) < most_batches && (keys as f64) < self.keys;
        let allows = batches == 0 || has_room;
        self.is_limiting |= !allows;
        allows
    }

    /// Notes an answer. `rate` is that of the keys.
    fn answered(&mut self, now: Instant, ticket: Ticket, round_trip: Duration, rate: f64) {
        self.least = self.least.min(round_trip);
        let difference = round_trip.as_secs_f64() - self.mean;
        self.mean += GAIN * difference;
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
            let periods =
                now.saturating_duration_since(self.period_ends).as_nanos() / PERIOD.as_nanos() + 1;
            self.period_ends += PERIOD * u32::try_from(periods).unwrap_or(u32::MAX);
            (self.late, self.in_time) = (0, 0);
        }
        self.drains_since.is_some()
    }

    /// Sets the limit by the delay of an answer.
    fn adapt(&mut self, now: Instant, ticket: Ticket, round_trip: Duration, rate: f64) {
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
            let step = if delay < patience / 4 {
                1.0
            } else {
                64.0 / self.keys
            };
            self.keys += ticket.keys as f64 * step;
        }
        let most = FASTEST.min(ROOM * rate) * millis(self.least);
        self.keys = self.keys.clamp(FLOOR_KEYS, FLOOR_KEYS + most);
        if is_new {
            self.begin_round_trip(now);
        }
    }

    fn begin_round_trip(&mut self, now: Instant) {
        (self.since, self.was_limiting, self.is_limiting) = (now, self.is_limiting, false);
    }

    fn patience(&self) -> Duration {
        PATIENCE + self.least / 8 + Duration::from_secs_f64(2.0 * self.deviation)
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTION: u64 = 1;

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1_000.0)
    }

    /// Returns a pacer of a server at this distance, and the time of its begin, in the middle of a
    /// period.
    fn pacer(round_trip: Duration) -> (Pacer, Instant) {
        let began = Instant::now();
        let mut pacer = Pacer::new(began);
        pacer.connected(
            CONNECTION,
            began,
            || PERIOD * 1_000 + PERIOD / 2,
            round_trip,
        );
        (pacer, began)
    }

    /// Sends a full batch, which is answered after a round trip.
    fn answer(pacer: &mut Pacer, sent: Instant, round_trip: Duration) {
        let ticket = pacer.sent(sent, 64, 64);
        pacer.answered(sent + round_trip, ticket);
    }

    /// Returns whether a batch may leave behind so many under way, with so many keys in all.
    fn may_leave(pacer: &Pacer, now: Instant, batches: usize, keys: usize) -> bool {
        let mut pacer = pacer.clone();
        (0..batches)
            .for_each(|at| _ = pacer.sent(now, (keys + at) / batches, (keys + at) / batches));
        pacer.may_leave(now, 1)
    }

    fn window(pacer: &Pacer) -> &Window {
        pacer.window.as_ref().expect("a connection")
    }

    #[test]
    fn a_few_callers_send_their_checks_and_none_while_checks_are_queued() {
        let mut pacer = Pacer::new(Instant::now());
        assert!(!pacer.begins_direct(), "no worker rests yet");
        pacer.rests();
        (0..MOST_DIRECT).for_each(|_| assert!(pacer.begins_direct()));
        assert!(!pacer.begins_direct());
        pacer.ends_direct(true);
        assert!(pacer.begins_direct() && !pacer.begins_direct());
        pacer.queued();
        pacer.ends_direct(true);
        assert!(!pacer.begins_direct(), "checks are queued");
        while pacer.peak > MOST_DIRECT {
            _ = pacer.share(1);
        }
        pacer.rests();
        assert!(
            pacer.begins_direct() && !pacer.begins_direct(),
            "those that were sent before count"
        );
    }

    #[test]
    fn callers_send_again_when_checks_were_few_for_a_while_and_fewer_if_some_are_under_way() {
        let (mut pacer, now) = pacer(ms(0.05));
        let first = pacer.sent(now, 1, 1);
        pacer.rests();
        pacer.queued();
        // One check waits and one is under way, time after time.
        let mut batches = 0;
        while !pacer.is_direct {
            _ = pacer.share(1);
            pacer.rests();
            batches += 1;
        }
        assert!((2..100).contains(&batches), "{batches}");
        pacer.queued();
        _ = pacer.share(100);
        while pacer.peak > MOST_DIRECT {
            pacer.rests();
            assert!(!pacer.is_direct, "many checks waited lately");
            _ = pacer.share(1);
        }
        pacer.rests();
        assert!(!pacer.is_direct, "one is under way");
        pacer.answered(now + ms(0.1), first);
        pacer.rests();
        assert!(pacer.is_direct);
        pacer.queued();
        _ = pacer.share(100);
        pacer.rests();
        assert!(!pacer.is_direct, "the callers of many pause together");
    }

    #[test]
    fn four_full_batches_are_under_way_on_a_short_line_and_more_on_a_longer_one() {
        let (near, now) = pacer(ms(0.05));
        assert!(may_leave(&near, now, 3, 255) && !may_leave(&near, now, 5, 100));
        assert!(!may_leave(&near, now, 3, 288));
        let (far, now) = pacer(ms(20.0));
        assert!(may_leave(&far, now, 200, 12_800) && !may_leave(&far, now, 205, 300));
        assert!(!may_leave(&far, now, 100, 13_100));
        let mut unconnected = Pacer::new(now);
        _ = unconnected.sent(now, 10_000, 10_000);
        assert!(may_leave(&near, now, 0, 0) && unconnected.may_leave(now, 1));
    }

    #[test]
    fn a_line_is_short_when_one_answer_was_soon() {
        let (mut pacer, began) = pacer(ms(1.0));
        assert_eq!(pacer.short_line(), None);
        pacer.measured(CONNECTION + 1, SHORT / 2);
        pacer.measured(CONNECTION, SHORT);
        assert_eq!(
            pacer.short_line(),
            None,
            "of another connection, or just too late"
        );
        pacer.measured(CONNECTION, SHORT / 2);
        pacer.measured(CONNECTION, ms(5.0));
        assert_eq!(pacer.short_line(), Some(CONNECTION));
        pacer.rests();
        assert!(pacer.begins_direct() && pacer.begins_direct());
        pacer.ends_direct(true);
        assert_eq!(pacer.short_line(), Some(CONNECTION));
        pacer.ends_direct(false);
        assert_eq!(
            pacer.short_line(),
            None,
            "a caller gave up: the line may have become longer"
        );
        pacer.measured(CONNECTION, ms(5.0));
        assert_eq!(pacer.short_line(), None, "it has");
        pacer.measured(CONNECTION, SHORT / 2);
        assert_eq!(pacer.short_line(), Some(CONNECTION));
        pacer.connected(CONNECTION + 1, began, || PERIOD, ms(1.0));
        assert_eq!(pacer.short_line(), None, "another line");
    }

    #[test]
    fn few_checks_leave_together_on_a_short_line_in_two_batches() {
        let (near, now) = pacer(ms(0.05));
        assert!(may_leave(&near, now, 1, 8) && !may_leave(&near, now, 2, 16));
        // No check waits for more than a fraction of the line.
        let (farther, now) = pacer(ms(0.19));
        assert!(may_leave(&farther, now, 3, 3) && farther.is_together(64));
        assert!(!farther.is_together(65) && !pacer(ms(0.2)).0.is_together(1));
    }

    #[test]
    fn a_batch_takes_all_of_few_checks_and_a_quarter_of_many() {
        let (mut near, now) = pacer(ms(0.05));
        assert_eq!(
            near.share(40),
            Share {
                keys: 40,
                checks: 20
            }
        );
        assert_eq!(
            near.share(64),
            Share {
                keys: 64,
                checks: 32
            }
        );
        _ = near.sent(now, 10, 10);
        assert_eq!(
            near.share(90),
            Share {
                keys: 25,
                checks: 50
            }
        );
        // Until the peak has fallen.
        assert_eq!(
            near.share(30),
            Share {
                keys: 10,
                checks: 20
            }
        );
        (0..10).for_each(|_| _ = near.share(30));
        assert_eq!(
            near.share(30),
            Share {
                keys: 40,
                checks: 20
            }
        );
        assert_eq!(pacer(ms(1.0)).0.share(8), Share { keys: 2, checks: 4 });
    }

    #[test]
    fn late_answers_shrink_the_limit_once_in_a_round_trip_and_others_let_it_grow_again() {
        let (mut pacer, began) = pacer(ms(5.0));
        let before = window(&pacer).keys;
        answer(&mut pacer, began, ms(15.0));
        let once = window(&pacer).keys;
        assert!(once < before);
        // These left before the limit was set.
        (1..10).for_each(|at| answer(&mut pacer, began + ms(f64::from(at)), ms(15.0)));
        assert!(
            (window(&pacer).keys - once).abs() < 1.0,
            "{} and {once}",
            window(&pacer).keys
        );
        answer(&mut pacer, began + ms(20.0), ms(15.0));
        let twice = window(&pacer).keys;
        assert!(twice < once);
        let large = pacer.sent(began, 100_000, 100_000);
        assert!(!pacer.may_leave(began, 1));
        pacer.answered(began + ms(40.0), large);
        (41..60).for_each(|at| answer(&mut pacer, began + ms(f64::from(at)), ms(5.0)));
        assert!(window(&pacer).keys > twice);
    }

    #[test]
    fn a_lag_of_the_process_is_no_delay_of_the_server() {
        let limit_after = |lag| {
            let (mut pacer, began) = pacer(ms(5.0));
            (0..20).for_each(|_| pacer.lagged(lag));
            answer(&mut pacer, began, ms(12.0));
            window(&pacer).keys
        };
        assert!(limit_after(ms(6.0)) > limit_after(Duration::ZERO));
    }

    #[test]
    fn a_line_that_became_longer_is_measured_after_a_period_of_late_answers() {
        let (mut pacer, began) = pacer(ms(1.0));
        let mut at = began;
        while at < began + PERIOD * 3 {
            answer(&mut pacer, at, ms(40.0));
            at += ms(41.0);
        }
        assert_eq!(window(&pacer).least, ms(40.0));
        // As many batches as the window allows leave in each round trip.
        for _ in 0..10 {
            let mut tickets = Vec::new();
            while pacer.may_leave(at, 1_000) {
                tickets.push(pacer.sent(at, 64, 64));
            }
            tickets
                .into_iter()
                .for_each(|ticket| pacer.answered(at + ms(40.0), ticket));
            at += ms(41.0);
        }
        assert!(may_leave(&pacer, at, 100, 2_000), "{pacer:?}");
    }

    #[test]
    fn a_measurement_holds_batches_back_until_the_line_is_drained_and_no_longer() {
        let (mut pacer, mut at) = pacer(ms(1.0));
        // The pacer begins in the middle of a period.
        let period_ends = at + PERIOD / 2;
        while window(&pacer).drains_since.is_none() {
            answer(&mut pacer, at, ms(40.0));
            at += ms(41.0);
        }
        let began = window(&pacer).drains_since.expect("a measurement");
        assert!(
            began >= period_ends && began < period_ends + ms(41.0),
            "by the clock of all processes"
        );
        assert!(!may_leave(&pacer, began + DRAIN - ms(0.1), 1, 64));
        assert!(
            may_leave(&pacer, began, 0, 0),
            "one batch leaves in any case"
        );
        assert!(may_leave(&pacer, began + DRAIN, 3, 192));
        // A batch from before says nothing about the drained line.
        answer(&mut pacer, began + ms(1.0), DRAIN + ms(40.0));
        assert_eq!(window(&pacer).least, ms(1.0));
        answer(&mut pacer, began + DRAIN, ms(42.0));
        assert_eq!(window(&pacer).least, ms(42.0));
    }

    #[test]
    fn another_connection_is_measured_anew_and_answers_on_the_old_one_say_nothing_about_it() {
        let (mut pacer, began) = pacer(ms(1.0));
        let old = pacer.sent(began, 64, 64);
        pacer.connected(CONNECTION + 1, began, || Duration::ZERO, ms(5.0));
        pacer.answered(began + ms(0.5), old);
        assert_eq!(
            (
                window(&pacer).least,
                pacer.batches,
                pacer.keys,
                pacer.checks
            ),
            (ms(5.0), 0, 0, 0)
        );
        pacer.connected(CONNECTION + 1, began, || Duration::ZERO, ms(1.0));
        assert_eq!(window(&pacer).least, ms(5.0), "it is the same connection");
    }

    #[test]
    fn a_new_connection_and_a_new_worker_begin_with_nothing_measured_and_nothing_under_way() {
        let (mut pacer, began) = pacer(ms(0.05));
        (0..SAMPLES).for_each(|_| _ = pacer.sent(began, 100, 100));
        assert!(!pacer.may_leave(began, 1));
        pacer.forget_sent();
        assert!(pacer.may_leave(began, 1) && pacer.share(4) == Share { keys: 4, checks: 2 });
        pacer.rate.checks = 10.0;
        pacer.connected(CONNECTION + 1, began, || Duration::ZERO, ms(0.05));
        assert!((pacer.rate.checks - FASTEST).abs() < 1e-9);
    }

    #[test]
    fn a_check_is_admitted_if_its_answer_comes_in_time_and_a_crowd_fills_half_of_the_wait() {
        let (mut pacer, _) = pacer(Duration::ZERO);
        // Each waiting check takes 0.1 ms, and 40 of 50 ms may pass. One is for the round trip.
        pacer.rate.checks = 10.0;
        assert_eq!(pacer.round_trip(), ms(1.0));
        let admits = |timeout, waiting, crowd| pacer.admits(ms(timeout), waiting, || crowd).is_ok();
        assert_eq!(
            [389, 390, 391].map(|waiting| admits(50.0, waiting, 0)),
            [true, true, false]
        );
        assert_eq!(
            [190, 191].map(|waiting| admits(50.0, waiting, 60)),
            [true, false]
        );
        assert!(admits(50.0, 191, 46), "less than a quarter is no crowd");
        assert!(
            admits(1_000.0, 391, 391) && admits(2.0, 31, 31),
            "there is time, or few wait"
        );
        assert!(
            admits(1.0, 5_000, 5_000),
            "no check with this timeout can be answered: the server is too far"
        );
        assert_eq!(pacer.admits(ms(50.0), 1_000, || 0), Err(ms(101.0)));
    }

    #[test]
    fn the_wait_follows_the_speed_of_the_server_and_a_stall_is_not_slowness() {
        let (mut pacer, began) = pacer(ms(1.0));
        let mut at = began;
        let mut answers = |pacer: &mut Pacer, after: f64| {
            let ticket = pacer.sent(at, 1, 100);
            at += ms(after);
            pacer.answered(at, ticket);
        };
        // The first sample may have begun before checks waited.
        (0..GREATER + 1).for_each(|_| answers(&mut pacer, 5.0));
        assert!(
            (pacer.rate.checks - FASTEST).abs() < 1e-9,
            "{}",
            pacer.rate.checks
        );
        // 100 checks in 5 ms, but for one stall of 100 ms.
        answers(&mut pacer, 5.0);
        assert!(
            (pacer.rate.checks - 20.0).abs() < 1e-9,
            "{}",
            pacer.rate.checks
        );
        answers(&mut pacer, 100.0);
        answers(&mut pacer, 5.0);
        assert!(
            (pacer.rate.checks - 20.0).abs() < 1e-9,
            "{}",
            pacer.rate.checks
        );
        pacer.rests();
        assert!((pacer.rate.checks - FASTEST).abs() < 1e-9);
        // Of a server that became slower, two fast samples of eight do not count.
        (0..SAMPLES + 1).for_each(|_| answers(&mut pacer, 5.0));
        (0..SAMPLES - 3).for_each(|_| answers(&mut pacer, 10.0));
        assert!(
            (pacer.rate.checks - 20.0).abs() < 1e-9,
            "{}",
            pacer.rate.checks
        );
        answers(&mut pacer, 10.0);
        assert!(
            (pacer.rate.checks - 10.0).abs() < 1e-9,
            "{}",
            pacer.rate.checks
        );
        pacer.rests();
        // While nothing waits, the rate is that of the callers.
        for _ in 0..SAMPLES + 1 {
            answers(&mut pacer, 5.0);
            pacer.rests();
        }
        assert!((pacer.rate.checks - FASTEST).abs() < 1e-9);
    }
}
