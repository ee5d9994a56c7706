//! The conditions of a valid policy. They are `const`, so that a literal is tested when it is
//! compiled.

use std::time::Duration;

use crate::{Algorithm, Error, Quota, model::quota::MAX_PERIOD_US};

/// The reasons for which a policy is refused.
#[derive(Clone, Copy)]
pub(super) enum InvalidPolicy {
    Name,
    WindowBurst,
    WindowAmount,
    Buckets,
    BucketWidth,
    BucketAmount,
    LogAmount,
    LockTimes,
    #[cfg(feature = "calendar")]
    CalendarPeriod,
    #[cfg(feature = "calendar")]
    AnchoredPeriod,
}

/// The most sub-windows of [`Algorithm::SlidingBuckets`].
const MAX_BUCKETS: u16 = 1_000;

/// The greatest amount of an [`Algorithm::SlidingLog`], which stores one entry for each unit.
const MAX_LOG: u64 = 100_000;

/// The greatest amount of an [`Algorithm::SlidingWindow`] and of [`Algorithm::SlidingBuckets`],
/// whose counters have four bytes.
const MAX_COUNTER: u64 = u32::MAX as u64;

impl InvalidPolicy {
    /// Returns the message, without the refused value.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Name => "policy name must be 1 to 64 characters of A-Z a-z 0-9 - _ . /",
            Self::WindowBurst => {
                "policy quota burst must equal its amount: only the bucket algorithms have a burst"
            }
            Self::WindowAmount => {
                "policy quota amount must be at most 4294967295 for a sliding window"
            }
            Self::Buckets => "policy buckets must be 1 to 1000",
            Self::BucketWidth => "policy buckets must not exceed the period in microseconds",
            Self::BucketAmount => {
                "policy quota amount must be at most 4294967295 for sliding buckets"
            }
            Self::LockTimes => {
                "policy lockout times must be whole microseconds of 1 µs to 3650 days, and the first one at most the longest"
            }
            Self::LogAmount => "policy quota amount must be at most 100000 for a sliding log",
            #[cfg(feature = "calendar")]
            Self::CalendarPeriod => {
                "policy quota period must be that of its calendar unit: 1 day, 7 days, 30 days (month) or 365 days (year)"
            }
            #[cfg(feature = "calendar")]
            Self::AnchoredPeriod => {
                "policy quota period must be a multiple of its calendar unit: 1 day, 7 days, 30 days (month) or 365 days (year)"
            }
        }
    }

    /// Returns the error, which names the refused value.
    pub(super) fn error(self, name: &str, algorithm: Algorithm, quota: Quota) -> Error {
        Error::config(match self {
            Self::Name => format!("{}, got {name:?}", self.text()),
            Self::WindowBurst
            | Self::WindowAmount
            | Self::BucketWidth
            | Self::BucketAmount
            | Self::LogAmount => {
                format!("{}, got {quota:?} in policy {name}", self.text())
            }
            #[cfg(feature = "calendar")]
            Self::CalendarPeriod | Self::AnchoredPeriod => {
                format!("{}, got {quota:?} in policy {name}", self.text())
            }
            Self::Buckets | Self::LockTimes => {
                format!("{}, got {algorithm:?} in policy {name}", self.text())
            }
        })
    }
}

/// Tests whether a policy may have this name, algorithm and quota.
pub(super) const fn check(
    name: &[u8],
    algorithm: Algorithm,
    quota: Quota,
) -> Result<(), InvalidPolicy> {
    if name.is_empty() || name.len() > 64 {
        return Err(InvalidPolicy::Name);
    }
    let mut at = 0;
    while at < name.len() {
        if !(name[at].is_ascii_alphanumeric() || matches!(name[at], b'-' | b'_' | b'.' | b'/')) {
            return Err(InvalidPolicy::Name);
        }
        at += 1;
    }
    if !algorithm.has_burst() && quota.burst() != quota.amount() {
        return Err(InvalidPolicy::WindowBurst);
    }
    match algorithm {
        Algorithm::SlidingWindow if quota.amount() > MAX_COUNTER => {
            Err(InvalidPolicy::WindowAmount)
        }
        Algorithm::SlidingBuckets { buckets } if buckets == 0 || buckets > MAX_BUCKETS => {
            Err(InvalidPolicy::Buckets)
        }
        Algorithm::SlidingBuckets { buckets } if buckets as u64 > quota.period_us() => {
            Err(InvalidPolicy::BucketWidth)
        }
        Algorithm::SlidingBuckets { .. } if quota.amount() > MAX_COUNTER => {
            Err(InvalidPolicy::BucketAmount)
        }
        #[cfg(feature = "calendar")]
        Algorithm::CalendarWindow { unit, anchor, .. } => {
            let nominal = unit.nominal().as_micros() as u64;
            match anchor {
                None if nominal != quota.period_us() => Err(InvalidPolicy::CalendarPeriod),
                Some(_) if !quota.period_us().is_multiple_of(nominal) => {
                    Err(InvalidPolicy::AnchoredPeriod)
                }
                _ => Ok(()),
            }
        }
        Algorithm::Lockout { first, longest } if !are_lock_times(first, longest) => {
            Err(InvalidPolicy::LockTimes)
        }
        Algorithm::SlidingLog if quota.amount() > MAX_LOG => Err(InvalidPolicy::LogAmount),
        _ => Ok(()),
    }
}

const fn are_lock_times(first: Duration, longest: Duration) -> bool {
    let is_whole =
        first.subsec_nanos().is_multiple_of(1_000) && longest.subsec_nanos().is_multiple_of(1_000);
    let (first, longest) = (first.as_micros(), longest.as_micros());
    is_whole && first >= 1 && first <= longest && longest <= MAX_PERIOD_US as u128
}
