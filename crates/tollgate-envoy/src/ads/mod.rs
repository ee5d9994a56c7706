//! Takes rules from a control plane.

mod backoff;
mod builder;
mod client;
mod options;
mod rules;
mod session;

pub use backoff::Backoff;
pub use builder::AdsBuilder;
pub use client::Ads;
pub use options::AdsTls;
