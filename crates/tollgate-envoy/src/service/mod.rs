//! Decides requests of Envoy.

mod answer;
mod builder;
mod descriptors;
mod failure;
mod headers;
mod rate_limit;
mod structs;

pub use builder::RateLimitServiceBuilder;
pub use headers::LimitHeaderNames;
pub use rate_limit::RateLimitService;
