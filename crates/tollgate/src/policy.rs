use std::{fmt, hash::Hash, sync::Arc};

use crate::{Algorithm, Error, Quota, algorithm::Buckets, quota::MAX_EXACT};

/// Combines a name, a [`Quota`] and the [`Algorithm`] that meters it.
///
/// Counters belong to the name of the policy and the [`Key`](crate::Key). Two limiters on the same
/// store that use the same policy name for the same key therefore spend from one counter.
///
/// A name has 1 to 64 characters of `A-Z a-z 0-9 - _ . /`. Clients see it in the `RateLimit`
/// response headers.
///
/// The constructors are `const` and panic, so that a wrong literal fails the build. Use
/// [`try_new`](Self::try_new) for values that are known only at run time.
///
/// ```
/// use tollgate::{Algorithm, Policy, Quota};
///
/// const BURST: Policy = Policy::token_bucket("burst", Quota::per_second(20).with_burst(40));
/// assert_eq!(BURST.name(), "burst");
///
/// let daily = Policy::try_new("daily", Algorithm::FixedWindow, Quota::per_day(50_000))?;
/// assert_eq!(daily.algorithm(), Algorithm::FixedWindow);
///
/// let error = Policy::try_new("two words", Algorithm::FixedWindow, Quota::per_day(1)).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"policy name must be 1 to 64 characters of A-Z a-z 0-9 - _ . /, got "two words""#,
/// );
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Policy {
    name: Name,
    algorithm: Algorithm,
    quota: Quota,
    /// Separates the states of one key in the in-process store. Computed once, because every check needs it.
    name_hash: u64,
}

#[derive(Clone)]
enum Name {
    Literal(&'static str),
    Shared(Arc<str>),
}

/// The reasons for which a policy is refused.
#[derive(Clone, Copy)]
enum InvalidPolicy {
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
    const fn text(self) -> &'static str {
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

impl Policy {
    /// Limits requests by a token bucket: an average rate with bursts.
    ///
    /// The bucket holds up to b units (the burst) and gains n units per period W continuously.
    /// Admits at most b + ⌊n·L/W⌋ units in any interval of length L. Stores 24 bytes per key.
    ///
    /// This is the right choice for most limits. Use [`sliding_buckets`](Self::sliding_buckets)
    /// when a client must never get more than n units in any period.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Clock, Cost, Limiter, MemoryStore, Policy, Quota};
    ///
    /// const API: Policy = Policy::token_bucket("api", Quota::per_second(10).with_burst(40));
    ///
    /// let clock = Clock::manual(0);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), API);
    /// assert!(limiter.check_cost("acme", Cost::new(40)).await?.is_allowed());
    /// let denied = limiter.check("acme").await?;
    /// assert_eq!(denied.retry_after(), Some(Duration::from_millis(100)));
    ///
    /// clock.advance(Duration::from_millis(100));
    /// assert!(limiter.check("acme").await?.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics when the name is not allowed. In a `const` this fails the build.
    #[must_use]
    pub const fn token_bucket(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::TokenBucket, quota)
    }

    /// Limits requests by a bucket that is refilled once per period.
    ///
    /// n units are added at once every period W, up to b (the burst). The first period starts with
    /// the first request after the bucket was full. Admits at most b − 1 + n·⌈L/W⌉ units in any
    /// interval of length L. Stores 16 bytes per key.
    ///
    /// Use it for limits that are announced as "n requests, then wait for the next refill". Use
    /// [`token_bucket`](Self::token_bucket) otherwise: with the same quota it never admits more,
    /// and a denied client waits for one unit only, not for a whole refill.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Clock, Cost, Limiter, MemoryStore, Policy, Quota};
    ///
    /// const BATCH: Policy = Policy::interval_bucket("batch", Quota::per_minute(10));
    ///
    /// let clock = Clock::manual(0);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), BATCH);
    /// assert!(limiter.check_cost("acme", Cost::new(10)).await?.is_allowed());
    /// assert_eq!(limiter.check("acme").await?.retry_after(), Some(Duration::from_secs(60)));
    ///
    /// clock.advance(Duration::from_secs(60));
    /// assert!(limiter.check_cost("acme", Cost::new(10)).await?.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics when the name is not allowed. In a `const` this fails the build.
    #[must_use]
    pub const fn interval_bucket(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::IntervalBucket, quota)
    }

