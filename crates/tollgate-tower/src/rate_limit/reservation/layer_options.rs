//! The options that a layer has with and without a reservation. Their order in the builder does not matter.

use std::{borrow::Cow, time::Duration};

use http::request::Parts;
use tollgate::KeySecret;

use super::ReservationBuilder;
use crate::{
    headers::{HeaderFormat, QuotaUnit},
    labels::MetricLabels,
    rate_limit::builder::RateLimitBuilder,
};

impl<K, R> ReservationBuilder<K, R> {
    /// Exempts requests from the limit: see [`RateLimitBuilder::exempt`].
    pub fn exempt(self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|builder| builder.exempt(exempt))
    }

    /// Inserts the [`Decisions`](crate::Decisions) into the extensions: see [`RateLimitBuilder::expose_decisions`].
    pub fn expose_decisions(self, expose: bool) -> Self {
        self.with(|builder| builder.expose_decisions(expose))
    }

    /// Turns shadow mode on or off: see [`RateLimitBuilder::shadow`].
    pub fn shadow(self, is_shadow: bool) -> Self {
        self.with(|builder| builder.shadow(is_shadow))
    }

    /// Sets the metric labels: see [`RateLimitBuilder::metric_labels`].
    pub fn metric_labels(self, labels: MetricLabels) -> Self {
        self.with(|builder| builder.metric_labels(labels))
    }

    /// Names the service and the method of a call for the log: see [`RateLimitBuilder::rpc_name`].
    pub fn rpc_name(
        self,
        name: impl for<'a> Fn(&'a Parts) -> Option<(&'a str, &'a str)> + Send + Sync + 'static,
    ) -> Self {
        self.with(|builder| builder.rpc_name(name))
    }

    /// Sets the responder that builds rejections: see [`RateLimitBuilder::respond_with`].
    pub fn respond_with<R2>(self, responder: R2) -> ReservationBuilder<K, R2> {
        self.with(|builder| builder.respond_with(responder))
    }

    /// Selects the rate limit header format: see [`RateLimitBuilder::header_format`].
    pub fn header_format(self, format: HeaderFormat) -> Self {
        self.with(|builder| builder.header_format(format))
    }

    /// Selects several rate limit header formats: see [`RateLimitBuilder::header_formats`].
    ///
    /// # Panics
    ///
    /// Panics if two formats have a rate limit header in common, such as `Ietf08` and `Ietf07`.
    pub fn header_formats(self, formats: impl IntoIterator<Item = HeaderFormat>) -> Self {
        self.with(|builder| builder.header_formats(formats))
    }

    /// Allows scripts in browsers to read the rate limit headers: see [`RateLimitBuilder::expose_headers`].
    pub fn expose_headers(self, expose: bool) -> Self {
        self.with(|builder| builder.expose_headers(expose))
    }

    /// Names the unit that the policies count: see [`RateLimitBuilder::quota_unit`].
    pub fn quota_unit(self, unit: QuotaUnit) -> Self {
        self.with(|builder| builder.quota_unit(unit))
    }

    /// Names the unit that each of these policies counts: see [`RateLimitBuilder::quota_units`].
    pub fn quota_units<N>(self, units: impl IntoIterator<Item = (N, QuotaUnit)>) -> Self
    where
        N: Into<Cow<'static, str>>,
    {
        self.with(|builder| builder.quota_units(units))
    }

    /// Adds a digest of the key to the rate limit headers: see [`RateLimitBuilder::partition_key`].
    pub fn partition_key(self, secret: KeySecret) -> Self {
        self.with(|builder| builder.partition_key(secret))
    }

    /// Adds a random time to the time at which clients come back: see [`RateLimitBuilder::retry_jitter`].
    pub fn retry_jitter(self, max: Duration) -> Self {
        self.with(|builder| builder.retry_jitter(max))
    }

    /// Marks responses that were decided without the store: see [`RateLimitBuilder::mark_degraded`].
    pub fn mark_degraded(self, mark: bool) -> Self {
        self.with(|builder| builder.mark_degraded(mark))
    }

    /// Changes the options of the layer.
    fn with<R2>(
        self,
        change: impl FnOnce(RateLimitBuilder<K, R>) -> RateLimitBuilder<K, R2>,
    ) -> ReservationBuilder<K, R2> {
        ReservationBuilder { builder: change(self.builder), estimate: self.estimate, options: self.options }
    }
}
