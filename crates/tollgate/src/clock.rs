use std::{
    fmt,
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Where a store reads the time, in microseconds since the Unix epoch.
///
/// A [`MemoryStore`](crate::MemoryStore) uses [`Clock::monotonic`] unless told otherwise. A
/// [`RedisStore`](crate::RedisStore) uses the server's clock, read once inside the script; give it
/// a clock of the process only where the server refuses `TIME`, and know that replicas whose
/// clocks differ by some time then disagree by that time.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    Monotonic { epoch_us: u64, clock: quanta::Clock, start: u64 },
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The system's time when the clock is made, and from then on a monotonic clock: it never
    /// goes back, and does not follow corrections of the system's time.
    ///
    /// Where the processor counts time evenly its counter is read, which takes a third of the time
    /// that asking the system does; elsewhere it is the system's monotonic clock. The first clock
    /// of a process compares the two, for a millisecond most often and 200 ms at the most.
    #[must_use]
    pub fn monotonic() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = quanta::Clock::new();
        let start = clock.raw();
        Self(Source::Monotonic { epoch_us: micros(epoch), clock, start })
    }

    /// A clock that stands still until it is moved. Clones move together.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Clock;
    ///
    /// let clock = Clock::manual(1_000_000);
    /// clock.advance(Duration::from_millis(5));
    /// assert_eq!(clock.now_us(), 1_005_000);
    /// ```
    #[must_use]
    pub fn manual(now_us: u64) -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(now_us))))
    }

    /// The time now, in microseconds since the Unix epoch.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        match &self.0 {
            Source::Monotonic { epoch_us, clock, start } => {
                epoch_us + clock.delta_as_nanos(*start, clock.raw()) / 1_000
            }
            Source::Manual(now) => now.load(Ordering::Acquire),
        }
    }

    /// Moves a [manual](Self::manual) clock forward.
    ///
    /// # Panics
    ///
    /// When the clock is not manual.
    pub fn advance(&self, by: Duration) {
        self.set(self.now_us() + micros(by));
    }

    /// Sets a [manual](Self::manual) clock, also backward.
    ///
    /// # Panics
    ///
    /// When the clock is not manual.
    pub fn set(&self, now_us: u64) {
        match &self.0 {
            Source::Manual(now) => now.store(now_us, Ordering::Release),
            Source::Monotonic { .. } => panic!("only a manual clock can be set"),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Monotonic { .. } => "Clock::monotonic",
            Source::Manual(_) => "Clock::manual",
        })
    }
}

/// Whole microseconds of a duration; more than 584 000 years is capped.
pub(crate) fn micros(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(duration.subsec_micros()))
}
