//! The gauges of a store, behind the feature `metrics`.
//! Counts of decisions are those of the limiter; leased units have series in `redis/metrics/`.

#[cfg_attr(not(feature = "metrics"), path = "off.rs")]
mod series;

use std::{num::NonZeroU32, time::Duration};

pub(crate) use series::{IS_ON, record};

/// Names what the gauges of a store show.
#[cfg_attr(
    not(feature = "metrics"),
    allow(dead_code, reason = "nothing shows it")
)]
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) servers: usize,
    pub(crate) connected: usize,
    pub(crate) breakers_open: usize,
    pub(crate) queued: usize,
    pub(crate) round_trip: Option<Duration>,
    pub(crate) replicas: Option<NonZeroU32>,
}
