//! The conditions of a valid policy. They are `const`, so that a literal is tested when it is compiled.

use crate::{Algorithm, Quota, quota::MAX_EXACT};

/// The reasons for which a policy is refused.
#[derive(Clone, Copy)]
pub(super) enum InvalidPolicy {
    Name,
    WindowBurst,
    WindowProduct,
    Buckets,
    BucketWidth,
    LogAmount,
}

/// The most sub-windows of [`Algorithm::SlidingBuckets`].
const MAX_BUCKETS: u16 = 1_000;

/// The greatest amount of an [`Algorithm::SlidingLog`], which stores one entry for each unit.
const MAX_LOG: u32 = 100_000;

impl InvalidPolicy {
    /// Returns the message, without the refused value.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Name => "policy name must be 1 to 64 characters of A-Z a-z 0-9 - _ . /",
            Self::WindowBurst => "policy quota burst must equal its amount: only the bucket algorithms have a burst",
            Self::WindowProduct => {
                "policy quota is too large for a sliding window: amount × period in microseconds must be below 2^53"
            }
            Self::Buckets => "policy buckets must be 1 to 1000",
            Self::BucketWidth => "policy buckets must not exceed the period in microseconds",
            Self::LogAmount => "policy quota amount must be at most 100000 for a sliding log",
        }
    }
}

/// Tests whether a policy may have this name, algorithm and quota.
pub(super) const fn check(name: &[u8], algorithm: Algorithm, quota: Quota) -> Result<(), InvalidPolicy> {
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
        Algorithm::SlidingWindow => match quota.amount_u64().checked_mul(quota.period_us()) {
            Some(product) if product < MAX_EXACT => Ok(()),
            _ => Err(InvalidPolicy::WindowProduct),
        },
        Algorithm::SlidingBuckets { buckets } if buckets == 0 || buckets > MAX_BUCKETS => Err(InvalidPolicy::Buckets),
        Algorithm::SlidingBuckets { buckets } if buckets as u64 > quota.period_us() => Err(InvalidPolicy::BucketWidth),
        Algorithm::SlidingLog if quota.amount() > MAX_LOG => Err(InvalidPolicy::LogAmount),
        _ => Ok(()),
    }
}
