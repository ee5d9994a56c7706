//! The rate at which the server answers, from samples of its answers.
//! How much may be under way at this rate is limited in `window.rs`; what is refused by it, in
//! `mod.rs`.

use std::time::{Duration, Instant};

use super::ticket::{Ticket, millis};

/// Measures how many keys and checks the server answers in a millisecond.
#[derive(Clone, Debug)]
pub(super) struct AnswerRate {
    /// The maximum of the last samples: what the path to the server has carried.
    pub(super) keys: f64,
    /// A high percentile of the last samples in which the server was the limit: a server that pauses
    /// for a moment is not slow.
    pub(super) checks: f64,
    last: [Sample; SAMPLES],
    next: usize,
    /// The begin of the present sample, and what was answered since.
    began: Instant,
    answered: (usize, usize),
    /// The end of the last sample in which the server was the limit.
    limited: Instant,
    /// Checks waited all the time, and all answers came late. So the server is the limit, and not
    /// its callers or the network.
    is_busy: bool,
    /// Checks were refused by the rate since the last answer.
    has_refused: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    keys: f64,
    /// 0 until the server was the limit, and when that is forgotten. What it answers at other times
    /// counts if it is more.
    checks: f64,
}

/// The keys that the fastest server decides in a millisecond, with some room. This is the rate before
/// the first sample.
pub(super) const FASTEST: f64 = 640.0;

pub(super) const SAMPLES: usize = 8;

/// The rank of the rate of checks among the samples: the third greatest of eight, which is the 70th
/// percentile. The two above it may be outliers. Of three to five samples it is the second greatest,
/// because the third of three would be that of a server that stood still once.
pub(super) const RATE_RANK: usize = 2;

/// The length of a sample. Where a round trip takes longer, a sample is as long as that.
const SAMPLE: Duration = Duration::from_millis(5);

/// The time after which a rate is forgotten. The server may have become faster.
pub(super) const REMEMBERED: Duration = Duration::from_secs(10);

impl AnswerRate {
    pub(super) fn new(now: Instant) -> Self {
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
            limited: now,
            is_busy: false,
            has_refused: false,
        }
    }

    /// Notes an answer, and whether checks waited at the server.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        ticket: Ticket,
        min_round_trip: Duration,
        is_late: bool,
    ) {
        // One answer in time shows that the server had nothing else to do.
        self.is_busy &= is_late;
        self.has_refused = false;
        self.answered.0 += ticket.keys;
        self.answered.1 += ticket.checks;
        let took = now.saturating_duration_since(self.began);
        // The answers come in waves, one in a round trip. A shorter sample would hold a whole wave
        // or none.
        if took < min_round_trip.max(SAMPLE) {
            return;
        }
        let (keys, checks) = (
            self.answered.0 as f64 / millis(took),
            self.answered.1 as f64 / millis(took),
        );
        if now.saturating_duration_since(self.limited) > REMEMBERED {
            self.forget();
        }
        let sample = &mut self.last[self.next];
        sample.keys = keys;
        if self.is_busy {
            (sample.checks, self.limited) = (checks, now);
        } else if sample.checks > 0.0 {
            // The server was not the limit, so it could have done more: this can raise its rate,
            // but not lower it.
            sample.checks = sample.checks.max(checks);
        }
        self.next = (self.next + 1) % SAMPLES;
        (self.began, self.answered, self.is_busy) = (now, (0, 0), true);
        self.keys = self
            .last
            .iter()
            .map(|sample| sample.keys)
            .fold(0.0, f64::max);
        let mut sorted = self.last.map(|sample| sample.checks);
        sorted.sort_unstable_by(|a, b| b.total_cmp(a));
        // Until the server was the limit in three samples, it has no rate that could refuse a
        // check.
        let limited = sorted.iter().filter(|checks| **checks > 0.0).count();
        self.checks = if limited > RATE_RANK {
            sorted[RATE_RANK.min(limited / (RATE_RANK + 1))]
        } else {
            FASTEST
        };
    }

    /// Notes that a check is refused by the rate.
    pub(super) fn refuses(&mut self) {
        self.has_refused = true;
    }

    /// Notes that no check waits. `min_round_trip` is the least round trip.
    pub(super) fn rests(&mut self, min_round_trip: Duration) {
        self.is_busy = false;
        // See the theory: both would refuse checks by a rate that is not that of the server.
        if min_round_trip >= SAMPLE || self.has_refused {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.checks = FASTEST;
        self.last.iter_mut().for_each(|sample| sample.checks = 0.0);
    }
}
