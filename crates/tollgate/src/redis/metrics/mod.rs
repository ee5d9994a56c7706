//! The series of leased units, behind the feature `metrics`.
//! Gauges that every store has are in `store/metrics/`.

#[cfg_attr(not(feature = "metrics"), path = "off.rs")]
mod series;

pub(super) use series::record;
