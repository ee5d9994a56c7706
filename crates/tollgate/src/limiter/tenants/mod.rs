//! The limits of tenants, which are fetched and cached.

mod builder;
mod entry;
mod fetch;
mod limiters;
mod options;
mod source;

pub use builder::TenantLimitersBuilder;
pub use limiters::{LimiterFuture, TenantLimiters};
pub use options::SourceOutage;
