//! Makes descriptors from the heads of requests, in the manner of Envoy's actions.

mod action;
mod client_ip;
mod descriptors;
mod header_match;
mod header_value;

pub use action::Actions;
pub use client_ip::ClientIp;
pub use descriptors::Descriptors;
pub use header_match::HeaderMatch;
