//! The constructors for literals, one for each algorithm.
//! What they check is in `validity.rs`; what an algorithm does is in `algorithm/`.

// The compiler shows the first line of a constructor to whoever passes a `String`. So it says what
// takes one, where the line has room.

use std::time::Duration;

use super::Policy;
use crate::{Algorithm, Quota};

impl Policy {
    /// Limits requests by a token bucket: an average rate with bursts.
    ///
    /// The bucket holds up to b units (the burst) and gains n units per period W continuously.
    /// Admits at most b + ⌊n·L/W⌋ units in any interval of length L. The value in Redis has 24
    /// bytes, and 64 after reservations and late refunds.
    ///
    /// This is the right choice for most limits. Use [`sliding_buckets`](Self::sliding_buckets)
    /// when a client must never get more than n units in any period.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota, store::Clock};
    ///
    /// const API: Policy = Policy::token_bucket("api", Quota::per_second(10).with_burst(40));
    ///
    /// let clock = Clock::manual(0);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), API);
    /// assert!(limiter.check("acme").cost(Cost::new(40)).await?.is_allowed());
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
    #[track_caller]
    pub const fn token_bucket(name: &'static str /* or try_new */, quota: Quota) -> Self {
        Self::literal(name, Algorithm::TokenBucket, quota)
    }

    /// Limits requests by a bucket that is refilled once per period.
    ///
    /// n units are added at once every period W, up to b (the burst). The first period starts with
    /// the first request after the bucket was full. Admits at most b − 1 + n·⌈L/W⌉ units in any
    /// interval of length L. The value in Redis has 16 bytes.
    ///
    /// Use it for limits that are announced as "n requests, then wait for the next refill". Use
    /// [`token_bucket`](Self::token_bucket) otherwise: with the same quota it never admits more,
    /// and a denied client waits for one unit only, not for a whole refill.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota, store::Clock};
    ///
    /// const BATCH: Policy = Policy::interval_bucket("batch", Quota::per_minute(10));
    ///
    /// let clock = Clock::manual(0);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), BATCH);
    /// assert!(limiter.check("acme").cost(Cost::new(10)).await?.is_allowed());
    /// assert_eq!(limiter.check("acme").await?.retry_after(), Some(Duration::from_secs(60)));
    ///
    /// clock.advance(Duration::from_secs(60));
    /// assert!(limiter.check("acme").cost(Cost::new(10)).await?.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics when the name is not allowed. In a `const` this fails the build.
    #[must_use]
    #[track_caller]
    pub const fn interval_bucket(name: &'static str /* or try_new */, quota: Quota) -> Self {
        Self::literal(name, Algorithm::IntervalBucket, quota)
    }

    /// Spaces requests evenly by a leaky bucket.
    ///
    /// The bucket is a queue of up to b units (the burst), from which one unit leaves every W/n:
    /// the period divided by the amount. An admitted request gets a
    /// [`delay`](crate::Decision::delay), and should start only after it. Starts are W/n apart, and
    /// a full bucket denies. The value in Redis has 24 bytes.
    ///
    /// Use it for work that must be even, such as e-mails or calls to another company's API.
    /// [`CheckBuilder::wait`] waits for the delay. Use
    /// [`token_bucket`](Self::token_bucket) when clients should come back later and not wait.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota, store::Clock};
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
    ///
    /// [`CheckBuilder::wait`]: https://docs.rs/tollgate/latest/tollgate/limiter/struct.CheckBuilder.html#method.wait
    #[must_use]
    #[track_caller]
    pub const fn leaky_bucket(name: &'static str /* or try_new */, quota: Quota) -> Self {
        Self::literal(name, Algorithm::LeakyBucket, quota)
    }

