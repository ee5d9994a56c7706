//! The reasons why units were not counted.

use std::{fmt, time::Duration};

use crate::{Denied, Error};

/// Reports why [`Growth::take`](super::Growth::take) has counted nothing.
///
/// The units that are [left](super::Growth::left) may still be counted, unless the reservation is
/// settled.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum GrowthError {
    /// A policy denies the next slice. Nothing was charged for it.
    Denied(Denied),
    /// Nobody decided over the next slice: the store failed, and the limiter is
    /// [closed](crate::Outage::Closed) in an outage.
    Failed(Error),
    /// The reservation was settled: committed, cancelled or dropped. A denied one is settled from the
    /// start.
    Settled,
}

impl GrowthError {
    /// Returns the denial of the next slice.
    #[must_use]
    pub fn denied(&self) -> Option<&Denied> {
        match self {
            Self::Denied(denied) => Some(denied),
            _ => None,
        }
    }

    /// Returns how long until the next slice would be granted, if no other request spends from this
    /// key. `None` when nobody knows, and when a policy blocks.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.denied()
            .and_then(|denied| denied.decision().retry_after())
    }
}

impl fmt::Display for GrowthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(denied) => denied.fmt(f),
            Self::Failed(error) => error.fmt(f),
            Self::Settled => f.write_str("the reservation is settled"),
        }
    }
}

impl std::error::Error for GrowthError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Denied(denied) => Some(denied),
            Self::Failed(error) => Some(error),
            Self::Settled => None,
        }
    }
}
