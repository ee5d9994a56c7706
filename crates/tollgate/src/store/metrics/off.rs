//! Stands in without the feature.
//! With it, `series.rs` has the same names.

use super::Figures;

pub(crate) const IS_ON: bool = false;

pub(crate) fn record(_: &str, _: &Figures) {}
