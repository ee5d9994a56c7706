//! The options of the service.
//! What each of them changes in an answer is in `rate_limit.rs`, `answer.rs` and `headers.rs`.

use std::sync::Arc;

use tollgate_rules::RuleLimiter;

use super::{
    LimitHeaderNames, NearLimit,
    headers::Headers,
    rate_limit::{RateLimitService, ServiceInner},
};
use crate::Metrics;

impl RateLimitService {
    /// Creates a service with the default options.
    #[must_use]
    pub fn new(limiter: RuleLimiter) -> Self {
        Self::builder(limiter).build()
    }

    /// Returns a builder for the options.
    pub fn builder(limiter: RuleLimiter) -> RateLimitServiceBuilder {
        RateLimitServiceBuilder(ServiceInner {
            limiter,
            metrics: Metrics::new(),
            headers: Headers::default(),
            near_limit: None,
            has_dynamic_metadata: false,
            max_descriptors: 1_000,
            max_message_bytes: 1 << 20,
        })
    }
}

/// Sets options and builds a [`RateLimitService`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct RateLimitServiceBuilder(ServiceInner);

impl RateLimitServiceBuilder {
    /// Sets the metrics in which the service counts. By default, it creates its own.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.0.metrics = metrics;
        self
    }

    /// Adds header fields with these names to responses. By default, none are added.
    pub fn limit_headers(mut self, names: LimitHeaderNames) -> Self {
        self.0.headers.names = Some(names);
        self
    }

    /// Sets whether responses get the header fields `RateLimit-Policy` and `RateLimit`, and denials
    /// `Retry-After`. The default is `false`.
    ///
    /// `RateLimit-Policy` and `RateLimit` have the form that `tollgate-tower` writes by default.
    /// Limits in shadow mode and hidden ones are not shown. Leave the fields off where
    /// [`GlobalModes::shadow`](tollgate_rules::GlobalModes::shadow) lets every request pass: they
    /// would show limits that deny nothing.
    pub fn standard_headers(mut self, is_on: bool) -> Self {
        self.0.headers.has_standard = is_on;
        self
    }

    /// Adds a header field to requests that pass near a limit, so that the service behind Envoy
    /// sees it before its clients are denied. By default, none is added.
    ///
    /// The value is the number of units that are left. Limits in shadow mode and hidden
    /// ones are not seen. Envoy adds the field beside one of the client: remove that before the rate
    /// limit filter.
    ///
    /// ```
    /// use tollgate::MemoryStore;
    /// use tollgate_envoy::{
    ///     NearLimit, RateLimitService,
    ///     proto::ratelimit::{RateLimitDescriptor, RateLimitRequest, rate_limit_descriptor::Entry},
    /// };
    /// use tollgate_rules::{Format, RuleLimiter, RuleSet, Rules};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rules = RuleSet::parse(
    ///     "{domain: shop, descriptors: [{key: tenant, rate_limit: {quota: 10/h}}]}",
    ///     Format::Yaml,
    /// )?;
    /// let service = RateLimitService::builder(RuleLimiter::new(Rules::new(rules), MemoryStore::new()))
    ///     .near_limit(NearLimit::new("X-Units-Left")?)
    ///     .build();
    ///
    /// let tenant = Entry { key: "tenant".to_owned(), value: "acme".to_owned() };
    /// let mut request = RateLimitRequest {
    ///     domain: "shop".to_owned(),
    ///     descriptors: vec![RateLimitDescriptor { entries: vec![tenant], ..Default::default() }],
    ///     hits_addend: 8,
    /// };
    /// assert!(service.decide(&request).await?.request_headers_to_add.is_empty());
    /// request.hits_addend = 1;
    /// assert_eq!(service.decide(&request).await?.request_headers_to_add[0].value, "1");
    /// # Ok(()) }
    /// ```
    pub fn near_limit(mut self, near: NearLimit) -> Self {
        self.0.near_limit = Some(near);
        self
    }

    /// Sets whether responses contain the request and the metadata of its rules as
    /// `dynamic_metadata`. The default is `false`.
    pub fn dynamic_metadata(mut self, is_on: bool) -> Self {
        self.0.has_dynamic_metadata = is_on;
        self
    }

    /// Sets the most descriptors of a request. The default is 1000.
    ///
    /// A request with more descriptors, or with more than ten times as many entries in them, is
    /// refused with `INVALID_ARGUMENT`.
    pub fn max_descriptors(mut self, max: usize) -> Self {
        self.0.max_descriptors = max;
        self
    }

    /// Sets the most bytes of a request. The default is 1 MiB.
    ///
    /// A larger request is refused with `OUT_OF_RANGE` before it is read.
    pub fn max_message_bytes(mut self, max: usize) -> Self {
        self.0.max_message_bytes = max;
        self
    }

    /// Builds the service.
    #[must_use]
    pub fn build(self) -> RateLimitService {
        RateLimitService(Arc::new(self.0))
    }
}
