//! The policy of permits: how many at a time, how long they live, and what becomes of lost work.
//! Nothing here holds a permit: that is in `limiter/permits/`.

use std::{borrow::Cow, fmt, time::Duration};

use crate::{Error, policy::is_name};

/// Limits how many permits of a key are held at the same time, over all replicas.
///
/// A permit stands for work in progress: a stream, an export, a job. A [`Policy`](crate::Policy)
/// limits how much starts in a period. `Concurrency` limits how much runs at the same time, however
/// long it takes.
///
/// Counters belong to the name and the [`Key`](crate::Key). Two limiters on one store with the same
/// name share them.
///
/// # Pooled and exact
///
/// A *pooled* limit, the default, keeps idle permits in the process. To acquire one of these takes
/// no call to the store. The process renews its permits once in every third of a
/// [life](Self::with_life), in one call for each key. Other replicas cannot use its idle permits
/// before the next renewal, so a replica may be denied while some are idle.
///
/// An [`exact`](Self::exact) limit keeps no idle permits. Each acquire and each release is a call,
/// and no permit is idle while a caller is denied. Use it for limits of up to about ten times the
/// number of replicas.
///
/// Neither hands out more than the limit. With a store in the process, every limit is exact,
/// without a call.
///
/// ```
/// use std::time::Duration;
/// use tollgate::permits::{Concurrency, OnLoss};
///
/// const STREAMS: Concurrency = Concurrency::new("streams", 2).exact().on_loss(OnLoss::Cancel);
/// assert_eq!((STREAMS.name(), STREAMS.limit()), ("streams", 2));
///
/// let error = Concurrency::try_new("streams", 0).unwrap_err();
/// assert_eq!(error.to_string(), "concurrency limit must be at least 1, got 0");
/// # assert_eq!(STREAMS.life(), Duration::from_secs(10));
/// ```
#[doc(alias = "semaphore")]
#[doc(alias = "parallel")]
#[derive(Clone, PartialEq, Eq)]
pub struct Concurrency {
    name: Cow<'static, str>,
    limit: u32,
    life: Duration,
    is_exact: bool,
    on_loss: OnLoss,
    longest_wait: Duration,
    max_waiting: usize,
}

/// Selects what becomes of work whose [`Permit`] is lost.
///
/// A permit is lost when its replica could not renew it for a whole life: the process was stopped,
/// or the store was away. Other replicas may use it from then on.
///
/// [`Permit`]: https://docs.rs/tollgate/latest/tollgate/permits/struct.Permit.html
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLoss {
    /// Finishes the work. The work in progress may then exceed the limit by the permits that were
    /// lost. The default.
    #[default]
    Finish,
    /// Ends the work: [`Permit::run`] drops it. The work in progress
    /// never exceeds the limit.
    ///
    /// [`Permit::run`]: https://docs.rs/tollgate/latest/tollgate/permits/struct.Permit.html#method.run
    Cancel,
}

/// The shortest and the longest life, in microseconds.
const SHORTEST_US: u128 = 100_000;
const LONGEST_US: u128 = 86_400_000_000;

/// The default of [`Concurrency::with_life`].
const LIFE: Duration = Duration::from_secs(10);

/// The default of [`Concurrency::max_waiting`].
const MAX_WAITING: usize = 10_000;

const NAME: &str = "concurrency name must be 1 to 64 characters of A-Z a-z 0-9 - _ . /";
const LIMIT: &str = "concurrency limit must be at least 1, got 0";
const LIFE_RANGE: &str = "concurrency life must be 100ms to 1 day";

impl Concurrency {
    /// Creates a limit of `limit` permits for each key.
    ///
    /// # Panics
    ///
    /// Panics when the limit is 0, or the name is not allowed: see [`try_new`](Self::try_new). In a
    /// `const` this fails the build.
    #[must_use]
    pub const fn new(name: &'static str /* or try_new */, limit: u32) -> Self {
        assert!(is_name(name.as_bytes()), "{}", NAME);
        assert!(limit > 0, "{}", LIMIT);
        Self::of(Cow::Borrowed(name), limit)
    }

