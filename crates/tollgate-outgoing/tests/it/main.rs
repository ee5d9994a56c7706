//! Tests of the public interface, one file for each subject.
#![allow(clippy::unwrap_used, reason = "these are tests")]

#[cfg(feature = "metrics")]
mod metrics;
mod outgoing;
mod retry_after;
mod support;
#[cfg(feature = "reqwest")]
mod types;
