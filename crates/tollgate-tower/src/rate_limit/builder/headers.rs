//! The options for the headers of responses.
//! The formats are in `headers/` beside the root.

use std::{borrow::Cow, sync::Arc, time::Duration};

use tollgate_core::KeySecret;

use super::RateLimitBuilder;
use crate::headers::{HeaderFormat, HeaderFormats, HeaderOptions, QuotaUnit};

impl<K, R> RateLimitBuilder<K, R> {
    /// Selects the format of the rate limit headers. The default is [`HeaderFormat::Ietf08`].
    /// [`HeaderFormat::None`] hides them from attackers. [`HeaderFormat`] has an example.
    pub fn header_format(mut self, format: HeaderFormat) -> Self {
        self.headers().formats = HeaderFormats::one(format);
        self
    }

    /// Selects several rate limit header formats. Each response carries the headers of all of them.
    ///
    /// # Panics
    ///
    /// Panics if two formats have a rate limit header in common, such as `Ietf08` and `Ietf07`.
    pub fn header_formats(mut self, formats: impl IntoIterator<Item = HeaderFormat>) -> Self {
        self.headers().formats = HeaderFormats::new(formats);
        self
    }

    /// Allows scripts in browsers to read the rate limit headers. The default is `false`.
    ///
    /// Adds the names of the headers to `Access-Control-Expose-Headers`. With
    /// [`HeaderFormat::None`] that is `Retry-After`, in responses that have it. A CORS layer around
    /// this layer may replace that header. In that case, pass the [names](HeaderFormat::names) to
    /// the CORS layer instead.
    pub fn expose_headers(mut self, expose: bool) -> Self {
        self.headers().exposes_headers = expose;
        self
    }

    /// Names the unit that the policies count. The default is [`QuotaUnit::REQUESTS`].
    ///
    /// The parameter `qu` of `RateLimit-Policy` shows the unit, unless it is the default. The
    /// formats [`OpenAi`](HeaderFormat::OpenAi) and [`Anthropic`](HeaderFormat::Anthropic) have
    /// headers for each unit. All other formats show no units. If the policies count different
    /// units, use [`quota_units`](Self::quota_units).
    pub fn quota_unit(mut self, unit: QuotaUnit) -> Self {
        self.headers().units.others = Some(unit);
        self
    }

    /// Names the units of some policies, by the name of the policy.
    /// [`quota_unit`](Self::quota_unit) applies to all others.
    ///
    /// With its first request, the layer logs at `warn` a name that none of its policies has, and
    /// no policy of its [handler limiters](crate::HandlerLimiter). Limits that are [looked
    /// up](crate::LimiterSource) may have any name.
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use tollgate_tower::{HeaderFormat, QuotaUnit, RateLimitLayer, key::Global};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let service = service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) });
    /// let policies = [
    ///     Policy::fixed_window("requests", Quota::per_minute(60)),
    ///     Policy::fixed_window("input", Quota::per_minute(80_000)),
    /// ];
    /// let limiter = Limiter::new(MemoryStore::new(), policies);
    /// let layer = RateLimitLayer::builder(limiter, Global)
    ///     .header_formats([HeaderFormat::Ietf08, HeaderFormat::Anthropic])
    ///     .quota_units([("input", QuotaUnit::INPUT_TOKENS)])
    ///     .build();
    ///
    /// let response = layer.layer(service).oneshot(Request::new(())).await.unwrap();
    /// let policy = r#""requests";q=60;w=60, "input";q=80000;qu="input-tokens";w=60"#;
    /// assert_eq!(response.headers()["ratelimit-policy"], policy);
    /// assert_eq!(response.headers()["anthropic-ratelimit-requests-limit"], "60");
    /// assert_eq!(response.headers()["anthropic-ratelimit-input-tokens-limit"], "80000");
    /// # }
    /// ```
    pub fn quota_units<N>(mut self, units: impl IntoIterator<Item = (N, QuotaUnit)>) -> Self
    where
        N: Into<Cow<'static, str>>,
    {
        self.headers().units.named.extend(
            units
                .into_iter()
                .map(|(policy, unit)| (policy.into(), unit)),
        );
        self
    }

    /// Shows clients which requests share a quota, in the parameter `pk` of `RateLimit-Policy` and
    /// `RateLimit`.
    ///
    /// Requests with the same partition key share a quota. The parameter is the first 9 bytes of
    /// the [digest](tollgate_core::Key::digest) of the key with `secret`, so it does not show the key.
    /// Use the same secret in all replicas. Other formats than [`Ietf08`](HeaderFormat::Ietf08)
    /// have no partition keys.
    ///
    /// The option takes one HMAC and one allocation for each response.
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use tollgate::{KeySecret, Limiter, MemoryStore, Policy, Quota};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// use tollgate_tower::{RateLimitLayer, key::Header};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let service = service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) });
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("day", Quota::per_day(100)));
    /// let layer = RateLimitLayer::builder(limiter, Header::new("x-api-key"))
    ///     .partition_key(KeySecret::new("32 random bytes, from the configuration"))
    ///     .build();
    ///
    /// let request = Request::builder().header("x-api-key", "acme").body(()).unwrap();
    /// let response = layer.layer(service).oneshot(request).await.unwrap();
    /// assert!(response.headers()["ratelimit"].to_str().unwrap().contains(";pk=:"));
    /// # }
    /// ```
    pub fn partition_key(mut self, secret: KeySecret) -> Self {
        self.options.partition_secret = Some(secret);
        self
    }

    /// Adds a random time of up to `max` to the reported wait, so that clients do not come back
    /// together. The default is 0.
    ///
    /// A window ends at the same instant for many clients. Without jitter, they all come back then.
    /// The reported wait is never shorter than the real one. The random time is drawn once for each
    /// response. It is the same in `Retry-After`, in the problem document, and in the time of each
    /// spent policy in the rate limit headers. The headers of policies with remaining units do not
    /// change.
    pub fn retry_jitter(mut self, max: Duration) -> Self {
        self.gate = self.gate.retry_jitter(max);
        self
    }

    /// Marks responses that were decided without the store. The default is `false`.
    ///
    /// The header `Tollgate-Degraded` then has the reason: one of the words of
    /// [`ErrorKind::as_str`](tollgate_core::ErrorKind::as_str), such as `timeout` or `breaker`.
    /// Responses to admitted and denied requests carry it, and so does the 503 of a
    /// [closed](tollgate_core::Outage::Closed) limiter. Clients and tests then see that the numbers are
    /// those of one replica. The header shows the state of your servers to strangers, so turn it on
    /// for internal services only. With [`expose_headers`](Self::expose_headers), scripts in
    /// browsers may read it.
    pub fn mark_degraded(mut self, mark: bool) -> Self {
        self.headers().marks_degraded = mark;
        self
    }

    /// Borrows the options for changes. They are not shared before the layer is built.
    fn headers(&mut self) -> &mut HeaderOptions {
        Arc::make_mut(&mut self.options.headers)
    }
}