    /// Limits requests per calendar window, such as an hour or a day in UTC.
    ///
    /// Every window starts at a multiple of the period W since the Unix epoch and admits n units.
    /// Around the edge of two windows up to 2n units can pass within W. The value in Redis has 24
    /// bytes.
    ///
    /// Use it for quotas that people read on a calendar. All clients get their new quota at the
    /// same moment and may arrive together. Use [`token_bucket`](Self::token_bucket) or
    /// [`sliding_window`](Self::sliding_window) where that is a problem.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota, store::Clock};
    ///
    /// const DAILY: Policy = Policy::fixed_window("daily", Quota::per_day(50_000));
    ///
    /// // 23:00:00 UTC on the first day of the Unix epoch.
    /// let clock = Clock::manual(82_800_000_000);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), DAILY);
    /// assert!(limiter.check("acme").cost(Cost::new(50_000)).await?.is_allowed());
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
    #[track_caller]
    pub const fn fixed_window(name: &'static str /* or try_new */, quota: Quota) -> Self {
        Self::literal(name, Algorithm::FixedWindow, quota)
    }

    /// Limits requests per local day, week, month or year.
    ///
    /// A period begins at local midnight: of each day, of each Monday, of the first of each month,
    /// or of January 1. So a day has 23 or 25 hours when the clocks change, and a month has 28 to
    /// 31 days. Each period admits `amount` units. The value in Redis has 24 bytes. Needs the
    /// feature `calendar`.
    ///
    /// Use it for quotas that people read, for example in a contract. Use
    /// [`fixed_window`](Self::fixed_window) for days in UTC, at the price of the other algorithms,
    /// and [`with_anchor`](Self::with_anchor) for periods that begin with the customer.
    ///
    /// The [quota](Self::quota) and the header fields show the
    /// [nominal](crate::CalendarUnit::nominal) period. The time to the end of the period is exact.
    ///
    /// The server decides by its own clock, but has no time zones: the process sends it the periods
    /// around the clock of the process. Both agree as long as that clock is less than a period off.
    /// Beyond that, the server continues with periods of the last length, which may begin at
    /// another time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{CalendarUnit, Cost, Limiter, MemoryStore, Policy, store::Clock};
    ///
    /// let plan = Policy::calendar_window("plan", 10_000, CalendarUnit::Month, "Europe/Berlin".parse()?);
    ///
    /// // 2026-02-28 22:59:59 UTC is one second before March in Berlin.
    /// let clock = Clock::manual(1_772_319_599_000_000);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), plan);
    /// assert!(limiter.check("acme").cost(Cost::new(10_000)).await?.is_allowed());
    /// assert_eq!(limiter.check("acme").await?.retry_after(), Some(Duration::from_secs(1)));
    ///
    /// clock.advance(Duration::from_secs(1));
    /// let march = limiter.check("acme").await?;
    /// let left = march.state("plan").unwrap().reset_after();
    /// assert_eq!(left, Duration::from_secs((31 * 24 - 1) * 3_600)); // the clocks go forward in March
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics when the name is not allowed, or when the amount is above 999 999 999 999 999. In a
    /// `const` this fails the build.
    #[cfg(feature = "calendar")]
    #[must_use]
    #[track_caller]
    pub const fn calendar_window(
        name: &'static str,
        amount: u64,
        unit: crate::CalendarUnit,
        zone: crate::TimeZone,
    ) -> Self {
        Self::literal(
            name,
            Algorithm::CalendarWindow {
                unit,
                zone,
                anchor: None,
            },
            Quota::new(amount, unit.nominal()),
        )
    }

    /// Names the feature `calendar`, with which this makes a policy of calendar windows.
    ///
    /// Without the feature it cannot be called: no type is a `NeedsCalendar`, so the compiler
    /// reports what is missing.
    #[cfg(not(feature = "calendar"))]
    #[must_use]
    pub fn calendar_window<N: NeedsCalendar>(_: N, _: u64, _: impl Sized, _: impl Sized) -> Self {
        unreachable!("no type implements the trait")
    }

