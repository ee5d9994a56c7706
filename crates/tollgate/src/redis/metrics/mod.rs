//! The metrics of a store, behind the feature of that name.

#[cfg_attr(not(feature = "metrics"), path = "off.rs")]
mod series;

pub(super) use series::{IS_ON, record};
