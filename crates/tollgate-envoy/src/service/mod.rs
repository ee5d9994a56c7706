//! Decides requests of Envoy.
//! The decision is that of tollgate-rules: here it is translated from and into Envoy's protocol.
//! Ports are served in `server/`.

mod answer;
mod builder;
mod descriptors;
mod failure;
mod headers;
mod kuadrant;
mod near_limit;
mod rate_limit;
mod structs;

pub use builder::RateLimitServiceBuilder;
pub use headers::LimitHeaderNames;
pub use near_limit::NearLimit;
pub use rate_limit::RateLimitService;