    /// Limits requests per window, where the first request of a key opens the window.
    ///
    /// The window lasts one period W and admits n units. In an interval of length W that covers
    /// two windows up to 2n − 1 units can pass. The value in Redis has 24 bytes.
    ///
    /// Use it to match another system that counts with `INCR` and `EXPIRE`. Use
    /// [`token_bucket`](Self::token_bucket) or [`sliding_buckets`](Self::sliding_buckets) for a
    /// limit of your own.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota, store::Clock};
    ///
    /// const SELLER: Policy = Policy::window_from_first_hit("seller", Quota::per_minute(100));
    ///
    /// let clock = Clock::manual(30_000_000);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), SELLER);
    /// assert!(limiter.check("acme").cost(Cost::new(100)).await?.is_allowed());
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
    #[track_caller]
    pub const fn window_from_first_hit(
        name: &'static str, /* or try_new */
        quota: Quota,
    ) -> Self {
        Self::literal(name, Algorithm::WindowFromFirstHit, quota)
    }

    /// Limits requests by a sliding window of two counters.
    ///
    /// Counts the current window in full and the previous window by the share that still lies
    /// within one period W. With even traffic n − 1 to n units pass in any W. A client that times
    /// its requests to the edge of a window gets up to 2n − 1. The value in Redis has 24 bytes.
    ///
    /// Use it for large limits over long periods. Use [`sliding_buckets`](Self::sliding_buckets)
    /// when a client must never get more than n units in any period.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota, store::Clock};
    ///
    /// const API: Policy = Policy::sliding_window("api", Quota::per_minute(10));
    ///
    /// let clock = Clock::manual(0);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), API);
    /// assert!(limiter.check("acme").cost(Cost::new(10)).await?.is_allowed());
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
    /// Panics when the name is not allowed, when the quota has a burst of its own, or when its
    /// amount is above 4 294 967 295. In a `const` this fails the build.
    #[must_use]
    #[track_caller]
    pub const fn sliding_window(name: &'static str /* or try_new */, quota: Quota) -> Self {
        Self::literal(name, Algorithm::SlidingWindow, quota)
    }

    /// Limits requests strictly to n units in any period, by a sliding window of `buckets`
    /// counters.
    ///
    /// Divides the period W into m sub-windows. The current sub-window and the m before it count in
    /// full, so more than n units never pass in any interval of length W. A unit counts for W to
    /// W·(1 + 1/m): a steady client gets at least n·m/(m + 1) units per W. More buckets are more
    /// precise and take more memory: the value in Redis has 24 bytes plus 6 bytes for each bucket
    /// in use.
    ///
    /// Use it where n is a promise. Use [`sliding_log`](Self::sliding_log) when a denial must be
    /// exact too, and [`token_bucket`](Self::token_bucket) when bursts are welcome.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota, store::Clock};
    ///
    /// const STRICT: Policy = Policy::sliding_buckets("strict", Quota::per_minute(10), 6);
    ///
    /// let clock = Clock::manual(0);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), STRICT);
    /// assert!(limiter.check("acme").cost(Cost::new(10)).await?.is_allowed());
    ///
    /// // One minute, and one sub-window of ten seconds.
    /// assert_eq!(limiter.check("acme").await?.retry_after(), Some(Duration::from_secs(70)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics when the name is not allowed, when the quota has a burst of its own, when its amount
    /// is above 4 294 967 295, or when `buckets` is 0, above 1000, or above the number of
    /// microseconds in the period. In a `const` this fails the build.
    ///
    /// ```compile_fail
    /// use tollgate::{Policy, Quota};
    /// const TOO_MANY: Policy = Policy::sliding_buckets("b", Quota::per_second(5), 10_000);
    /// # fn main() { let _ = TOO_MANY; }
    /// ```
    #[must_use]
    #[track_caller]
    pub const fn sliding_buckets(
        name: &'static str, /* or try_new */
        quota: Quota,
        buckets: u16,
    ) -> Self {
        Self::literal(name, Algorithm::SlidingBuckets { buckets }, quota)
    }

