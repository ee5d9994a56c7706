use std::{fmt, hash::Hash, sync::Arc};

use crate::{Algorithm, Error, Quota, algorithm::Buckets, quota::MAX_EXACT};

/// A named quota and the algorithm that meters it.
///
/// The state of a policy belongs to its name and the [`Key`](crate::Key): two limiters on one
/// store that name the same policy spend from one counter. Names are 1 to 64 characters out of
/// `A-Z a-z 0-9 - _ . /`, and are seen by clients in the `RateLimit` fields.
///
/// ```
/// use tollgate::{Algorithm, Policy, Quota};
///
/// const BURST: Policy = Policy::token_bucket("burst", Quota::per_second(20).with_burst(40));
/// assert_eq!(BURST.name(), "burst");
///
/// let read = Policy::try_new("daily", Algorithm::FixedWindow, Quota::per_day(50_000))?;
/// assert_eq!(read.algorithm(), Algorithm::FixedWindow);
///
/// let error = Policy::try_new("two words", Algorithm::FixedWindow, Quota::per_day(1)).unwrap_err();
/// assert_eq!(error.to_string(), r#"policy name must be 1 to 64 of A-Z a-z 0-9 - _ . /, got "two words""#);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Policy {
    name: Name,
    algorithm: Algorithm,
    quota: Quota,
    /// Tells the policies of one key apart, made from the name once.
    name_hash: u64,
}

#[derive(Clone)]
enum Name {
    Literal(&'static str),
    Shared(Arc<str>),
}

#[derive(Clone, Copy)]
enum Fault {
    Name,
    WindowBurst,
    WindowProduct,
    Buckets,
    BucketWidth,
    LogAmount,
}

/// The most sub-windows of [`Algorithm::SlidingBuckets`].
const MAX_BUCKETS: u16 = 1_000;

/// The most units of a [`Algorithm::SlidingLog`]: each is an entry.
const MAX_LOG: u32 = 100_000;

impl Fault {
    const fn text(self) -> &'static str {
        match self {
            Self::Name => "policy name must be 1 to 64 of A-Z a-z 0-9 - _ . /",
            Self::WindowBurst => "policy quota burst must equal its amount: a window has no burst of its own",
            Self::WindowProduct => {
                "policy quota is too large for a sliding window: amount × period in microseconds must stay below 2^53"
            }
            Self::Buckets => "policy buckets must be 1 to 1000",
            Self::BucketWidth => "policy buckets must be no more than the period has microseconds",
            Self::LogAmount => "policy quota amount must be at most 100000 for a sliding log",
        }
    }
}