    /// Spaces requests evenly by a leaky bucket.
    ///
    /// The bucket is a queue of up to b requests (the burst), from which one unit leaves every
    /// W/n. An admitted request is given a [`delay`](crate::Decision::delay) and should start only
    /// after it. Starts are W/n apart, and a full bucket denies. Stores 24 bytes per key.
    ///
    /// Use it for work that must be even, such as e-mails or calls to another company's API.
    /// [`Limiter::until_ready`](crate::Limiter::until_ready) waits for the delay. Use
    /// [`token_bucket`](Self::token_bucket) when clients should come back later and not wait.
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
    /// Panics when the name is not allowed. In a `const` this fails the build.
    #[must_use]
    pub const fn leaky_bucket(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::LeakyBucket, quota)
    }

    /// Limits requests per calendar window, such as an hour or a day in UTC.
    ///
    /// Every window starts at a multiple of the period W since the Unix epoch and admits n units.
    /// Around the edge of two windows up to 2n units can pass within W. Stores 24 bytes per key.
    ///
    /// Use it for quotas that people read on a calendar. All clients get their new quota at the
    /// same moment and may arrive together. Use [`token_bucket`](Self::token_bucket) or
    /// [`sliding_window`](Self::sliding_window) where that is a problem.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Clock, Cost, Limiter, MemoryStore, Policy, Quota};
    ///
    /// const DAILY: Policy = Policy::fixed_window("daily", Quota::per_day(50_000));
    ///
    /// // 23:00:00 UTC on the first day of the Unix epoch.
    /// let clock = Clock::manual(82_800_000_000);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), DAILY);
    /// assert!(limiter.check_cost("acme", Cost::new(50_000)).await?.is_allowed());
    /// assert_eq!(limiter.check("acme").await?.retry_after(), Some(Duration::from_secs(3_600)));
    ///
    /// clock.advance(Duration::from_secs(3_600));
    /// assert!(limiter.check("acme").await?.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics when the name is not allowed, or when the quota has a burst of its own. In a `const`
    /// this fails the build.
    #[must_use]
    pub const fn fixed_window(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::FixedWindow, quota)
    }

    /// Limits requests per window, where the first request of a key opens the window.
    ///
    /// The window lasts one period W and admits n units. In an interval of length W that covers
    /// two windows up to 2n − 1 units can pass. Stores 24 bytes per key.
    ///
    /// Use it to match another system that counts with `INCR` and `EXPIRE`. Use
    /// [`token_bucket`](Self::token_bucket) or [`sliding_buckets`](Self::sliding_buckets) for a
    /// limit of your own.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Clock, Cost, Limiter, MemoryStore, Policy, Quota};
    ///
    /// const SELLER: Policy = Policy::window_from_first_hit("seller", Quota::per_minute(100));
    ///
    /// let clock = Clock::manual(30_000_000);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), SELLER);
    /// assert!(limiter.check_cost("acme", Cost::new(100)).await?.is_allowed());
    /// assert_eq!(limiter.check("acme").await?.retry_after(), Some(Duration::from_secs(60)));
    ///
    /// clock.advance(Duration::from_secs(60));
    /// assert!(limiter.check("acme").await?.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics when the name is not allowed, or when the quota has a burst of its own. In a `const`
    /// this fails the build.
    #[must_use]
    pub const fn window_from_first_hit(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::WindowFromFirstHit, quota)
    }

    /// Limits requests by a sliding window of two counters.
    ///
    /// Counts the current window in full and the previous window by the share that still lies
    /// within one period W. With even traffic n − 1 to n units pass in any W. A client that times
    /// its requests to the edge of a window gets up to 2n − 1. Stores 24 bytes per key.
    ///
    /// Use it for large limits over long periods. Use [`sliding_buckets`](Self::sliding_buckets)
    /// when a client must never get more than n units in any period.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Clock, Cost, Limiter, MemoryStore, Policy, Quota};
    ///
    /// const API: Policy = Policy::sliding_window("api", Quota::per_minute(10));
    ///
    /// let clock = Clock::manual(0);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), API);
    /// assert!(limiter.check_cost("acme", Cost::new(10)).await?.is_allowed());
    ///
    /// // Half of the previous window still counts: 5 units. One more is spent now.
    /// clock.advance(Duration::from_secs(90));
    /// let decision = limiter.check("acme").await?;
    /// assert_eq!(decision.state("api").unwrap().remaining(), 4);
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics when the name is not allowed, when the quota has a burst of its own, or when amount ×
    /// period in microseconds is 2⁵³ or more (about 104 000 units per day). In a `const` this fails
    /// the build.
    #[must_use]
    pub const fn sliding_window(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::SlidingWindow, quota)
    }

    /// Limits requests strictly to n units in any period, by a sliding window of `buckets` counters.
    ///
    /// Divides the period W into m sub-windows. The current sub-window and the m before it count in
    /// full, so more than n units never pass in any interval of length W. A unit counts for W to
    /// W·(1 + 1/m): a steady client gets at least n·m/(m + 1) units per W. More buckets are more
    /// precise and take more memory: 24 bytes per key plus 6 bytes for each bucket in use.
    ///
    /// Use it where n is a promise. Use [`sliding_log`](Self::sliding_log) when a denial must be
    /// exact too, and [`token_bucket`](Self::token_bucket) when bursts are welcome.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Clock, Cost, Limiter, MemoryStore, Policy, Quota};
    ///
    /// const STRICT: Policy = Policy::sliding_buckets("strict", Quota::per_minute(10), 6);
    ///
    /// let clock = Clock::manual(0);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), STRICT);
    /// assert!(limiter.check_cost("acme", Cost::new(10)).await?.is_allowed());
    ///
    /// // One minute, and one sub-window of ten seconds.
    /// assert_eq!(limiter.check("acme").await?.retry_after(), Some(Duration::from_secs(70)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics when the name is not allowed, when the quota has a burst of its own, or when
    /// `buckets` is 0, above 1000, or above the number of microseconds in the period. In a `const`
    /// this fails the build.
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

    /// Limits requests strictly to n units in any period, by the time of every admitted unit.
    ///
    /// More than n units never pass in any interval of length W, and no request is denied that would
    /// fit. Stores one entry for each admitted unit: about 11 bytes in Redis, plus its
    /// [tag](crate::Limiter::check_tagged).
    ///
    /// Use it for small, exact limits, and to list later
    /// [who spent the units](crate::Limiter::entries). Use
    /// [`sliding_buckets`](Self::sliding_buckets) for a large n.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Clock, Limiter, MemoryStore, Policy, Quota};
    ///
    /// const LOGIN: Policy = Policy::sliding_log("login", Quota::per_minute(2));
    ///
    /// let clock = Clock::manual(0);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), LOGIN);
    /// assert!(limiter.check("192.0.2.7").await?.is_allowed());
    /// clock.advance(Duration::from_secs(20));
    /// assert!(limiter.check("192.0.2.7").await?.is_allowed());
    ///
    /// // The first unit leaves one minute after it was spent.
    /// assert_eq!(limiter.check("192.0.2.7").await?.retry_after(), Some(Duration::from_secs(40)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics when the name is not allowed, when the quota has a burst of its own, or when its
    /// amount is above 100 000. In a `const` this fails the build.
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

    /// Creates a policy from values that are known only at run time.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when the name is not allowed, or
    /// when the quota does not fit the algorithm. The constructor of each algorithm lists its
    /// conditions under "Panics".
    pub fn try_new(name: impl Into<String>, algorithm: Algorithm, quota: Quota) -> Result<Self, Error> {
        let name = name.into();
        match check(name.as_bytes(), algorithm, quota) {
            Ok(()) => {
                let name_hash = name_hash(name.as_bytes());
                Ok(Self { name: Name::Shared(name.into()), algorithm, quota, name_hash })
            }
            Err(invalid) => Err(Error::config(match invalid {
                InvalidPolicy::Name => format!("{}, got {name:?}", invalid.text()),
                InvalidPolicy::WindowBurst
                | InvalidPolicy::WindowProduct
                | InvalidPolicy::BucketWidth
                | InvalidPolicy::LogAmount => {
                    format!("{}, got {quota:?} in policy {name}", invalid.text())
                }
                InvalidPolicy::Buckets => format!("{}, got {algorithm:?} in policy {name}", invalid.text()),
            })),
        }
    }

    const fn literal(name: &'static str, algorithm: Algorithm, quota: Quota) -> Self {
        if let Err(invalid) = check(name.as_bytes(), algorithm, quota) {
            panic!("{}", invalid.text());
        }
        Self { name: Name::Literal(name), algorithm, quota, name_hash: name_hash(name.as_bytes()) }
    }

    /// Returns the name, as it appears in Redis keys and in the `RateLimit` headers.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.name {
            Name::Literal(name) => name,
            Name::Shared(name) => name,
        }
    }

    /// Returns the algorithm that meters the quota.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    pub(crate) fn quota_ref(&self) -> &Quota {
        &self.quota
    }

    /// Returns the width and the number of the sub-windows of [`Algorithm::SlidingBuckets`].
    pub(crate) fn buckets(&self) -> Buckets {
        let count = match self.algorithm {
            Algorithm::SlidingBuckets { buckets } => u64::from(buckets),
            _ => 1,
        };
        Buckets { width_us: self.quota.period_us().div_ceil(count), count }
    }

    /// Returns the policy that each of `replicas` enforces alone during an outage: its share of the quota.
    pub(crate) fn share(&self, replicas: u32) -> Self {
        let mut quota = self.quota.share(replicas, self.algorithm.is_continuous());
        if !self.algorithm.has_burst() {
            quota = quota.with_burst(quota.amount());
        }
        Self { name: self.name.clone(), algorithm: self.algorithm, quota, name_hash: self.name_hash }
    }

    /// Returns `true` when both policies use the same stored state: they have the same name and the same form of state.
    pub(crate) fn shares_state(&self, other: &Self) -> bool {
        self.algorithm.reads(other.algorithm) && self.name() == other.name()
    }

    /// Returns a hash of the name. Policies of the same name have the same hash.
    pub(crate) fn name_hash(&self) -> u64 {
        self.name_hash
    }
}