    /// Limits requests strictly to n units in any period, by the time of every admitted unit.
    ///
    /// More than n units never pass in any interval of length W, and no request is denied that
    /// would fit. Stores one entry for each admitted unit: about 11 bytes in Redis, plus its
    /// [tag][`CheckBuilder::tag`].
    ///
    /// Use it for small, exact limits, and to list later
    /// [who spent the units][`Limiter::entries`]. Use
    /// [`sliding_buckets`](Self::sliding_buckets) for a large n.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota, store::Clock};
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
    /// [`CheckBuilder::tag`]: https://docs.rs/tollgate/latest/tollgate/limiter/struct.CheckBuilder.html#method.tag
    /// [`Limiter::entries`]: https://docs.rs/tollgate/latest/tollgate/struct.Limiter.html#method.entries
    #[must_use]
    #[track_caller]
    pub const fn sliding_log(name: &'static str /* or try_new */, quota: Quota) -> Self {
        Self::literal(name, Algorithm::SlidingLog, quota)
    }

    /// Locks a key for a time after n failures within the period W of the quota.
    ///
    /// Use it for log-ins, against guessed API keys, and for clients that ignore `Retry-After`. A
    /// failure is a unit: charge it when a request fails, with [`check`][`Limiter::check`] or
    /// with the layer's `charge_on`. After a success, clear the key with
    /// [`reset`][`Limiter::reset`], or with the layer's `clear_on`.
    ///
    /// - The first failure opens a window of length W. The n-th failure in the window locks the
    ///   key.
    /// - The first lockout lasts `first`. Each further lockout lasts twice as long as the one
    ///   before, at most `longest`.
    /// - `Retry-After` is exactly the end of the lockout. Denied requests do not prolong it.
    /// - Failures are forgotten when the window closes. Lockouts are forgotten `longest` after the
    ///   end of the last lockout.
    ///
    /// A client that is locked out again and again can try n times in each `longest`. In any
    /// interval of length W fewer than 2n failures pass, as with
    /// [`window_from_first_hit`](Self::window_from_first_hit): up to n − 1 in one window, and n in
    /// the next. The value in Redis has 40 bytes, and only keys that failed have one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota, store::Clock};
    ///
    /// /// Three wrong passwords within 10 minutes lock an account for 1 minute, later for 2, 4, up to 60.
    /// const LOGIN: Policy =
    ///     Policy::lockout("login", Quota::new(3, Duration::from_secs(600)), Duration::from_secs(60), Duration::from_secs(3_600));
    ///
    /// let clock = Clock::manual(0);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), LOGIN);
    /// for _wrong in 0..3 {
    ///     assert!(limiter.check("anna").await?.is_allowed());
    /// }
    /// assert_eq!(limiter.check("anna").await?.retry_after(), Some(Duration::from_secs(60)));
    ///
    /// // The second lockout takes two minutes.
    /// clock.advance(Duration::from_secs(60));
    /// for _wrong in 0..3 {
    ///     assert!(limiter.check("anna").await?.is_allowed());
    /// }
    /// assert_eq!(limiter.check("anna").await?.retry_after(), Some(Duration::from_secs(120)));
    ///
    /// // A success, or an operator, forgives.
    /// limiter.reset("anna").await?;
    /// assert!(limiter.check("anna").await?.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics when the name is not allowed, when the quota has a burst of its own, or when `first`
    /// is below 1 µs or above `longest`, `longest` is above 3650 days, or one of them is not whole
    /// microseconds. In a `const` this fails the build.
    ///
    /// [`Limiter::check`]: https://docs.rs/tollgate/latest/tollgate/struct.Limiter.html#method.check
    /// [`Limiter::reset`]: https://docs.rs/tollgate/latest/tollgate/struct.Limiter.html#method.reset
    #[must_use]
    #[track_caller]
    pub const fn lockout(
        name: &'static str,
        quota: Quota,
        first: Duration,
        longest: Duration,
    ) -> Self {
        Self::literal(name, Algorithm::Lockout { first, longest }, quota)
    }
}

/// Has no implementation. Its error names the feature.
#[cfg(not(feature = "calendar"))]
#[diagnostic::on_unimplemented(
    message = "`Policy::calendar_window` needs the feature `calendar` of the crate tollgate",
    label = "needs the feature `calendar`"
)]
pub trait NeedsCalendar {}
