//! The adapter from outside, one file per subject.
#![allow(clippy::unwrap_used, reason = "these are tests")]
#![cfg(feature = "async-interceptor")]

mod catalogue;
mod charging;
mod examples;
mod generated;
mod interceptors;
mod messages;
mod names;
mod places;
mod python;
mod streams;
mod support;
mod tls;
mod web;
mod wire;
