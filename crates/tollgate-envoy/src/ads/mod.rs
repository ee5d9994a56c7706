//! Takes rules from a control plane.

mod backoff;
mod client;
mod rules;
mod session;
mod tls;

pub use backoff::Backoff;
pub use client::Ads;
pub use tls::AdsTls;
