//! Stands in without the feature.

use crate::{redis::backend::Backend, store::presence::ReplicaCounter};

pub(in crate::redis) const IS_ON: bool = false;

pub(in crate::redis) fn record(_: &Backend, _: &ReplicaCounter) {}
