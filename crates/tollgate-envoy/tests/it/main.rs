//! The service as Envoy, an operator and a control plane use it.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod ads;
mod answers;
mod bad_input;
mod compat;
mod connections;
#[cfg(feature = "console")]
mod console;
mod debug;
mod deployment;
mod ending;
mod fixtures;
mod flood;
mod health;
mod http;
mod kuadrant;
mod metrics;
mod program;
mod regions;
mod support;
mod tls;
mod unread;
