use tollgate::Policy;

/// Describes the limit of one route of a [`Gateway`](super::Gateway).
#[derive(Clone, Debug)]
pub struct RouteLimit {
    pub(super) route: Option<Box<str>>,
    pub(super) policy: Option<Policy>,
    pub(super) replenish_rate: u64,
    pub(super) burst_capacity: u64,
    pub(super) requested_tokens: u64,
    pub(super) filters: u64,
    pub(super) key_resolver: Option<Box<str>>,
    pub(super) empty_key: EmptyKey,
    pub(super) status: u16,
    pub(super) at: crate::error::Position,
}

/// Selects the answer to a request without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EmptyKey {
    /// The request passes without a limit (`deny-empty-key: false`).
    Allow,
    /// The request is answered with this HTTP status (`empty-key-status`). It is 403 by default.
    Deny(u16),
}

impl RouteLimit {
    /// Returns the `id` of the route, and `None` for the limit that default filters give to all other routes.
    #[must_use]
    pub fn route(&self) -> Option<&str> {
        self.route.as_deref()
    }

    /// Returns the policy: a token bucket with the id of the route as its name. `None` when every request is denied
    /// (`burst-capacity: 0`).
    ///
    /// When the rate is above the burst, the policy is an interval bucket, because the gateway fills its bucket once a
    /// second.
    #[must_use]
    pub fn policy(&self) -> Option<&Policy> {
        self.policy.as_ref()
    }

    /// Returns the units that the bucket gains in a second.
    #[must_use]
    pub fn replenish_rate(&self) -> u64 {
        self.replenish_rate
    }

    /// Returns the units that the bucket holds.
    #[must_use]
    pub fn burst_capacity(&self) -> u64 {
        self.burst_capacity
    }

    /// Returns the units that one filter takes for a request.
    #[must_use]
    pub fn requested_tokens(&self) -> u64 {
        self.requested_tokens
    }

    /// Returns the units that a request spends: the requested tokens of all filters of the route.
    ///
    /// A route usually has one filter. With a default filter and one of its own it has two, which share one bucket.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.requested_tokens.saturating_mul(self.filters)
    }

    /// Returns the text of `key-resolver`, such as `#{@userKeyResolver}`.
    #[must_use]
    pub fn key_resolver(&self) -> Option<&str> {
        self.key_resolver.as_deref()
    }

    /// Returns the answer to a request without a key.
    #[must_use]
    pub fn empty_key(&self) -> EmptyKey {
        self.empty_key
    }

    /// Returns the HTTP status of a denial. It is 429 by default.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }
}
