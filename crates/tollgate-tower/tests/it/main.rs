//! Tests of the public interface, one file for each subject.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod allocations;
mod branches;
mod charging;
mod compile;
mod concurrency;
mod connections;
mod customers;
mod denials;
mod enforcement;
mod exemptions;
mod gates;
mod guarded_bodies;
mod handler;
mod header_formats;
mod header_options;
mod hidden;
mod joint;
mod labels;
mod looked_up;
mod meter;
mod networks;
mod observability;
mod options;
mod placement;
mod raw_requests;
mod reservations;
mod responses;
mod service;
mod spans;
mod stacked;
mod state;
mod support;
mod test_util;
mod tiers;
mod types;
mod unit_formats;
mod unread_bodies;
mod unread_streams;
mod waiting;
#[cfg(feature = "ws")]
mod websockets;
