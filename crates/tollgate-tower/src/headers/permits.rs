//! The headers of a limit of concurrent requests.

use http::HeaderValue;

use super::{
    quota_unit::QuotaUnit,
    text::Text,
    update::{HeaderUpdate, Headers},
};

/// Writes the headers of a limit of concurrent requests, in the default format.
///
/// `"streams";q=2;qu="concurrent-requests"` and `"streams";r=1`. Such a limit has no window, and nobody knows when a permit
/// comes back, so the parameters `w` and `t` are omitted.
pub(crate) struct PermitHeaders {
    policies: HeaderValue,
    /// The beginning of the state.
    prefix: Box<[u8]>,
}

impl PermitHeaders {
    pub(crate) fn new(name: &str, limit: u32) -> Self {
        let mut policies = Text::new();
        policies.policy_08(name, u64::from(limit), QuotaUnit::CONCURRENT_REQUESTS, None, None);
        let prefix = [b"\"", name.as_bytes(), b"\";r="].concat().into();
        Self { policies: policies.finish(), prefix }
    }

    /// Writes the headers of a response, with the number of permits that are left.
    pub(crate) fn update(&self, remaining: u64) -> HeaderUpdate {
        let mut states = Text::new();
        states.state_08(&self.prefix, remaining, 0);
        let headers = Headers::Lists { policies: self.policies.clone(), states: states.finish() };
        HeaderUpdate { headers, ..HeaderUpdate::EMPTY }
    }
}
