//! Debts: units that were charged although they did not fit.
//!
//! The settlement of a reservation owes, and so does a check that may wait, in a token bucket or an interval bucket: its
//! [ceiling](crate::Ceiling) lies above the burst. A policy spends at most [`MOST_BURSTS`] times its burst, so that one wrong
//! commit does not lock a key for ever.
//!
//! A window and a log hold a debt as they hold any units, and it ends with them. A bucket and a sliding window correct a
//! state that holds more than the quota, because the clock went back or the quota was lowered. So they mark a state in debt
//! when it is stored: they add [`MARK`] to a number that is always smaller. The state keeps its size, and a state without
//! debt is read as before.

use crate::{Algorithm, Policy};

/// The greatest number of bursts that a policy spends. The sum of nine greatest bursts is exact in a double.
pub(super) const MOST_BURSTS: u64 = 8;

/// Marks a stored bucket or sliding window that is in debt: 10¹⁵, which no amount and no burst reaches.
pub(crate) const MARK: u64 = 1_000_000_000_000_000;

/// The most units that a log stores beyond its amount. Each is an entry of a list.
const MOST_ENTRIES: u64 = 100_000;

/// Returns the most units that a policy spends in debt.
pub(crate) fn most(policy: &Policy) -> u64 {
    let burst = policy.quota_ref().burst();
    let most = burst * MOST_BURSTS;
    match policy.algorithm() {
        Algorithm::SlidingWindow | Algorithm::SlidingBuckets { .. } => most.min(u32::MAX.into()),
        Algorithm::SlidingLog => most.min(burst + MOST_ENTRIES),
        _ => most,
    }
}
