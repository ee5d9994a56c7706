//! The builder of a layer: the options of [`charging`] and of [`headers`] in files of their own,
//! all others here.
//! What an option does with a request is not here: `ask.rs` and `reply.rs` read them.

mod charging;
mod headers;

use std::{net::IpAddr, num::NonZeroU32, time::Duration};

use http::request::Parts;
use tollgate_core::{Cost, Costs, Customer, Enforcement, Priority};

use crate::{
    gate::{GateOptions, is_no_layer},
    key::{KeyError, KeyExtractor, Networks},
    labels::MetricLabels,
    rate_limit::{
        limits::Limits,
        options::{CostOf, NetworkOptions, Options, Rank, RequestLimiterSource},
        reservation::{EstimateOf, ReserveOptions},
        source::LimiterSource,
    },
    rejection::Problem,
};

/// Builds a [`RateLimitLayer`](crate::RateLimitLayer) with options.
///
/// [`RateLimitLayer::builder`](crate::RateLimitLayer::builder) creates it. Every option is off by
/// default, or has the default that it describes.
///
/// | to … | options |
/// |---|---|
/// | set what a request spends | [`cost`](Self::cost), [`costs`](Self::costs), [`priority`](Self::priority) |
/// | give each customer the same share | [`customer`](Self::customer), [`weighted_customer`](Self::weighted_customer) |
/// | spend when the response is there | [`charge_on`](Self::charge_on), [`charge_after`](Self::charge_after), [`final_cost`](Self::final_cost), [`final_costs`](Self::final_costs), [`clear_on`](Self::clear_on) |
/// | reserve an estimate, and count what is used | [`reserve`](Self::reserve) |
/// | let requests wait instead of denying them | [`wait`](Self::wait) |
/// | leave requests out | [`exempt`](Self::exempt), [`only`](Self::only), [`networks`](Self::networks) |
/// | introduce a limit step by step | [`shadow`](Self::shadow), [`enforcement`](Self::enforcement) |
/// | choose the header fields | [`header_format`](Self::header_format), [`header_formats`](Self::header_formats), [`quota_unit`](Self::quota_unit), [`quota_units`](Self::quota_units), [`partition_key`](Self::partition_key), [`retry_jitter`](Self::retry_jitter), [`mark_degraded`](Self::mark_degraded), [`expose_headers`](Self::expose_headers) |
/// | build the rejection | [`respond_with`](Self::respond_with), [`responder`](Self::responder) |
/// | tell the service, metrics and the log | [`expose_decisions`](Self::expose_decisions), [`expose_request_limiter`](Self::expose_request_limiter), [`record_spans`](Self::record_spans), [`metric_labels`](Self::metric_labels), [`rpc_name`](Self::rpc_name) |
#[must_use = "a builder does nothing until `build` is called"]
pub struct RateLimitBuilder<K, R = Problem> {
    limiters: LimiterSource,
    options: Options,
    key: K,
    gate: GateOptions<R>,
}

is_no_layer!(RateLimitBuilder<K, R>);

impl<K> RateLimitBuilder<K> {
    pub(crate) fn new(limiters: LimiterSource, key: K) -> Self {
        Self {
            limiters,
            options: Options::default(),
            key,
            gate: GateOptions::new(),
        }
    }
}

impl<K, R> RateLimitBuilder<K, R> {
    /// Sets the cost of a request. The default is one unit.
    ///
    /// A request with a cost of zero passes, and its response carries the rate limit headers. A
    /// cost above the burst of a policy can never fit: the response is 413.
    pub fn cost(mut self, cost: impl Fn(&Parts) -> Cost + Send + Sync + 'static) -> Self {
        self.options.cost = Some(CostOf::One(Box::new(cost)));
        self
    }