impl Policy {
    /// A token bucket, see [`Algorithm::TokenBucket`].
    ///
    /// # Panics
    ///
    /// When the name is not allowed. In a `const` this fails the build.
    #[must_use]
    pub const fn token_bucket(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::TokenBucket, quota)
    }

    /// A bucket that is filled at intervals, see [`Algorithm::IntervalBucket`].
    ///
    /// # Panics
    ///
    /// When the name is not allowed. In a `const` this fails the build.
    #[must_use]
    pub const fn interval_bucket(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::IntervalBucket, quota)
    }

    /// A queue as deep as the quota's burst, see [`Algorithm::LeakyBucket`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Clock, Limiter, MemoryStore, Policy, Quota};
    ///
    /// const MAILS: Policy = Policy::leaky_bucket("mails", Quota::per_second(10).with_burst(3));
    ///
    /// let store = MemoryStore::builder().clock(Clock::manual(0)).build();
    /// let limiter = Limiter::new(store, MAILS);
    /// assert_eq!(limiter.check("smtp").await?.delay(), Duration::ZERO);
    /// assert_eq!(limiter.check("smtp").await?.delay(), Duration::from_millis(100));
    /// assert_eq!(limiter.check("smtp").await?.delay(), Duration::from_millis(200));
    /// assert!(limiter.check("smtp").await?.is_denied());
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// When the name is not allowed. In a `const` this fails the build.
    #[must_use]
    pub const fn leaky_bucket(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::LeakyBucket, quota)
    }

    /// A window aligned to the clock, see [`Algorithm::FixedWindow`].
    ///
    /// # Panics
    ///
    /// When the name is not allowed, or the quota has a burst of its own. In a `const` this fails
    /// the build.
    #[must_use]
    pub const fn fixed_window(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::FixedWindow, quota)
    }

    /// A window that opens with the first hit, see [`Algorithm::WindowFromFirstHit`].
    ///
    /// # Panics
    ///
    /// When the name is not allowed, or the quota has a burst of its own. In a `const` this fails
    /// the build.
    #[must_use]
    pub const fn window_from_first_hit(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::WindowFromFirstHit, quota)
    }

    /// A sliding window of two counters, see [`Algorithm::SlidingWindow`].
    ///
    /// # Panics
    ///
    /// When the name is not allowed, the quota has a burst of its own, or amount × period reaches
    /// 2⁵³. In a `const` this fails the build.
    #[must_use]
    pub const fn sliding_window(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::SlidingWindow, quota)
    }

    /// A sliding window of `buckets` sub-windows, see [`Algorithm::SlidingBuckets`].
    ///
    /// # Panics
    ///
    /// When the name is not allowed, the quota has a burst of its own, or the buckets are none,
    /// more than 1000 or more than the period has microseconds. In a `const` this fails the build.
    ///
    /// ```compile_fail
    /// use tollgate::{Policy, Quota};
    /// const TOO_MANY: Policy = Policy::sliding_buckets("b", Quota::per_second(5), 10_000);
    /// # fn main() { let _ = TOO_MANY; }
    /// ```
    #[must_use]
    pub const fn sliding_buckets(name: &'static str, quota: Quota, buckets: u16) -> Self {
        Self::literal(name, Algorithm::SlidingBuckets { buckets }, quota)
    }

    /// A log of every admitted unit, see [`Algorithm::SlidingLog`].
    ///
    /// # Panics
    ///
    /// When the name is not allowed, the quota has a burst of its own, or its amount is above
    /// 100 000. In a `const` this fails the build.
    ///
    /// ```compile_fail
    /// use tollgate::{Policy, Quota};
    /// const TOO_LONG: Policy = Policy::sliding_log("log", Quota::per_day(1_000_000));
    /// # fn main() { let _ = TOO_LONG; }
    /// ```
    #[must_use]
    pub const fn sliding_log(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::SlidingLog, quota)
    }

    /// A policy from values that are known only at run time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the name is not allowed, or the quota does not fit the algorithm.
    pub fn try_new(name: impl Into<String>, algorithm: Algorithm, quota: Quota) -> Result<Self, Error> {
        let name = name.into();
        match check(name.as_bytes(), algorithm, quota) {
            Ok(()) => {
                let name_hash = name_hash(name.as_bytes());
                Ok(Self { name: Name::Shared(name.into()), algorithm, quota, name_hash })
            }
            Err(fault) => Err(Error::config(match fault {
                Fault::Name => format!("{}, got {name:?}", fault.text()),
                Fault::WindowBurst | Fault::WindowProduct | Fault::BucketWidth | Fault::LogAmount => {
                    format!("{}, got {quota:?} in policy {name}", fault.text())
                }
                Fault::Buckets => format!("{}, got {algorithm:?} in policy {name}", fault.text()),
            })),
        }
    }

    const fn literal(name: &'static str, algorithm: Algorithm, quota: Quota) -> Self {
        if let Err(fault) = check(name.as_bytes(), algorithm, quota) {
            panic!("{}", fault.text());
        }
        Self { name: Name::Literal(name), algorithm, quota, name_hash: name_hash(name.as_bytes()) }
    }

    /// The name: whose counter this is, in Redis and in the `RateLimit` fields.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.name {
            Name::Literal(name) => name,
            Name::Shared(name) => name,
        }
    }

    /// How the quota is metered.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    pub(crate) fn quota_ref(&self) -> &Quota {
        &self.quota
    }

    /// How the sub-windows of [`Algorithm::SlidingBuckets`] lie.
    pub(crate) fn buckets(&self) -> Buckets {
        let count = match self.algorithm {
            Algorithm::SlidingBuckets { buckets } => u64::from(buckets),
            _ => 1,
        };
        Buckets { width_us: self.quota.period_us().div_ceil(count), count }
    }

    /// The policy that one of `replicas` enforces while it cannot ask the others.
    pub(crate) fn share(&self, replicas: u32) -> Self {
        let mut quota = self.quota.share(replicas, self.algorithm.is_continuous());
        if !self.algorithm.has_burst() {
            quota = quota.with_burst(quota.amount());
        }
        Self { name: self.name.clone(), algorithm: self.algorithm, quota, name_hash: self.name_hash }
    }

    /// Whether a state of this policy is one of the other's too: they have the name in common, and the form of the
    /// state.
    pub(crate) fn shares_state(&self, other: &Self) -> bool {
        self.algorithm.reads(other.algorithm) && self.name() == other.name()
    }

    /// A number that policies of one name have in common, and hardly any others.
    pub(crate) fn name_hash(&self) -> u64 {
        self.name_hash
    }
}

