//! One unit of a sliding log as callers see it: its time and its tag.
//! How a log keeps them is in `algorithm/sliding_log.rs`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One spent unit of a [`SlidingLog`](crate::Algorithm::SlidingLog): its time and its tag.
///
/// [`CheckBuilder::tag`] sets the tag and
/// [`Limiter::entries`] lists the entries. The tag says which user spent
/// a unit when many users share one key, such as an address. `Debug` does not show the tag, because
/// it may identify a person.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota, store::Clock};
///
/// let store = MemoryStore::builder().clock(Clock::manual(5_000_000)).build();
/// let limiter = Limiter::new(store, Policy::sliding_log("login", Quota::per_minute(10)));
/// let _ = limiter.check("192.0.2.7").tag("ann").await?;
///
/// let entries = limiter.entries("192.0.2.7", 100).await?;
/// assert_eq!(entries[0].tag(), b"ann");
/// assert_eq!(entries[0].at_us(), 5_000_000);
/// # Ok(()) }
/// ```
///
/// [`CheckBuilder::tag`]: https://docs.rs/tollgate/latest/tollgate/limiter/struct.CheckBuilder.html#method.tag
/// [`Limiter::entries`]: https://docs.rs/tollgate/latest/tollgate/struct.Limiter.html#method.entries
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    at_us: u64,
    tag: Box<[u8]>,
}

/// The greatest length of a tag, in bytes.
pub const TAG_BYTES: usize = 64;

impl Entry {
    /// Creates an entry. Only an implementation of [`Store`] needs this.
    ///
    /// `at_us` is in microseconds since the Unix epoch, on the store's clock.
    ///
    /// [`Store`]: https://docs.rs/tollgate/latest/tollgate/trait.Store.html
    #[must_use]
    pub fn new(at_us: u64, tag: impl Into<Box<[u8]>>) -> Self {
        Self {
            at_us,
            tag: tag.into(),
        }
    }

    /// Returns the time at which the unit was spent, on the store's clock.
    #[must_use]
    pub fn at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.at_us)
    }

    /// Returns the time at which the unit was spent, in microseconds since the Unix epoch.
    #[must_use]
    pub fn at_us(&self) -> u64 {
        self.at_us
    }

    /// Returns the tag, or an empty slice when the request had none.
    #[must_use]
    pub fn tag(&self) -> &[u8] {
        &self.tag
    }
}

// Omits the tag: it may identify a person.
crate::debug_fields! { Entry: at_us, .. }
