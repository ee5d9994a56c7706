//! Stands in without the feature.
//! With it, `series.rs` records.

use crate::redis::backend::Backend;

pub(in crate::redis) fn record(_: &Backend) {}
