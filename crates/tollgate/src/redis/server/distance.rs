//! The deadlines that are too short for a server. The atomics come from `redis::sync`, so that a model checker runs the
//! same lines.

use std::time::Duration;

use crate::redis::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Decides which deadlines are too short for the round trip to the server.
///
/// A check that misses its deadline counts against this deadline. A check that is answered in time counts for it. When
/// the late checks exceed the others by [`LIMIT`], a probe measures the round trip. If the deadline has no room for it,
/// checks with this deadline, or a shorter one, are decided without the server. Checks with longer deadlines are sent.
///
/// The caller whose check reaches the limit starts the probe. So there is never more than one probe.
#[derive(Debug)]
pub(in crate::redis) struct Distance {
    /// The longest deadline that is too short, in microseconds. 0 when no deadline is too short.
    too_short_us: AtomicU64,
    /// The shortest deadline that was refused, in microseconds.
    shortest_us: AtomicU64,
    /// Deadlines that checks missed: the microseconds, and in the low byte the excess of the late checks.
    suspects: [AtomicU64; SUSPECTS],
    /// 1 while a probe runs.
    has_probe: AtomicU32,
}

/// The excess of late checks over checks in time that starts a probe. If one answer of ten is late at random, the excess
/// gets this far once in some ten million checks.
const LIMIT: u64 = 8;

/// The number of deadlines that are counted at a time. One more replaces the one with the smallest excess.
const SUSPECTS: usize = 4;

const EXCESS: u64 = 0xff;
const MICROSECOND: u64 = EXCESS + 1;

/// Stands for no deadline.
const NONE: u64 = u64::MAX;

impl Distance {
    pub(in crate::redis) fn new() -> Self {
        Self {
            too_short_us: AtomicU64::new(0),
            shortest_us: AtomicU64::new(NONE),
            suspects: std::array::from_fn(|_| AtomicU64::new(0)),
            has_probe: AtomicU32::new(0),
        }
    }

    /// Returns whether a check with this deadline is decided without the server.
    #[inline]
    pub(in crate::redis) fn is_too_short(&self, deadline: Duration) -> bool {
        match self.too_short_us.load(Ordering::Acquire) {
            0 => false,
            longest_us => self.is_within(micros(deadline), longest_us),
        }
    }

    /// Returns whether some deadline is too short.
    pub(in crate::redis) fn is_far(&self) -> bool {
        self.too_short_us.load(Ordering::Acquire) != 0
    }

    /// Counts a check that missed its deadline. Returns whether the caller has to start the probe.
    pub(in crate::redis) fn late(&self, deadline: Duration) -> bool {
        self.count_late(micros(deadline)) == LIMIT && self.begin()
    }

    /// Counts a check that was answered in time.
    #[inline]
    pub(in crate::redis) fn in_time(&self, deadline: Duration) {
        if self.suspects.iter().any(|suspect| suspect.load(Ordering::Relaxed) != 0) {
            self.count_in_time(micros(deadline));
        }
    }

    /// Returns whether a deadline waits for a measurement.
    pub(in crate::redis) fn has_suspect(&self) -> bool {
        self.suspects.iter().any(|suspect| suspect.load(Ordering::Acquire) & EXCESS == LIMIT)
    }

    /// Returns whether a deadline that waits for a measurement is too short for this round trip.
    pub(in crate::redis) fn is_suspect_too_short(&self, round_trip: Duration) -> bool {
        let is_too_short = |word: u64| word & EXCESS == LIMIT && word / MICROSECOND < needed_us(round_trip);
        self.suspects.iter().any(|suspect| is_too_short(suspect.load(Ordering::Acquire)))
    }

    /// Judges the deadlines that wait for a measurement. Returns the longest that is too short. A deadline that has room
    /// for the round trip was missed for another reason: it starts anew. Only the probe calls this.
    pub(in crate::redis) fn judge(&self, round_trip: Duration) -> Option<Duration> {
        let needed_us = needed_us(round_trip);
        let judged = self.suspects.iter().filter_map(|suspect| {
            let take = |word: u64| (word & EXCESS == LIMIT).then_some(0);
            suspect.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()
        });
        let longest_us = judged.map(|word| word / MICROSECOND).filter(|&deadline_us| deadline_us < needed_us).max()?;
        self.shortest_us.fetch_min(longest_us, Ordering::AcqRel);
        self.too_short_us.fetch_max(longest_us.max(1), Ordering::AcqRel);
        Some(Duration::from_micros(longest_us))
    }

    /// Sends checks again whose deadline has room for the round trip. Returns whether all checks are sent again. Only the
    /// probe calls this.
    pub(in crate::redis) fn release(&self, round_trip: Duration) -> bool {
        let needed_us = needed_us(round_trip);
        if self.shortest_us.load(Ordering::Acquire) < needed_us {
            self.too_short_us.fetch_min(needed_us.saturating_sub(1).max(1), Ordering::AcqRel);
            return false;
        }
        self.forget();
        true
    }

    /// Ends the probe. Returns false when a deadline became suspect meanwhile: the probe then has to go on.
    pub(in crate::redis) fn end(&self) -> bool {
        self.has_probe.store(0, Ordering::Release);
        // Either this thread sees the suspect, or the thread that made it suspect sees that no probe runs.
        fence(Ordering::SeqCst);
        !(self.has_suspect() && self.begin())
    }

    /// Sends all checks again because no task measures any more. The next late check starts a probe.
    pub(in crate::redis) fn abandon(&self) {
        self.forget();
        self.has_probe.store(0, Ordering::Release);
    }

    fn forget(&self) {
        self.shortest_us.store(NONE, Ordering::Release);
        self.too_short_us.store(0, Ordering::Release);
    }

    /// Becomes the one probe, unless there is one.
    fn begin(&self) -> bool {
        fence(Ordering::SeqCst);
        self.has_probe.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
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
            let words = self.suspects.each_ref().map(|suspect| suspect.load(Ordering::Acquire));
            let (at, counted) = match words.iter().position(|&word| is_of(word, deadline_us)) {
                Some(at) => (at, if words[at] & EXCESS < LIMIT { words[at] + 1 } else { words[at] }),
                None => {
                    let smallest = (0..SUSPECTS).min_by_key(|&at| words[at] & EXCESS).unwrap_or(0);
                    (smallest, deadline_us * MICROSECOND + 1)
                }
            };
            let suspect = &self.suspects[at];
            if suspect.compare_exchange(words[at], counted, Ordering::AcqRel, Ordering::Acquire).is_ok() {
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

/// Returns the shortest deadline that has room for a round trip: a fifth of it is left for the script and the queues.
pub(in crate::redis) fn needed(round_trip: Duration) -> Duration {
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
