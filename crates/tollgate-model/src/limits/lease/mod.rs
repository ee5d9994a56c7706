//! The terms on which a policy is leased, as users set them, and the conditions that they must
//! meet.
//! What a replica does on these terms is in `tollgate-remote/src/lease/`.

use std::time::Duration;

use crate::{Algorithm, Error, Quota, policy::Terms};

/// The terms on which replicas take units of a policy in advance: see [`Policy::leased`].
///
/// A replica of the service that asks for a key often takes some of its units in advance, and
/// spends them in process. Most of its checks then need no trip to the store. Units that a replica
/// has been granted and has not reported as spent are *outstanding*. They count as used, so the
/// bound of the algorithm holds unchanged.
///
/// Time is divided into *generations*. Outstanding units lapse at the end of the generation after
/// the one in which they were granted.
///
/// [`Policy::leased`]: crate::Policy::leased
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Lease, Policy, Quota};
///
/// const TERMS: Lease = Lease::new().generation(Duration::from_secs(2)).share(16);
/// const HOT: Policy = Policy::token_bucket("hot", Quota::per_second(10_000)).leased(TERMS);
/// assert_eq!(HOT.lease(), Some(TERMS));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    generation: Duration,
    share: u8,
}

/// The shortest and the longest generation, in milliseconds.
const GENERATION_MS: [u128; 2] = [100, 60_000];

/// The least number of units that all replicas together may hold. With fewer, hardly a trip is
/// saved.
const LEAST_UNITS: u64 = 8;

/// The condition that the terms of a policy do not meet.
#[derive(Clone, Copy)]
pub(crate) struct InvalidLease {
    pub(crate) text: &'static str,
    of: LeaseField,
}

/// Selects the value that an error shows.
#[derive(Clone, Copy)]
enum LeaseField {
    Generation,
    Share,
    Algorithm,
    Burst,
}

impl Lease {
    /// Creates the default terms: generations of 5 s, and at most one eighth of the burst
    /// outstanding.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            generation: Duration::from_secs(5),
            share: 8,
        }
    }

    /// Sets the length of a generation, 100 ms to 60 s in whole milliseconds. 5 s by default.
    ///
    /// Granted units lapse after one to two generations. A longer generation saves more trips for
    /// keys of a low rate. But after a crash of a replica, the units that it held count as used for
    /// longer.
    #[must_use]
    pub const fn generation(mut self, generation: Duration) -> Self {
        self.generation = generation;
        self
    }

    /// Limits the outstanding units of a key to one `share`-th of the burst: `share(8)`, the
    /// default, is one eighth.
    ///
    /// A replica that crashes withholds at most this share of the burst, until the units lapse.
    /// When the server's clock steps forward, or a fail-over loses the state, at most this share is
    /// admitted in addition.
    #[must_use]
    pub const fn share(mut self, share: u8) -> Self {
        self.share = share;
        self
    }

    /// Returns the length of a generation.
    #[must_use]
    pub const fn length(self) -> Duration {
        self.generation
    }

    /// Returns how many units of a policy with this quota may be outstanding at the same time.
    #[must_use]
    pub const fn most(self, quota: &Quota) -> u64 {
        quota.burst() / self.share as u64
    }

    /// Returns the part of the burst that may be outstanding: 8 for one eighth.
    pub(crate) const fn divisor(self) -> u8 {
        self.share
    }

    /// Tests whether a policy may have these terms.
    pub(crate) const fn checked(
        self,
        algorithm: Algorithm,
        quota: &Quota,
    ) -> Result<Terms, InvalidLease> {
        let ms = self.generation.as_millis();
        let is_whole = self.generation.subsec_nanos().is_multiple_of(1_000_000);
        let (text, of) = if ms < GENERATION_MS[0] || ms > GENERATION_MS[1] || !is_whole {
            (
                "lease generation must be 100 ms to 60 s, in whole milliseconds",
                LeaseField::Generation,
            )
        } else if self.share == 0 {
            (
                "lease share must be at least 1: one share-th of the burst may be outstanding",
                LeaseField::Share,
            )
        } else if algorithm.is_queue() {
            (
                "a leaky bucket cannot be leased: a leased unit has no place in its queue",
                LeaseField::Algorithm,
            )
        } else if !algorithm.is_leasable() {
            (
                "a lockout cannot be leased: it has no units to give away",
                LeaseField::Algorithm,
            )
        } else if self.most(quota) < LEAST_UNITS && !quota.is_blocked() {
            (
                "lease share of the burst must be at least 8 units",
                LeaseField::Burst,
            )
        } else {
            return Ok(Terms::new(ms as u16, self.share));
        };
        Err(InvalidLease { text, of })
    }
}

impl Default for Lease {
    /// Returns [`Lease::new`].
    fn default() -> Self {
        Self::new()
    }
}

impl InvalidLease {
    /// Returns the error, which names the refused value.
    #[cold]
    pub(crate) fn error(self, lease: Lease, name: &str, quota: &Quota) -> Error {
        let text = self.text;
        Error::config(match self.of {
            LeaseField::Generation => {
                format!("{text}, got {:?} in policy {name}", lease.generation)
            }
            LeaseField::Share => format!("{text}, got 0 in policy {name}"),
            LeaseField::Algorithm => format!("{text}, in policy {name}"),
            LeaseField::Burst => format!(
                "{text}, got {} (1/{} of {quota:?}) in policy {name}",
                lease.most(quota),
                lease.share
            ),
        })
    }
}

/// Reads the terms of a lease.
pub trait LeaseParts: Sized {
    /// Returns the length of a generation in microseconds.
    fn generation_us(self) -> u64;
}

impl LeaseParts for Lease {
    #[inline]
    fn generation_us(self) -> u64 {
        self.generation.as_micros() as u64
    }
}

#[cfg(test)]
mod tests;
