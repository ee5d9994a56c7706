//! The circuit breaker of one server. The atomics come from `sync.rs`, so that a model checker
//! runs the same lines.
//! The probe that closes it again is in `mod.rs`; what a limiter answers meanwhile is in
//! `limiter/outage/`.

use std::time::{Duration, Instant};

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Decides which checks are sent to the server: all, those with a long deadline, or none.
///
/// *Open*: checks are answered without the server, until it answers one probe. The breaker opens
/// when three calls in a row miss their deadline with no other sign of life in between, and at
/// once when no connection can be made.
///
/// *Far*: checks whose deadline has no room for the round trip are answered without the server. A
/// check that misses its deadline counts against this deadline. A check that is answered in time
/// counts for it. When the late checks exceed the others by far, a probe measures the
/// round trip, and judges the deadline.
///
/// The caller that opens the breaker, or whose late check reaches the limit, asks for the probe.
/// There is never more than one.
#[derive(Debug)]
pub struct Breaker {
    /// The epoch, and in the low byte the number of misses in a row. The breaker is open at
    /// [`LIMIT`].
    word: AtomicU64,
    /// The time of the last answer, in microseconds after `began`.
    heard_us: AtomicU64,
    began: Instant,
    /// Probes that were answered since a check was answered.
    probes_in_vain: AtomicU32,
    /// The longest deadline that is too short, in microseconds. 0 when no deadline is too short.
    too_short_us: AtomicU64,
    /// The shortest deadline that was refused, in microseconds.
    shortest_us: AtomicU64,
    /// Deadlines that checks missed: the microseconds, and in the low byte the excess of the late
    /// checks.
    suspects: [AtomicU64; SUSPECTS],
}

/// The number of misses in a row that opens the breaker.
const LIMIT: u64 = 3;

const MISSES: u64 = 0xff;
const EPOCH: u64 = MISSES + 1;

/// The excess of late checks over checks in time that starts a measurement. If one answer of ten is
/// late at random, the excess gets this far once in some ten million checks.
const MOST_LATE: u64 = 8;

/// The number of deadlines that are counted at a time. One more replaces the one with the smallest
/// excess.
const SUSPECTS: usize = 4;

const EXCESS: u64 = 0xff;
const MICROSECOND: u64 = EXCESS + 1;

/// Stands for no deadline.
const NONE: u64 = u64::MAX;

impl Breaker {
    /// Creates a closed breaker.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            word: AtomicU64::new(0),
            heard_us: AtomicU64::new(0),
            began: now,
            probes_in_vain: AtomicU32::new(0),
            too_short_us: AtomicU64::new(0),
            shortest_us: AtomicU64::new(NONE),
            suspects: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Returns whether the breaker is open: no call is sent.
    pub fn is_open(&self) -> bool {
        self.word.load(Ordering::Acquire) & MISSES == LIMIT
    }

    /// Returns how often the breaker has opened. A check from an earlier epoch is no longer waited
    /// for.
    pub fn epoch(&self) -> u64 {
        self.word.load(Ordering::Acquire) / EPOCH
    }

    /// Counts a check that missed its deadline. Returns whether that opened the breaker.
    pub(crate) fn missed(&self) -> bool {
        let count = |word: u64| match word & MISSES {
            LIMIT => None,
            misses if misses == LIMIT - 1 => Some(word + EPOCH + 1),
            _ => Some(word + 1),
        };
        let before = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, count);
        before.is_ok_and(|word| word & MISSES == LIMIT - 1)
    }

    /// Opens the breaker at once. Returns whether it was closed.
    pub(crate) fn open(&self) -> bool {
        let open = |word: u64| (word & MISSES != LIMIT).then_some((word & !MISSES) + EPOCH + LIMIT);
        self.word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, open)
            .is_ok()
    }

    /// Notes an answer at this time, and resets the misses of a closed breaker. Only a probe closes
    /// an open one: an answer may be late.
    pub(crate) fn heard(&self, now: Instant) {
        self.heard_us.store(
            micros(now.saturating_duration_since(self.began)),
            Ordering::Relaxed,
        );
        let forget = |word: u64| matches!(word & MISSES, 1..LIMIT).then_some(word & !MISSES);
        if forget(self.word.load(Ordering::Relaxed)).is_some() {
            let _ = self
                .word
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, forget);
        }
    }

    /// Returns the time of the last answer. Before the first one, the time of the breaker's
    /// creation.
    pub(crate) fn last_heard(&self) -> Instant {
        self.began + Duration::from_micros(self.heard_us.load(Ordering::Relaxed))
    }

    /// Notes that a check was answered within its deadline, if it has one.
    #[inline]
    pub fn check_answered(&self, deadline: Option<Duration>) {
        if self.probes_in_vain.load(Ordering::Relaxed) > 0 {
            self.probes_in_vain.store(0, Ordering::Relaxed);
        }
        let has_late = || {
            self.suspects
                .iter()
                .any(|suspect| suspect.load(Ordering::Relaxed) != 0)
        };
        if let Some(deadline) = deadline
            && has_late()
        {
            self.count_in_time(micros(deadline));
        }
    }

    /// Closes the breaker after an answered probe. Only the probe calls this.
    pub(crate) fn close(&self) {
        self.probes_in_vain.fetch_add(1, Ordering::Relaxed);
        self.leave(0);
    }

    /// Sends all checks again because no task probes any more. The next missed check opens the
    /// breaker, and the next late one starts a measurement.
    pub(crate) fn abandon(&self) {
        self.forget();
        self.leave(LIMIT - 1);
    }

    /// Returns how many probes were answered since a check was answered. A server that answers
    /// probes and no checks is probed less and less often.
    pub(crate) fn probes_in_vain(&self) -> u32 {
        self.probes_in_vain.load(Ordering::Relaxed)
    }

    fn leave(&self, misses: u64) {
        let leave = |word: u64| (word & MISSES == LIMIT).then_some((word & !MISSES) + misses);
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, leave);
    }
}

