//! The middleware from outside, one file per subject.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod charging;
mod connections;
mod header_formats;
mod labels;
mod observability;
mod placement;
mod raw_requests;
mod repeated_denials;
mod responses;
mod retry_after;
mod service;
mod support;
mod tiers;
mod waiting;
