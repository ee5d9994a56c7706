//! The numbers of a policy that the script of a store takes, in its order.
//! How a store packs and sends them is the store's own. The numbers behind the amount are those of
//! each algorithm, in `algorithm/`.

use super::Policy;
use crate::{algorithm, charge::Ask, lease::LeaseParts};

/// Visits the numbers of a policy, in the order in which its script takes them. All are whole numbers
/// below 2^53, so a double holds them exactly.
///
/// `now_us` returns the time of the call, in microseconds since the Unix epoch. Only a calendar window
/// asks for it: the time selects its periods.
#[inline]
#[cfg_attr(
    not(feature = "calendar"),
    allow(unused_variables, reason = "only calendars depend on the time")
)]
pub fn for_each_number(policy: &Policy, now_us: impl FnOnce() -> u64, visit: impl FnMut(u64)) {
    #[cfg(feature = "calendar")]
    if let crate::Algorithm::CalendarWindow { .. } = policy.algorithm() {
        return calendar_numbers(policy, now_us()).for_each(visit);
    }
    numbers(policy).for_each(visit);
}

/// Returns the numbers of a policy without its calendar, as [`for_each_number`] visits them.
pub fn numbers(policy: &Policy) -> impl Iterator<Item = u64> {
    let behind = algorithm::args(policy).into_iter().flatten();
    std::iter::once(policy.quota_ref().amount())
        .chain(behind)
        .chain(lease_numbers(policy))
}

/// Returns the numbers of the ceiling of a request, in the order in which a script takes them.
pub fn ceiling_numbers(policy: &Policy, ask: Ask) -> impl Iterator<Item = u64> {
    let (first, second) = algorithm::ceiling_args(policy, ask);
    [first].into_iter().chain(second)
}

/// Returns the numbers of the lease of a policy: the length of a generation in microseconds, and
/// the most outstanding units.
fn lease_numbers(policy: &Policy) -> impl Iterator<Item = u64> {
    let numbers = policy
        .lease()
        .map(|lease| [lease.generation_us(), lease.most(policy.quota_ref())]);
    numbers.into_iter().flatten()
}

/// Returns the numbers of a calendar window.
#[cfg(feature = "calendar")]
#[cold]
fn calendar_numbers(policy: &Policy, now_us: u64) -> impl Iterator<Item = u64> {
    let periods = policy.periods(now_us);
    let numbers = [
        policy.quota_ref().amount(),
        periods.before,
        periods.begin,
        periods.close,
        periods.after,
    ];
    numbers.into_iter().chain(lease_numbers(policy))
}