/// The deadlines that are too short.
impl Breaker {
    /// Returns whether a check with this deadline is decided without the server.
    #[inline]
    pub(crate) fn is_too_short(&self, deadline: Duration) -> bool {
        match self.too_short_us.load(Ordering::Acquire) {
            0 => false,
            longest_us => self.is_within(micros(deadline), longest_us),
        }
    }

    /// Returns whether some deadline is too short.
    pub(crate) fn is_far(&self) -> bool {
        self.too_short_us.load(Ordering::Acquire) != 0
    }

    /// Counts a late check against its deadline. Returns whether the deadline waits for a
    /// measurement.
    pub(crate) fn late(&self, deadline: Duration) -> bool {
        self.count_late(micros(deadline)) == MOST_LATE
    }

    /// Returns whether a deadline waits for a measurement.
    pub(crate) fn has_suspect(&self) -> bool {
        self.suspects
            .iter()
            .any(|suspect| suspect.load(Ordering::Acquire) & EXCESS == MOST_LATE)
    }

    /// Returns whether a deadline that waits for a measurement is too short for this round trip.
    pub(crate) fn is_suspect_too_short(&self, round_trip: Duration) -> bool {
        let is_too_short =
            |word: u64| word & EXCESS == MOST_LATE && word / MICROSECOND < needed_us(round_trip);
        self.suspects
            .iter()
            .any(|suspect| is_too_short(suspect.load(Ordering::Acquire)))
    }

    /// Judges the deadlines that wait for a measurement. Returns the longest that is too short. A
    /// deadline that has room for the round trip was missed for another reason: it starts anew.
    /// Only the probe calls this.
    pub(crate) fn judge(&self, round_trip: Duration) -> Option<Duration> {
        let needed_us = needed_us(round_trip);
        let judged = self.suspects.iter().filter_map(|suspect| {
            let take = |word: u64| (word & EXCESS == MOST_LATE).then_some(0);
            suspect
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
                .ok()
        });
        let longest_us = judged
            .map(|word| word / MICROSECOND)
            .filter(|&deadline_us| deadline_us < needed_us)
            .max()?;
        self.shortest_us.fetch_min(longest_us, Ordering::AcqRel);
        self.too_short_us
            .fetch_max(longest_us.max(1), Ordering::AcqRel);
        Some(Duration::from_micros(longest_us))
    }

    /// Sends checks again whose deadline has room for the round trip. Returns whether all checks
    /// are sent again. Only the probe calls this.
    pub(crate) fn release(&self, round_trip: Duration) -> bool {
        let needed_us = needed_us(round_trip);
        if self.shortest_us.load(Ordering::Acquire) < needed_us {
            self.too_short_us
                .fetch_min(needed_us.saturating_sub(1).max(1), Ordering::AcqRel);
            return false;
        }
        self.forget();
        true
    }

    /// Sends all checks again, whatever their deadline.
    pub(crate) fn forget(&self) {
        self.shortest_us.store(NONE, Ordering::Release);
        self.too_short_us.store(0, Ordering::Release);
    }

    /// Compares a deadline, and notes it when it is refused: the probe ends when it fits too.
    fn is_within(&self, deadline_us: u64, longest_us: u64) -> bool {
        let is_within = deadline_us <= longest_us;
        if is_within && deadline_us < self.shortest_us.load(Ordering::Relaxed) {
            self.shortest_us.fetch_min(deadline_us, Ordering::AcqRel);
        }
        is_within
    }

    /// Returns the excess of late checks.
    fn count_late(&self, deadline_us: u64) -> u64 {
        loop {
            let words = self
                .suspects
                .each_ref()
                .map(|suspect| suspect.load(Ordering::Acquire));
            let (at, counted) = match words.iter().position(|&word| is_of(word, deadline_us)) {
                Some(at) => (
                    at,
                    if words[at] & EXCESS < MOST_LATE {
                        words[at] + 1
                    } else {
                        words[at]
                    },
                ),
                None => {
                    let smallest = (0..SUSPECTS)
                        .min_by_key(|&at| words[at] & EXCESS)
                        .unwrap_or(0);
                    (smallest, deadline_us * MICROSECOND + 1)
                }
            };
            let suspect = &self.suspects[at];
            if suspect
                .compare_exchange(words[at], counted, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                return counted & EXCESS;
            }
        }
    }

    #[cold]
    fn count_in_time(&self, deadline_us: u64) {
        let count = |word: u64| match is_of(word, deadline_us) {
            true if word & EXCESS == 1 => Some(0),
            true => Some(word - 1),
            false => None,
        };
        for suspect in &self.suspects {
            let _ = suspect.fetch_update(Ordering::AcqRel, Ordering::Acquire, count);
        }
    }
}

/// Returns the shortest deadline that has room for a round trip: a fifth of it is left for the
/// script and the queues.
pub(crate) fn needed(round_trip: Duration) -> Duration {
    Duration::from_micros(needed_us(round_trip))
}

fn needed_us(round_trip: Duration) -> u64 {
    let round_trip_us = micros(round_trip);
    round_trip_us + round_trip_us.div_ceil(4)
}

/// Returns microseconds that leave room for the low byte.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).map_or(NONE / MICROSECOND, |us| us.min(NONE / MICROSECOND))
}

fn is_of(word: u64, deadline_us: u64) -> bool {
    word & EXCESS != 0 && word / MICROSECOND == deadline_us
}
