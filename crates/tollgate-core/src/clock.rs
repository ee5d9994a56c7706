//! The clocks by which a store or a limiter in this process decides, and those that a test moves.
//! Deadlines of callers follow tokio's time instead: that is in `runtime/`.

use std::{
    fmt,
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::Instant;

pub(crate) use tollgate_model::raw::micros;

/// Provides the time to a store, in microseconds since the Unix epoch.
///
/// A [`MemoryStore`](crate::MemoryStore) uses [`Clock::monotonic`] by default. Tests use
/// [`Clock::manual`] and never have to sleep. Tests that pause the time of tokio use
/// [`Clock::tokio`].
///
/// A `RedisStore` uses the server's clock, which the script reads once per
/// call. Give it a clock of the process only when the server forbids `TIME` in scripts. Replicas
/// then disagree by as much as their clocks differ.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use std::time::Duration;
/// use tollgate::{Limiter, MemoryStore, Policy, Quota, store::Clock};
///
/// let clock = Clock::manual(0);
/// let store = MemoryStore::builder().clock(clock.clone()).build();
/// let limiter = Limiter::new(store, Policy::token_bucket("one", Quota::per_second(1)));
/// assert!(limiter.check("acme").await?.is_allowed());
/// assert!(limiter.check("acme").await?.is_denied());
///
/// clock.advance(Duration::from_secs(1));
/// assert!(limiter.check("acme").await?.is_allowed());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Clock(TimeSource);

#[derive(Clone)]
enum TimeSource {
    Monotonic {
        epoch_us: u64,
        clock: quanta::Clock,
        start: u64,
    },
    Manual(Arc<AtomicU64>),
    Tokio {
        epoch_us: u64,
        start: Instant,
    },
    /// The time since the start of the system, the time in which it slept included.
    SinceBoot,
}

impl Clock {
    /// Creates a clock that starts at the system's time and never goes back.
    ///
    /// Later corrections of the system's time do not change it.
    ///
    /// The clock reads the processor's time counter where that counter is reliable, which takes a
    /// third of the time of asking the system. Otherwise it reads the system's monotonic clock. The
    /// first clock of a process calibrates the counter, which usually takes 1 ms and at most 200
    /// ms.
    #[must_use]
    pub fn monotonic() -> Self {
        let epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let clock = quanta::Clock::new();
        let start = clock.raw();
        Self(TimeSource::Monotonic {
            epoch_us: micros(epoch),
            clock,
            start,
        })
    }

    /// Creates a clock that stands at `now_us` until it is moved, for tests.
    ///
    /// `now_us` is in microseconds since the Unix epoch. Clones share the time.
    #[must_use]
    pub fn manual(now_us: u64) -> Self {
        Self(TimeSource::Manual(Arc::new(AtomicU64::new(now_us))))
    }

    /// Creates a clock that starts at the system's time and follows the time of tokio, for tests.
    ///
    /// Use it in a test that [pauses] the time of tokio: units then accrue while a caller sleeps.
    /// With [`Clock::monotonic`], which follows the real time, a caller that waits would wake up,
    /// find that no unit has accrued, and sleep again. Outside of tests use [`Clock::monotonic`],
    /// which is faster to read.
    ///
    /// [pauses]: https://docs.rs/tokio/latest/tokio/time/fn.pause.html
    #[must_use]
    pub fn tokio() -> Self {
        let epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self(TimeSource::Tokio {
            epoch_us: micros(epoch),
            start: Instant::now(),
        })
    }

    /// Creates a clock that never goes back and goes on while the system sleeps. It counts from any
    /// time.
    ///
    /// Linux stops its usual clock while the system sleeps, and a lease at a server goes on.
    #[must_use]
    pub fn since_boot() -> Self {
        Self(TimeSource::SinceBoot)
    }

    /// Returns the current time, in microseconds since the Unix epoch.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        match &self.0 {
            TimeSource::Monotonic {
                epoch_us,
                clock,
                start,
            } => epoch_us + clock.delta_as_nanos(*start, clock.raw()) / 1_000,
            TimeSource::Manual(now) => now.load(Ordering::Acquire),
            TimeSource::Tokio { epoch_us, start } => epoch_us + micros(start.elapsed()),
            TimeSource::SinceBoot => since_boot_us(),
        }
    }

    /// Moves a [manual](Self::manual) clock forward by `by`.
    ///
    /// # Panics
    ///
    /// Panics when the clock is not manual.
    pub fn advance(&self, by: Duration) {
        self.set(self.now_us() + micros(by));
    }

    /// Sets a [manual](Self::manual) clock to `now_us`, forward or backward.
    ///
    /// `now_us` is in microseconds since the Unix epoch.
    ///
    /// # Panics
    ///
    /// Panics when the clock is not manual.
    pub fn set(&self, now_us: u64) {
        match &self.0 {
            TimeSource::Manual(now) => now.store(now_us, Ordering::Release),
            TimeSource::Monotonic { .. } | TimeSource::Tokio { .. } | TimeSource::SinceBoot => {
                panic!("only a manual clock can be set")
            }
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            TimeSource::Monotonic { .. } => "Clock::monotonic",
            TimeSource::Manual(_) => "Clock::manual",
            TimeSource::Tokio { .. } => "Clock::tokio",
            TimeSource::SinceBoot => "Clock::since_boot",
        })
    }
}

/// Returns the time of the system's clock that goes on while the system sleeps.
#[cfg(unix)]
fn since_boot_us() -> u64 {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    // The monotonic clock of the other systems goes on.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let time = clock_gettime(CLOCK);
    (time.tv_sec as u64)
        .saturating_mul(1_000_000)
        .saturating_add(time.tv_nsec as u64 / 1_000)
}

/// Returns the time since the first call, by a clock that goes on while the system sleeps.
#[cfg(not(unix))]
fn since_boot_us() -> u64 {
    static START: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    micros(START.elapsed())
}
