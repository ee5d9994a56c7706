//! The names of the headers.

use http::HeaderName;

pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
pub(super) const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
pub(super) const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
pub(super) const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(super) const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(super) const X_USED: HeaderName = HeaderName::from_static("x-ratelimit-used");
pub(super) const X_RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");
pub(super) const X_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-after");
pub(super) const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");
pub(super) const X_REPLENISH_RATE: HeaderName = HeaderName::from_static("x-ratelimit-replenish-rate");
pub(super) const X_BURST_CAPACITY: HeaderName = HeaderName::from_static("x-ratelimit-burst-capacity");
pub(super) const X_REQUESTED_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-requested-tokens");
pub(crate) const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
pub(super) const DEGRADED: &str = "tollgate-degraded";