/// A multiplicative fold: names are short and configured, so it is enough.
const fn name_hash(name: &[u8]) -> u64 {
    let (mut name_hash, mut at) = (0, 0);
    while at < name.len() {
        name_hash = (name_hash ^ name[at] as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        at += 1;
    }
    name_hash
}

const fn check(name: &[u8], algorithm: Algorithm, quota: Quota) -> Result<(), Fault> {
    if name.is_empty() || name.len() > 64 {
        return Err(Fault::Name);
    }
    let mut at = 0;
    while at < name.len() {
        if !(name[at].is_ascii_alphanumeric() || matches!(name[at], b'-' | b'_' | b'.' | b'/')) {
            return Err(Fault::Name);
        }
        at += 1;
    }
    if !algorithm.has_burst() && quota.burst() != quota.amount() {
        return Err(Fault::WindowBurst);
    }
    match algorithm {
        Algorithm::SlidingWindow => match quota.amount_u64().checked_mul(quota.period_us()) {
            Some(product) if product < MAX_EXACT => Ok(()),
            _ => Err(Fault::WindowProduct),
        },
        Algorithm::SlidingBuckets { buckets } if buckets == 0 || buckets > MAX_BUCKETS => Err(Fault::Buckets),
        Algorithm::SlidingBuckets { buckets } if buckets as u64 > quota.period_us() => Err(Fault::BucketWidth),
        Algorithm::SlidingLog if quota.amount() > MAX_LOG => Err(Fault::LogAmount),
        _ => Ok(()),
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}, {:?}", self.name(), self.algorithm, self.quota)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl Name {
    fn text(&self) -> &str {
        match self {
            Self::Literal(text) => text,
            Self::Shared(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_with_a_burst_is_refused() {
        let quota = Quota::per_second(10).with_burst(20);
        let error = Policy::try_new("w", Algorithm::FixedWindow, quota).unwrap_err();
        assert_eq!(
            error.to_string(),
            "policy quota burst must equal its amount: a window has no burst of its own, got 10 per 1s with burst 20 in policy w"
        );
    }

    #[test]
    fn every_refusal_names_the_field_and_the_value() {
        let second = Quota::per_second(5);
        let buckets = |buckets| Algorithm::SlidingBuckets { buckets };
        let micros = Quota::new(5, std::time::Duration::from_micros(9));
        let cases = [
            (buckets(0), second, "policy buckets must be 1 to 1000, got SlidingBuckets { buckets: 0 } in policy p"),
            (
                buckets(10_000),
                second,
                "policy buckets must be 1 to 1000, got SlidingBuckets { buckets: 10000 } in policy p",
            ),
            (
                buckets(10),
                micros,
                "policy buckets must be no more than the period has microseconds, got 5 per 9µs in policy p",
            ),
            (
                Algorithm::SlidingLog,
                Quota::per_day(1_000_000),
                "policy quota amount must be at most 100000 for a sliding log, got 1000000 per 86400s in policy p",
            ),
            (
                Algorithm::SlidingWindow,
                Quota::per_day(110_000),
                "policy quota is too large for a sliding window: amount × period in microseconds must stay below 2^53, got 110000 per 86400s in policy p",
            ),
        ];
        for (algorithm, quota, text) in cases {
            assert_eq!(Policy::try_new("p", algorithm, quota).unwrap_err().to_string(), text);
        }
        for (algorithm, quota) in [
            (buckets(1), second),
            (buckets(1_000), second),
            (buckets(9), micros),
            (Algorithm::SlidingLog, Quota::per_day(100_000)),
            (Algorithm::SlidingWindow, Quota::per_day(104_000)),
        ] {
            assert!(Policy::try_new("p", algorithm, quota).is_ok());
        }
    }

    #[test]
    fn names_that_could_break_a_header_or_a_redis_key_are_refused() {
        for name in ["", "a b", "a:b", "a{b}", "ä", "a\"", "a\r\n", &"x".repeat(65)] {
            assert!(Policy::try_new(name, Algorithm::TokenBucket, Quota::per_second(1)).is_err(), "{name:?}");
        }
    }
}
