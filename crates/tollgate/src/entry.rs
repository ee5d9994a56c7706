use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// One unit in a [sliding log](crate::Algorithm::SlidingLog): when it was spent, and the tag that
/// was given with it. See [`Limiter::entries`](crate::Limiter::entries).
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    at_us: u64,
    tag: Box<[u8]>,
}

/// The most bytes of a tag.
pub(crate) const TAG_BYTES: usize = 64;

impl Entry {
    /// An entry, as a [`Store`](crate::Store) hands it out: microseconds since the Unix epoch on
    /// the store's clock, and the tag.
    #[must_use]
    pub fn new(at_us: u64, tag: impl Into<Box<[u8]>>) -> Self {
        Self { at_us, tag: tag.into() }
    }

    /// When the unit was spent, on the store's clock.
    #[must_use]
    pub fn at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.at_us)
    }

    /// The same in microseconds since the Unix epoch.
    #[must_use]
    pub fn at_us(&self) -> u64 {
        self.at_us
    }

    /// The tag; empty when none was given.
    #[must_use]
    pub fn tag(&self) -> &[u8] {
        &self.tag
    }
}

impl fmt::Debug for Entry {
    /// The tag is not shown: it tells who it was.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("at_us", &self.at_us).finish_non_exhaustive()
    }
}
