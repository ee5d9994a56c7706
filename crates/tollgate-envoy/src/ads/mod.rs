//! Takes rules from a control plane.
//! Rules in files are loaded by tollgate-rules, and which of both a program uses is decided in
//! `command/`.

mod backoff;
mod client;
mod rules;
mod session;
mod tls;

pub use backoff::Backoff;
pub use client::Ads;
pub use tls::AdsTls;