    /// Creates a limit from values that are known only at run time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the limit is 0, or when the name does
    /// not have 1 to 64 characters of `A-Z a-z 0-9 - _ . /`.
    pub fn try_new(name: impl Into<String>, limit: u32) -> Result<Self, Error> {
        let name = name.into();
        if !is_name(name.as_bytes()) {
            return Err(Error::config(format!("{NAME}, got {name:?}")));
        }
        if limit == 0 {
            return Err(Error::config(LIMIT));
        }
        Ok(Self::of(Cow::Owned(name), limit))
    }

    const fn of(name: Cow<'static, str>, limit: u32) -> Self {
        Self {
            name,
            limit,
            life: LIFE,
            is_exact: false,
            on_loss: OnLoss::Finish,
            longest_wait: Duration::ZERO,
            max_waiting: MAX_WAITING,
        }
    }

    /// Keeps no idle permits in the process: see [above](Self#pooled-and-exact).
    #[must_use]
    pub const fn exact(mut self) -> Self {
        self.is_exact = true;
        self
    }

    /// Sets how long permits live without a renewal. 10 s by default.
    ///
    /// The permits of a process that was killed are free again after this time. A shorter life
    /// costs more renewals. With a store in the process, permits need no renewal and have no life.
    ///
    /// # Panics
    ///
    /// Panics when the life is not between 100 ms and 1 day. See
    /// [`try_with_life`](Self::try_with_life) for values that are known only at run time.
    #[must_use]
    pub const fn with_life(mut self, life: Duration) -> Self {
        assert!(is_life(life), "{}", LIFE_RANGE);
        self.life = life;
        self
    }

    /// Sets how long permits live without a renewal, from a value that is known only at run time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the life is not between 100 ms and 1
    /// day.
    pub fn try_with_life(self, life: Duration) -> Result<Self, Error> {
        if is_life(life) {
            Ok(Self { life, ..self })
        } else {
            Err(Error::config(format!("{LIFE_RANGE}, got {life:?}")))
        }
    }

    /// Sets what becomes of work whose permit is lost. [`OnLoss::Finish`] by default.
    #[must_use]
    pub const fn on_loss(mut self, on_loss: OnLoss) -> Self {
        self.on_loss = on_loss;
        self
    }

    /// Sets how long [`acquire`][`ConcurrencyLimiter::acquire`] waits for a permit.
    /// By default it does not wait.
    ///
    /// [`ConcurrencyLimiter::acquire`]: https://docs.rs/tollgate/latest/tollgate/permits/struct.ConcurrencyLimiter.html#method.acquire
    #[must_use]
    pub const fn wait(mut self, longest: Duration) -> Self {
        self.longest_wait = longest;
        self
    }

    /// Sets how many callers of a limiter may wait at a time, over all keys. 10 000 by default. A
    /// further caller is denied at once.
    #[must_use]
    pub const fn max_waiting(mut self, max_waiting: usize) -> Self {
        self.max_waiting = max_waiting;
        self
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many permits of a key may be held at the same time.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns whether no idle permits are kept in the process.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Returns how long permits live without a renewal.
    #[must_use]
    pub const fn life(&self) -> Duration {
        self.life
    }

    /// Returns what becomes of work whose permit is lost.
    #[must_use]
    pub const fn loss(&self) -> OnLoss {
        self.on_loss
    }
}

const fn is_life(life: Duration) -> bool {
    SHORTEST_US <= life.as_micros() && life.as_micros() <= LONGEST_US
}

impl fmt::Debug for Concurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.is_exact { "exact" } else { "pooled" };
        write!(
            f,
            "{}: {} at a time, {mode}, life {:?}, {:?}",
            self.name, self.limit, self.life, self.on_loss
        )
    }
}

/// Reads the bounds of those who wait for a permit.
pub trait ConcurrencyParts: Sized {
    /// Returns the longest time that a caller waits.
    fn longest_wait(&self) -> Duration;

    /// Returns how many callers may wait in a process at the same time.
    fn most_waiting(&self) -> usize;
}

impl ConcurrencyParts for Concurrency {
    fn longest_wait(&self) -> Duration {
        self.longest_wait
    }

    fn most_waiting(&self) -> usize {
        self.max_waiting
    }
}
