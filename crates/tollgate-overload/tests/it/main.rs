//! Tests of the public interface, one file for each subject.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod allocations;
mod layer;
mod limits;
#[cfg(feature = "metrics")]
mod metrics;
mod simulated;
mod simulation;
mod support;
