use std::{
    sync::atomic::{AtomicU8, AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Estimates how long a new check will wait.
#[derive(Debug)]
pub(super) struct Load {
    per_check_ns: AtomicU64,
    round_trip_us: AtomicU64,
}

/// Measures how fast a server decides while checks wait for it.
///
/// One of the faster of the last samples counts: a server that stands still for a moment is not slow.
#[derive(Debug)]
pub(super) struct SpeedMeter {
    /// The begin of a sample, and the checks that were answered since. `None` while no check waits.
    sample: Option<(Instant, usize)>,
    /// The last samples, in nanoseconds per check.
    last: [u64; SAMPLES],
    next: usize,
}

/// The time of a check at the best rate that was measured. It counts until there is a sample.
const FASTEST_NS: u64 = 2_000;

const SAMPLES: usize = 8;

/// The place of the sample that counts, of all in order. Two others are faster.
const FASTER: usize = 2;

/// The part of a deadline that the wait for the answer may take. The rest is for the caller to take notice.
const MOST_OF_DEADLINE: f64 = 0.8;

/// The part of the longest wait that the checks of one key may fill.
const MOST_OF_ONE_KEY: f64 = 0.5;

/// The number of waiting checks of a key from which they count as a crowd. Fewer checks are always admitted.
const CROWD: usize = 32;

/// The shortest sample.
const SAMPLE: Duration = Duration::from_millis(2);

impl Load {
    pub(super) fn new() -> Self {
        Self { per_check_ns: AtomicU64::new(FASTEST_NS), round_trip_us: AtomicU64::new(0) }
    }

    /// Admits a check that can be answered within its timeout. `crowd` returns how many of the waiting checks have its key.
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
        let most = timeout.mul_f64(MOST_OF_DEADLINE);
        // A server that is too far for the timeout has a reason of its own.
        if waiting < CROWD || self.round_trip() > most {
            return Ok(());
        }
        let wait = self.wait_behind(waiting);
        let is_of_a_crowd = || crowd() >= CROWD.max(waiting / 4);
        match wait > most || (wait > most.mul_f64(MOST_OF_ONE_KEY) && is_of_a_crowd()) {
            true => Err(wait),
            false => Ok(()),
        }
    }

    /// Returns the time until the answer to a check behind so many others.
    fn wait_behind(&self, checks: usize) -> Duration {
        let waiting_ns = self.per_check_ns.load(Ordering::Relaxed).saturating_mul(checks as u64);
        Duration::from_nanos(waiting_ns) + self.round_trip()
    }

    /// Returns the time of a round trip, with what waits at the server.
    fn round_trip(&self) -> Duration {
        Duration::from_micros(self.round_trip_us.load(Ordering::Relaxed))
    }

    pub(super) fn set_round_trip(&self, round_trip: Duration) {
        self.round_trip_us.store(u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn set_per_check(&self, ns: u64) {
        self.per_check_ns.store(ns, Ordering::Relaxed);
    }
}

impl SpeedMeter {
    pub(super) fn new() -> Self {
        Self { sample: None, last: [FASTEST_NS; SAMPLES], next: 0 }
    }

    /// Notes that so many checks were answered while others wait.
    pub(super) fn answered(&mut self, now: Instant, checks: usize, load: &Load) {
        let Some((began, before)) = self.sample else {
            self.sample = Some((now, 0));
            return;
        };
        let (took, answered) = (now.saturating_duration_since(began), before + checks);
        if took < SAMPLE || answered == 0 {
            self.sample = Some((began, answered));
            return;
        }
        self.sample = Some((now, 0));
        self.last[self.next] = (took.as_nanos() / answered as u128) as u64;
        self.next = (self.next + 1) % SAMPLES;
        let mut sorted = self.last;
        sorted.sort_unstable();
        load.set_per_check(sorted[FASTER]);
    }

    /// Resets the measured rate when the queue is empty.
    pub(super) fn rests(&mut self, load: &Load) {
        if self.sample.take().is_some() {
            self.last = [FASTEST_NS; SAMPLES];
            load.set_per_check(FASTEST_NS);
        }
    }
}

/// Hints whether checks are so few that each caller sends its own. Only speed depends on it.
#[derive(Debug)]
pub(super) struct Traffic(AtomicU8);

/// The most checks under way that their callers sent. With more, the calls that the batches of the worker save are worth
/// its wake-ups.
pub(super) const MOST_DIRECT: u8 = 16;

/// The worker has checks to send.
const QUEUED: u8 = u8::MAX;

impl Traffic {
    /// Creates the hint for a server without a worker, which has to be started first.
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(QUEUED))
    }

    /// Notes that a check was queued. The callers queue their checks from now on.
    pub(super) fn queued(&self) {
        self.0.store(QUEUED, Ordering::Relaxed);
    }

    /// Notes that the worker has little to do. The callers send their checks from now on.
    pub(super) fn rests(&self) {
        self.update(|direct| (direct == QUEUED).then_some(0));
    }

    /// Returns whether the caller may send its check.
    pub(super) fn begins_direct(&self) -> bool {
        self.update(|direct| (direct < MOST_DIRECT).then(|| direct + 1))
    }

    /// Notes that a check that its caller sent was answered, or given up. It may have been sent before the worker began.
    pub(super) fn ends_direct(&self) {
        self.update(|direct| (1..=MOST_DIRECT).contains(&direct).then(|| direct - 1));
    }

    fn update(&self, next: impl Fn(u8) -> Option<u8>) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod traffic_tests {
    use super::*;

    #[test]
    fn a_few_callers_send_their_checks_and_none_while_checks_are_queued() {
        let traffic = Traffic::new();
        assert!(!traffic.begins_direct(), "no worker rests yet");
        traffic.rests();
        (0..MOST_DIRECT).for_each(|_| assert!(traffic.begins_direct()));
        assert!(!traffic.begins_direct());
        traffic.ends_direct();
        assert!(traffic.begins_direct() && !traffic.begins_direct());
        traffic.queued();
        traffic.ends_direct();
        assert!(!traffic.begins_direct(), "the end of a direct check does not hide the queue");
        traffic.rests();
        // One that was sent before ends now.
        traffic.ends_direct();
        (0..MOST_DIRECT).for_each(|_| assert!(traffic.begins_direct()));
        assert!(!traffic.begins_direct());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_admitted_if_its_answer_comes_in_time_and_a_crowd_fills_half_of_the_wait() {
        let (load, ms) = (Load::new(), Duration::from_millis);
        load.set_per_check(100_000);
        load.set_round_trip(ms(1));
        let admits = |timeout, waiting, crowd| load.admits(ms(timeout), waiting, || crowd).is_ok();
        // Each waiting check takes 0.1 ms, and 40 of 50 ms may pass.
        assert_eq!([389, 390, 391].map(|waiting| admits(50, waiting, 0)), [true, true, false]);
        assert_eq!([190, 191].map(|waiting| admits(50, waiting, 60)), [true, false]);
        assert!(admits(50, 191, 46), "less than a quarter is no crowd");
        assert!(admits(1_000, 391, 391) && admits(2, 31, 31), "there is time, or few wait");
        assert!(admits(1, 5_000, 5_000), "no check with this timeout can be answered: the server is too far");
        assert_eq!(load.admits(ms(50), 1_000, || 0), Err(ms(101)));
    }

    #[test]
    fn the_wait_follows_the_speed_of_the_server_and_a_stall_is_not_slowness() {
        let (load, mut meter, began) = (Load::new(), SpeedMeter::new(), Instant::now());
        load.set_round_trip(Duration::from_millis(1));
        assert_eq!(load.wait_behind(1_000), Duration::from_millis(3));
        let mut answered = |after_ms: u64| meter.answered(began + Duration::from_millis(after_ms), 100, &load);
        // 100 checks in 4 ms, but for one stall of 100 ms.
        for at in 0..=SAMPLES as u64 {
            answered(at * 4);
        }
        assert_eq!(load.wait_behind(1_000), Duration::from_millis(41));
        answered(SAMPLES as u64 * 4 + 100);
        assert_eq!(load.wait_behind(1_000), Duration::from_millis(41));
        meter.rests(&load);
        assert_eq!(load.wait_behind(1_000), Duration::from_millis(3));
    }
}
