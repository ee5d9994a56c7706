//! The middleware from outside, one file per subject.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod answers;
mod places;
mod service;
mod support;
