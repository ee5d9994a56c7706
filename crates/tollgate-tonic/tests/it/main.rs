//! Tests of the crate through its public interface, one file per subject.
#![allow(clippy::unwrap_used, reason = "these are tests")]
#![cfg(feature = "async-interceptor")]

mod call_kinds;
mod catalogue;
mod charged_streams;
mod debug;
mod generated;
mod grpc_web;
mod interceptors;
mod late_messages;
mod looked_up;
mod message_charges;
mod names;
mod observability;
mod placement;
mod reservations;
mod support;
#[cfg(feature = "client-certificate")]
mod tls;
mod wire;
