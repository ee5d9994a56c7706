//! The face of a state to stores and callers: its bytes, and the numbers that are derived from a reading.
//! How a state decides is in `decide.rs`, and what changes it later in `adjust.rs`. Nothing here is
//! of one algorithm: each has its own file. The choice among them is made in `state.rs`.

use std::ops::Range;

use super::{
    Adjust, StoredState,
    level::{Numbers, Reading},
};
use crate::{Policy, charge::Ask, quota::Span};

/// Meters a policy: the state of one key.
///
/// Each algorithm has one type with this trait, in a file of its name. [`State`](super::State)
/// calls it by a `match`, without a pointer.
pub(crate) trait Meter: Adjust + Clone + Default {
    /// Turns a copy of a stored state into what a look reads of it. A look corrects no state that
    /// holds more than a lowered quota, because it stores nothing: what lies above returns in its
    /// time, as a debt does. An algorithm that cuts such a state whenever it reads it has nothing
    /// to do here.
    fn look(&mut self) {}

    /// Returns the time at which this state equals a fresh one.
    fn fresh_at(&self, policy: &Policy) -> u64;

    /// Returns the bytes that are stored: those that the script writes. Of a log, which is a list
    /// there, each entry follows its length.
    fn to_bytes(&self, policy: &Policy, stored_interval: Option<f64>) -> Vec<u8>;

    /// Returns the time at which the bytes expire, in milliseconds since the Unix epoch.
    fn expires_ms(&self, policy: &Policy) -> u64 {
        self.fresh_at(policy) / 1_000 + 1
    }

    /// Reads the bytes of a state, and the interval behind it in microseconds: the emission interval
    /// of a bucket, the length of a window, or 0. `None` for bytes that are never stored.
    fn of_bytes(bytes: &[u8]) -> Option<(Self, f64)>;

    /// Returns this state as tools see it, with the interval behind it.
    fn shown(&self, stored_interval: f64) -> StoredState;

    /// Derives the numbers that a caller sees from the reading. By default the reading is the used
    /// units and the three times.
    fn numbers(policy: &Policy, reading: &Reading, _denied: Ask) -> Numbers {
        let [used, retry_us, reset_us, more_us] = *reading;
        Numbers {
            remaining: policy.quota_ref().amount().saturating_sub(used),
            retry_us,
            reset_us,
            more_us,
        }
    }

    /// Returns the time until the turn of a request that charged `charged` units, or until its debt
    /// is paid, in microseconds.
    fn delay_us(_policy: &Policy, _reading: &Reading, _charged: u64) -> u64 {
        0
    }

    /// Returns the period whose units count at `now_us`, in microseconds on the clock of the store.
    /// `more_us` is the time until there are more units, and 0 when none is spent. `None` where units
    /// come back one by one, and before a period has begun.
    fn period_us(_policy: &Policy, _now_us: u64, _more_us: u64) -> Option<Range<u64>> {
        None
    }

    /// Returns the end of the places of a request: two numbers that the refund of the script takes.
    /// `is_owed` returns whether it left a debt.
    fn end_of(_reading: &Reading, _is_owed: impl FnOnce() -> bool) -> Option<Span> {
        None
    }

    /// Returns the reading as it was before the last `units` units were charged at the same
    /// instant.
    fn unspend(_policy: &Policy, reading: &mut Reading, units: u64) {
        reading[0] = reading[0].saturating_sub(units);
    }

    /// Returns the state that has this reading. `None` for an algorithm with more in its state than
    /// in its reading.
    fn of_reading(_policy: &Policy, _reading: &Reading, _now_us: u64) -> Option<Self> {
        None
    }

    /// Returns the reading `passed_us` after this one with at most `most` units left, if nobody spent
    /// since. `None` where it takes the steps of the state.
    fn lowered(
        _policy: &Policy,
        _reading: &Reading,
        _passed_us: u64,
        _most: u64,
    ) -> Option<Reading> {
        None
    }

    /// Returns the numbers that the script takes behind the amount of the quota: up to three.
    fn args(policy: &Policy) -> [Option<u64>; 3] {
        [Some(policy.quota_ref().period_us()), None, None]
    }

    /// Returns the numbers of a ceiling that the script takes: one or two.
    fn ceiling_args(policy: &Policy, ask: Ask) -> (u64, Option<u64>) {
        (ask.limit(policy.quota_ref().burst()), None)
    }
}