/// Hashes a name by repeated multiplication. That is enough, because names are short and clients do not choose them.
const fn name_hash(name: &[u8]) -> u64 {
    let (mut hash, mut at) = (0, 0);
    while at < name.len() {
        hash = (hash ^ name[at] as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        at += 1;
    }
    hash
}

const fn check(name: &[u8], algorithm: Algorithm, quota: Quota) -> Result<(), InvalidPolicy> {
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
            "policy quota burst must equal its amount: only the bucket algorithms have a burst, got 10 per 1s with burst 20 in policy w"
        );
    }

    #[test]
    fn every_error_names_the_field_and_the_value() {
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
                "policy buckets must not exceed the period in microseconds, got 5 per 9µs in policy p",
            ),
            (
                Algorithm::SlidingLog,
                Quota::per_day(1_000_000),
                "policy quota amount must be at most 100000 for a sliding log, got 1000000 per 86400s in policy p",
            ),
            (
                Algorithm::SlidingWindow,
                Quota::per_day(110_000),
                "policy quota is too large for a sliding window: amount × period in microseconds must be below 2^53, got 110000 per 86400s in policy p",
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
    fn names_that_are_unsafe_in_a_header_or_a_redis_key_are_refused() {
        for name in ["", "a b", "a:b", "a{b}", "ä", "a\"", "a\r\n", &"x".repeat(65)] {
            assert!(Policy::try_new(name, Algorithm::TokenBucket, Quota::per_second(1)).is_err(), "{name:?}");
        }
    }
}
