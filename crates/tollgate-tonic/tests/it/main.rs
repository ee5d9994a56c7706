//! The adapter from outside, one file per subject.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod generated;
