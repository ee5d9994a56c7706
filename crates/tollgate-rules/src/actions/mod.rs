//! Makes descriptors from the heads of requests, in the manner of Envoy's actions.

mod action;
mod descriptors;

pub use action::{Actions, ClientIp, HeaderMatch};
pub use descriptors::Descriptors;
