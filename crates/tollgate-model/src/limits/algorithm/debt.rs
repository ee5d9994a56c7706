//! Debts: units that were charged although they did not fit.
//!
//! The settlement of a reservation owes, and so does a check that may wait, in a token bucket or an
//! interval bucket: its [ceiling](crate::Ceiling) lies above the burst. A policy spends at
//! most [`MOST_BURSTS`] times its burst, so that one wrong commit does not lock a key for ever.
//!
//! A window and a log hold a debt as they hold any units, and it ends with them. A bucket and a
//! sliding window correct a state that holds more than the quota, because the clock went back or
//! the quota was lowered. So a state has a field that says that it is in debt. In the stored bytes
//! it is a [`MARK`], which is added to a number that is always smaller: the bytes keep their size,
//! and those without a debt are read as before.
//! The steps that go into debt are in the file of each algorithm; who may do so is decided in
//! `limiter/wait/`.

/// The greatest number of bursts that a policy spends. The sum of nine greatest bursts is exact in
/// a double.
pub(super) const MOST_BURSTS: u64 = 8;

/// The time of the longest debt: the most bursts, if each takes ten years.
pub(super) const MOST_US: u64 = 10 * 365 * 86_400 * 1_000_000 * MOST_BURSTS;

/// Marks the stored bytes of a bucket or sliding window that is in debt: 10¹⁵, which no amount and
/// no burst reaches.
pub(super) const MARK: u64 = 1_000_000_000_000_000;

/// Returns a number as it is stored: with the mark, if it `has_mark`.
pub(super) fn marked(number: u64, has_mark: bool) -> u64 {
    number + if has_mark { MARK } else { 0 }
}

/// Reads a stored number, and whether it has the mark.
pub(super) fn unmarked(stored: u64) -> (u64, bool) {
    stored
        .checked_sub(MARK)
        .map_or((stored, false), |number| (number, true))
}
