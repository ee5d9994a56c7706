//! Takes rules from a control plane.

mod backoff;
mod builder;
mod client;
mod rules;
mod session;

pub use backoff::Backoff;
pub use builder::{AdsBuilder, AdsTls};
pub use client::Ads;
