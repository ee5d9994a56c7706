//! The conditions of a valid policy. They are `const`, so that a literal is tested when it is
//! compiled.
//! Conditions of a quota alone are in `quota/`, those of a set in `policy_set/`.

use std::time::Duration;

use crate::{Algorithm, Error, Quota, quota::MAX_PERIOD_US};

/// The condition that a policy does not meet.
#[derive(Clone, Copy)]
pub(super) struct InvalidPolicy {
    pub(super) text: &'static str,
    of: PolicyField,
}

/// Selects the value that an error shows.
#[derive(Clone, Copy)]
enum PolicyField {
    Name,
    Algorithm,
    Quota,
}

/// The most sub-windows of [`Algorithm::SlidingBuckets`].
const MAX_BUCKETS: u16 = 1_000;

/// The greatest amount of an [`Algorithm::SlidingLog`], which stores one entry for each unit.
const MAX_LOG: u64 = 100_000;

/// The greatest amount of an [`Algorithm::SlidingWindow`] and of [`Algorithm::SlidingBuckets`],
/// whose counters have four bytes.
const MAX_COUNTER: u64 = u32::MAX as u64;

impl InvalidPolicy {
    const fn quota(text: &'static str) -> Self {
        let of = PolicyField::Quota;
        Self { text, of }
    }

    const fn algorithm(text: &'static str) -> Self {
        let of = PolicyField::Algorithm;
        Self { text, of }
    }

    /// Returns the error, which names the refused value.
    pub(super) fn error(self, name: &str, algorithm: Algorithm, quota: Quota) -> Error {
        let text = self.text;
        Error::config(match self.of {
            PolicyField::Name => format!("{text}, got {name:?}"),
            PolicyField::Algorithm => format!("{text}, got {algorithm:?} in policy {name}"),
            PolicyField::Quota => format!("{text}, got {quota:?} in policy {name}"),
        })
    }
}

/// Tests whether a policy may have this name, algorithm and quota.
pub(super) const fn check(
    name: &[u8],
    algorithm: Algorithm,
    quota: Quota,
) -> Result<(), InvalidPolicy> {
    if !is_name(name) {
        return Err(InvalidPolicy {
            text: "policy name must be 1 to 64 characters of A-Z a-z 0-9 - _ . /",
            of: PolicyField::Name,
        });
    }
    if !algorithm.has_burst() && quota.burst() != quota.amount() {
        return Err(InvalidPolicy::quota(
            "policy quota burst must equal its amount: only the bucket algorithms have a burst",
        ));
    }
    Err(match algorithm {
        Algorithm::SlidingWindow if quota.amount() > MAX_COUNTER => InvalidPolicy::quota(
            "policy quota amount must be at most 4294967295 for a sliding window",
        ),
        Algorithm::SlidingBuckets { buckets } if buckets == 0 || buckets > MAX_BUCKETS => {
            InvalidPolicy::algorithm("policy buckets must be 1 to 1000")
        }
        Algorithm::SlidingBuckets { buckets } if buckets as u64 > quota.period_us() => {
            InvalidPolicy::quota("policy buckets must not exceed the period in microseconds")
        }
        Algorithm::SlidingBuckets { .. } if quota.amount() > MAX_COUNTER => InvalidPolicy::quota(
            "policy quota amount must be at most 4294967295 for sliding buckets",
        ),
        Algorithm::SlidingLog if quota.amount() > MAX_LOG => {
            InvalidPolicy::quota("policy quota amount must be at most 100000 for a sliding log")
        }
        Algorithm::Lockout { first, longest } if !are_lock_times(first, longest) => {
            InvalidPolicy::algorithm(
                "policy lockout times must be whole microseconds of 1 µs to 3650 days, and the first one at most the longest",
            )
        }
        #[cfg(feature = "calendar")]
        Algorithm::CalendarWindow { unit, anchor, .. } => {
            let nominal = unit.nominal().as_micros() as u64;
            match anchor {
                None if nominal != quota.period_us() => InvalidPolicy::quota(
                    "policy quota period must be that of its calendar unit: 1 day, 7 days, 30 days (month) or 365 days (year)",
                ),
                Some(_) if !quota.period_us().is_multiple_of(nominal) => InvalidPolicy::quota(
                    "policy quota period must be a multiple of its calendar unit: 1 day, 7 days, 30 days (month) or 365 days (year)",
                ),
                _ => return Ok(()),
            }
        }
        _ => return Ok(()),
    })
}

/// Returns whether this may name a policy: it stands in header fields and in the keys of a store.
pub(crate) const fn is_name(name: &[u8]) -> bool {
    let mut at = 0;
    while at < name.len() {
        if !(name[at].is_ascii_alphanumeric() || matches!(name[at], b'-' | b'_' | b'.' | b'/')) {
            return false;
        }
        at += 1;
    }
    !name.is_empty() && name.len() <= 64
}

const fn are_lock_times(first: Duration, longest: Duration) -> bool {
    let is_whole =
        first.subsec_nanos().is_multiple_of(1_000) && longest.subsec_nanos().is_multiple_of(1_000);
    let (first, longest) = (first.as_micros(), longest.as_micros());
    is_whole && first >= 1 && first <= longest && longest <= MAX_PERIOD_US as u128
}
