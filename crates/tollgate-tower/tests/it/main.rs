//! The middleware from outside, one file per subject.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod answers;
mod catalogue;
mod charges;
mod dialects;
mod names;
mod places;
mod repeats;
mod retry_after;
mod seeing;
mod service;
mod support;
mod tiers;
mod waiting;
mod wire;