    /// Sets the cost of a request for each policy, such as 1 request and 800 tokens. Replaces
    /// [`cost`](Self::cost).
    ///
    /// One step charges all policies, or none: see [`Costs`]. When the costs name an unknown
    /// policy, or leave one of the policies out, the response is 500, and the mistake is logged
    /// once.
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use tollgate::{Cost, Costs, Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::Global};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let service = service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) });
    /// let limiter = Limiter::new(
    ///     MemoryStore::new(),
    ///     [
    ///         Policy::fixed_window("requests", Quota::per_day(100)),
    ///         Policy::fixed_window("bytes", Quota::per_day(1_000_000)),
    ///     ],
    /// );
    /// let layer = RateLimitLayer::builder(limiter.clone(), Global)
    ///     .costs(|parts| {
    ///         let length = parts.headers.get("content-length").and_then(|length| length.to_str().ok()?.parse().ok());
    ///         Costs::new(Cost::ONE).with("bytes", length.unwrap_or(1_000_u64))
    ///     })
    ///     .build();
    ///
    /// let request = Request::post("/").header("content-length", "700").body(()).unwrap();
    /// layer.layer(service).oneshot(request).await.unwrap();
    /// let state = limiter.peek("all").await.unwrap();
    /// assert_eq!((state.state("requests").unwrap().remaining(), state.state("bytes").unwrap().remaining()), (99, 999_300));
    /// # }
    /// ```
    pub fn costs<C: Into<Costs>>(
        mut self,
        costs: impl Fn(&Parts) -> C + Send + Sync + 'static,
    ) -> Self {
        self.options.cost = Some(CostOf::Each(Box::new(move |parts| costs(parts).into())));
        self
    }

    /// Sets the [priority](Priority) of a request. Without this option every request is critical.
    ///
    /// A priority is a share of the burst. A request is denied if more than the share of its
    /// priority would be spent after it. So the rest of the burst is left for requests of a higher
    /// priority. All requests spend from the same counters, over all replicas. `Retry-After` is
    /// exact. `remaining` in the header fields counts the units of the whole burst. The checks of a
    /// [`HandlerLimiter`](crate::HandlerLimiter) and of a
    /// [`RequestLimiter`](crate::RequestLimiter), such as those of messages, have the priority of
    /// their request.
    ///
    /// Choose the priority by what the client cannot choose: the route, or the plan of an
    /// authenticated caller. A [leased](tollgate_core::Policy::leased) policy has no priorities: the
    /// response is 500, and the mistake is logged once. The checks of a `RequestLimiter` with such
    /// a policy fail.
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use tollgate::{Limiter, MemoryStore, Policy, Priority, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::Global};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let service = service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) });
    /// // What the whole fleet admits. A report never takes the units of the last four orders.
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("fleet", Quota::per_hour(10)));
    /// let layer = RateLimitLayer::builder(limiter, Global)
    ///     .priority(|parts| match parts.uri.path() {
    ///         "/orders" => Priority::CRITICAL,
    ///         _ => Priority::BACKGROUND,
    ///     })
    ///     .build();
    ///
    /// let service = layer.layer(service);
    /// let status = async |path: &str| {
    ///     let response = service.clone().oneshot(Request::get(path).body(()).unwrap()).await.unwrap();
    ///     response.status().as_u16()
    /// };
    /// for _ in 0..6 {
    ///     assert_eq!(status("/reports").await, 200);
    /// }
    /// assert_eq!((status("/reports").await, status("/orders").await), (429, 200));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// When the requests have a [customer](Self::customer).
    pub fn priority(self, priority: impl Fn(&Parts) -> Priority + Send + Sync + 'static) -> Self {
        self.ranked(Rank::Priority(Box::new(priority)))
    }

    /// Sets whose request it is, for a limiter with [fair
    /// shares](tollgate_core::LimiterBuilder::fair_shares): each customer gets the same share of it.
    ///
    /// The key of the layer says what customers share. Take a customer that a client cannot make
    /// up. Requests whose customer is not found have the share of one customer together.
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::{Global, Header}};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let service = service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) });
    /// let limiter = Limiter::builder(MemoryStore::new())
    ///     .policies(Policy::token_bucket("service", Quota::per_hour(100)))
    ///     .fair_shares()
    ///     .build();
    /// let layer = RateLimitLayer::builder(limiter, Global).customer(Header::new("x-api-key")).build();
    /// let service = layer.layer(service);
    /// let status = async |customer: &str| {
    ///     let request = Request::builder().header("x-api-key", customer).body(()).unwrap();
    ///     service.clone().oneshot(request).await.unwrap().status().as_u16()
    /// };
    ///
    /// while status("heavy").await == 200 {}
    /// assert_eq!((status("heavy").await, status("light").await), (429, 200));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// When the requests have a [priority](Self::priority). [`build`](Self::build) panics when the
    /// limiter has no fair shares: the option would do nothing. A limiter that is looked up for each
    /// request and has none answers 500, and the mistake is logged once. The limiters of
    /// [handlers](crate::HandlerLimiter) and of [requests](crate::RequestLimiter) take the customer
    /// where they have fair shares.
    pub fn customer(self, customer: impl KeyExtractor) -> Self {
        self.weighted_customer(customer, |_| NonZeroU32::MIN)
    }

    /// Sets whose request it is, as [`customer`](Self::customer) does, and how many shares the
    /// customer gets: by its plan, for example.
    ///
    /// # Panics
    ///
    /// As [`customer`](Self::customer) does.
    pub fn weighted_customer(
        self,
        customer: impl KeyExtractor,
        weight: impl Fn(&Parts) -> NonZeroU32 + Send + Sync + 'static,
    ) -> Self {
        let of = move |parts: &Parts| match customer.extract(parts) {
            Ok(Some(key)) => Customer::new(key).weighing(weight(parts)),
            Ok(None) | Err(_) => Customer::UNKNOWN,
        };
        self.ranked(Rank::Customer(Box::new(of)))
    }

    fn ranked(mut self, rank: Rank) -> Self {
        let set = self.options.rank.as_ref();
        assert!(
            set.is_none_or(|set| set.is_like(&rank)),
            "the requests of a layer have a priority or a customer, got both"
        );
        self.options.rank = Some(rank);
        self
    }

    /// Exempts requests from the limit. An exempt request needs no key and spends nothing.
    ///
    /// Its handler needs no branch of its own: the [`RequestLimiter`](crate::RequestLimiter) of an
    /// exempt request admits everything, and its [`Meter`](crate::Meter) counts nothing. The same
    /// holds for every request without a limit: of an allowed [network](Self::networks), of an
    /// exempt [tier](crate::TieredLimiters::exempt), and without a key under
    /// [`or_exempt`](crate::KeyExtractor::or_exempt).
    pub fn exempt(mut self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.gate = self.gate.exempt(exempt);
        self
    }

    /// Limits only the requests that this function selects. All others are
    /// [exempt](Self::exempt), and so is a selected one that `exempt` exempts.
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::Global};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let service = service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) });
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("writes", Quota::per_day(1)));
    /// let layer = RateLimitLayer::builder(limiter, Global).only(|parts| !parts.method.is_safe()).build();
    ///
    /// let service = layer.layer(service);
    /// let mut statuses = Vec::new();
    /// for method in ["POST", "GET", "GET", "POST"] {
    ///     let request = Request::builder().method(method).body(()).unwrap();
    ///     statuses.push(service.clone().oneshot(request).await.unwrap().status().as_u16());
    /// }
    /// assert_eq!(statuses, [200, 200, 200, 429]);
    /// # }
    /// ```
    pub fn only(mut self, only: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.gate = self.gate.only(only);
        self
    }

    /// Exempts the clients of some networks, and rejects those of others with 403.
    ///
    /// The layer searches the lists before it checks its limiter. `address` finds the address of
    /// the client, as [`PeerIp::address`](crate::key::PeerIp::address) or
    /// [`ForwardedIp::address`](crate::key::ForwardedIp::address) does. A request without an
    /// address is rejected in the same way as a request without a key. [Exempt](Self::exempt)
    /// requests are not looked up. In [shadow mode](Self::shadow) no request is rejected.
    pub fn networks(
        mut self,
        networks: Networks,
        address: impl Fn(&Parts) -> Result<IpAddr, KeyError> + Send + Sync + 'static,
    ) -> Self {
        self.options.networks = Some(Box::new(NetworkOptions {
            networks,
            address: Box::new(address),
        }));
        self
    }

    /// Lets requests wait for quota, for up to `max`, instead of denying them at once. A cancelled
    /// request leaves the queue.
    ///
    /// Requests with the same key pass in the order of their arrival. A request is denied at once
    /// if it would have to wait for longer than `max`, or if [too many requests
    /// wait](tollgate_core::LimiterBuilder::max_waiting).
    /// [`CheckBuilder::wait`](tollgate_core::limiter::CheckBuilder::wait) says which policies keep the
    /// order over all replicas, and how the burst and `max` relate.
    ///
    /// A [leaky bucket](tollgate_core::Algorithm::LeakyBucket) is a queue that all replicas share. The
    /// layer delays the requests that it admits, with and without this option. With it, no request
    /// waits in the bucket for longer than `max`, also none that [reserves](Self::reserve).
    ///
    /// In [shadow mode](Self::shadow) no request waits.
    ///
    /// If another request waits behind a cancelled one in the store, the turn of the cancelled one
    /// passes unused.
    ///
    /// In a test that pauses the time of tokio, build the store with
    /// [`Clock::tokio`](tollgate_core::store::Clock::tokio).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use http::{Request, Response};
    /// # use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::Global};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let service = service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) });
    /// let policy = Policy::token_bucket("all", Quota::per_second(100).with_burst(1));
    /// let limiter = Limiter::new(MemoryStore::new(), policy);
    /// let layer = RateLimitLayer::builder(limiter, Global).wait(Duration::from_secs(20)).build();
    ///
    /// // The second request waits for 10 ms.
    /// for _ in 0..2 {
    ///     let response = layer.layer(service.clone()).oneshot(Request::new(())).await.unwrap();
    ///     assert_eq!(response.status(), 200);
    /// }
    /// # }
    /// ```
    pub fn wait(mut self, max: Duration) -> Self {
        self.options.wait = Some(max);
        self
    }

    /// Inserts the [`Decisions`](crate::Decisions) into the extensions of request and response.
    ///
    /// The default is `false`, because the option allocates memory for each request.
    pub fn expose_decisions(mut self, expose: bool) -> Self {
        self.options.exposes_decisions = expose;
        self
    }

    /// Records each decision in the current `tracing` span, so that traces show it. The default is
    /// `false`.
    ///
    /// The span is that of the request, as the layer around this one makes it. `tracing` records only
    /// fields that the span declares, so declare those that you want, empty:
    ///
    /// | field | value |
    /// |---|---|
    /// | `rate_limit.decision` | `allowed`, `denied`, `shadowed`, or the [reason](crate::rejection::Reason::as_str) of a rejection without a decision |
    /// | `rate_limit.policy` | the policy that denies, or has the least left |
    /// | `rate_limit.rule` | the rule of a file, over `tollgate-rules` |
    /// | `rate_limit.decided_by` | `store`, or `outage` when the [outage rule](tollgate_core::Outage) decided |
    ///
    /// No value is one of a client. Of several layers, the innermost is recorded last.
    ///
    /// ```
    /// use tollgate_core::{Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_tower::{RateLimitLayer, key::Global};
    /// use tracing::field::Empty;
    ///
    /// # let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("all", Quota::per_second(9)));
    /// let layer = RateLimitLayer::builder(limiter, Global).record_spans(true).build();
    /// // For `TraceLayer::make_span_with` of tower-http.
    /// let span = |_: &http::Request<()>| {
    ///     tracing::info_span!("request", "rate_limit.decision" = Empty, "rate_limit.policy" = Empty)
    /// };
    /// # let _ = (layer, span);
    /// ```
    pub fn record_spans(mut self, record: bool) -> Self {
        self.options.records_spans = record;
        self
    }

    /// Turns shadow mode on or off: requests are checked and counted, but never rejected.
    ///
    /// Use it to try out a limit. `true` is an [`enforcement`](Self::enforcement) for 0 % of the
    /// keys, and `false` for 100 %. In shadow mode the client receives no rate limit headers.
    /// Requests that would be denied appear in the log at `debug`, in the metrics with the outcome
    /// `shadowed`, and in the [`Decisions`](crate::Decisions).
    ///
    /// A trial delays nobody. In a [leaky bucket](tollgate_core::Algorithm::LeakyBucket), requests have
    /// their places in the queue and pass at once. With [`wait`](Self::wait), a request that would
    /// wait for quota counts as denied.
    #[doc(alias = "dry run")]
    pub fn shadow(self, is_shadow: bool) -> Self {
        self.enforcement(Enforcement::share(if is_shadow { 0 } else { 100 }))
    }

    /// Enforces the limit for a share of the keys. All other keys are in [shadow
    /// mode](Self::shadow). The share can change while the service runs.
    ///
    /// Each replica enforces the limit for the same keys: see [`Enforcement`]. Some requests have
    /// no key of their own:
    ///
    /// - A request without a key, or without a limiter because a look-up failed, is rejected only
    ///   when the share is 100 %.
    /// - For a [denied network](Self::networks), the key is the address of the client. For an IPv6
    ///   address it is the first 64 bits.
    /// - When [several limiters](crate::LimiterSource::from_decider) decide a request together,
    ///   each has a key. Only those whose key is enforced can deny the request: see
    ///   [`JointCheck::is_enforced`](crate::JointCheck::is_enforced).
    pub fn enforcement(mut self, enforcement: Enforcement) -> Self {
        self.options.enforcement = Some(enforcement);
        self
    }

    /// Sets the metric labels, from a fixed list: see [`MetricLabels`].
    ///
    /// The metrics `tollgate_decisions_total` and `tollgate_rejections_total` carry them.
    pub fn metric_labels(mut self, labels: MetricLabels) -> Self {
        self.limiters.labels = Some(labels);
        self
    }

    /// Finds the service and the method of a remote procedure call, for the log.
    ///
    /// `name` returns both names. Logged denials and rejections carry them as `rpc.service` and
    /// `rpc.method`, each cut to 128 bytes. tollgate-tonic sets this option for gRPC.
    pub fn rpc_name(
        mut self,
        name: impl for<'a> Fn(&'a Parts) -> Option<(&'a str, &'a str)> + Send + Sync + 'static,
    ) -> Self {
        self.options.rpc_name = Some(Box::new(name));
        self
    }

    /// Sets the [responder](crate::Respond) that builds rejections. The default is [`Problem`].
    ///
    /// The responder chooses the status. The middleware adds the headers that the responder has not
    /// set.
    pub fn respond_with<R2>(self, responder: R2) -> RateLimitBuilder<K, R2> {
        let Self {
            limiters,
            options,
            key,
            gate,
        } = self;
        RateLimitBuilder {
            limiters,
            options,
            key,
            gate: gate.respond_with(responder),
        }
    }

    /// Returns the responder.
    #[must_use]
    pub fn responder(&self) -> &R {
        &self.gate.responder
    }

    /// Reserves estimates instead of charging costs.
    pub(crate) fn reserving(mut self, estimate: EstimateOf, options: ReserveOptions) -> Self {
        if self.options.wait.is_some() {
            tracing::warn!(
                option = "wait",
                "the option bounds the wait in leaky buckets alone: with other policies, a reservation does not wait"
            );
        }
        self.options.cost = Some(CostOf::Estimate(estimate, options));
        self.options.final_cost = None;
        self.options.charges_after = false;
        self
    }

    /// Returns what a layer stores.
    ///
    /// # Panics
    ///
    /// Panics when the requests have a customer, and a limiter of the layer has no fair shares.
    pub(crate) fn into_parts(self) -> (Limits, K, R) {
        if let Some(Rank::Customer(_)) = &self.options.rank {
            let own = match self.options.request_limiter {
                Some(RequestLimiterSource::At(own)) => Some(own),
                _ => None,
            };
            assert!(
                self.limiters.limiters.have_fair_shares(own),
                "a layer with customers needs limiters with fair shares: build them with LimiterBuilder::fair_shares, or \
                 leave the customer out"
            );
        }
        let (gate, responder) = self.gate.exchange_responder(());
        (
            Limits::new(self.limiters, self.options, gate),
            self.key,
            responder,
        )
    }
}

tollgate_core::debug_fields! { RateLimitBuilder<K, R>: limiters, .. }
