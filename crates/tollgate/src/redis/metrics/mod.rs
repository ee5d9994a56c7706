//! The series of leased units, behind the feature `metrics`.

#[cfg_attr(not(feature = "metrics"), path = "off.rs")]
mod series;

pub(super) use series::record;
