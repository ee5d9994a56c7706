use std::{fmt, sync::Arc, time::Duration};

use http::{StatusCode, request::Parts};
use tollgate::{Cost, Limiter};

use crate::{
    HeaderFormat, LimiterSource, MetricLabels, Outcome, RateLimitLayer,
    rejection::Problem,
    shared::{Accounts, Options, Shared},
};

/// Builds a [`RateLimitLayer`].
#[must_use = "a builder does nothing until it is built"]
pub struct RateLimitBuilder<K, R = Problem> {
    limits: LimiterSource,
    options: Options,
    key: K,
    responder: R,
}

impl<K> RateLimitBuilder<K> {
    pub(crate) fn new(limits: LimiterSource, key: K) -> Self {
        Self { limits, options: Options::default(), key, responder: Problem::new() }
    }
}

impl<K, R> RateLimitBuilder<K, R> {
    /// What a request costs; one unit by default. A cost of zero passes and is told what is left;
    /// a cost above the burst of a policy is answered with 413.
    ///
    /// ```
    /// # use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::Global};
    /// # let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("rows", Quota::per_second(100)));
    /// let layer = RateLimitLayer::builder(limiter, Global)
    ///     .cost(|parts| if parts.method.is_safe() { Cost::ONE } else { Cost::new(5) })
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn cost(mut self, cost: impl Fn(&Parts) -> Cost + Send + Sync + 'static) -> Self {
        self.options.cost = Some(Box::new(cost));
        self
    }

    /// Which requests pass without a look at their key or quota.
    ///
    /// ```
    /// # use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::Global};
    /// # let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("all", Quota::per_second(100)));
    /// let layer = RateLimitLayer::builder(limiter, Global)
    ///     .exempt(|parts| parts.uri.path() == "/healthz")
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn exempt(mut self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.options.exempt = Some(Box::new(exempt));
        self
    }

    /// Which answers are charged: what others were charged is given back.
    ///
    /// All requests are charged before the service is called, so that a limit holds however many
    /// are on their way. A service that fails or panics counts as 500. A request that is given up
    /// before the answer stays charged: who hangs up early would have no limit otherwise. With
    /// [`settle`](Self::settle), of which this is the simple form, that is your choice.
    ///
    /// ```
    /// # use http::StatusCode;
    /// # use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::Global};
    /// # let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("login", Quota::per_minute(5)));
    /// // A log-in that succeeds costs nothing, one that fails does.
    /// let layer = RateLimitLayer::builder(limiter.clone(), Global)
    ///     .charge_on(|status| status == StatusCode::UNAUTHORIZED)
    ///     .build();
    ///
    /// // Our own failures are not the caller's.
    /// let layer = RateLimitLayer::builder(limiter, Global)
    ///     .charge_on(|status| !status.is_server_error())
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn charge_on(self, is_charged: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.settle(move |outcome, charged| match outcome.status() {
            Some(status) if !is_charged(status) => Cost::ZERO,
            _ => charged,
        })
    }

    /// What a request turned out to cost, once the service has answered or will not: the rest of
    /// what it was charged is given back. Charge with [`cost`](Self::cost) the most that it can
    /// cost; more than that is not taken afterwards.
    ///
    /// Nobody waits for a refund: it goes to the store while the answer goes to the client, whose
    /// `RateLimit` fields do not know of it yet.
    ///
    /// ```
    /// # use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::Global};
    /// # let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("tokens", Quota::per_minute(100_000)));
    /// // Up to 4000 tokens; the service says in an extension of its response how many it were.
    /// let layer = RateLimitLayer::builder(limiter, Global)
    ///     .cost(|_| Cost::new(4000))
    ///     .settle(|outcome, charged| match outcome.response() {
    ///         Some(response) => response.extensions.get::<Cost>().copied().unwrap_or(charged),
    ///         None => charged,
    ///     })
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn settle(mut self, settle: impl Fn(Outcome<'_>, Cost) -> Cost + Send + Sync + 'static) -> Self {
        self.options.settle = Some(Arc::new(settle));
        self
    }

    /// Lets requests wait for their turn, up to `max`, instead of denying them.
    ///
    /// Those of one key pass in the order in which they came; a request whose turn would come too
    /// late is denied at once, and so is one that finds
    /// [too many waiting](tollgate::LimiterBuilder::max_waiting). Who goes away leaves the line.
    /// Each replica has a line of its own.
    ///
    /// A [leaky bucket](tollgate::Algorithm::LeakyBucket) is a queue that all replicas share:
    /// requests that it admits are held until their turn, with this option and without it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::Global};
    /// # let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("all", Quota::per_second(100)));
    /// let layer = RateLimitLayer::builder(limiter, Global).wait(Duration::from_secs(2)).build();
    /// # let _ = layer;
    /// ```
    pub fn wait(mut self, max: Duration) -> Self {
        self.options.wait = Some(max);
        self
    }

    /// In which words the answers tell of the limits.
    pub fn header_format(mut self, dialect: HeaderFormat) -> Self {
        self.options.dialect = dialect;
        self
    }

    /// Adds `Access-Control-Expose-Headers` with the names of the fields, so that scripts in
    /// browsers can read them. A CORS layer outside may set that header anew: then give it the
    /// [names](HeaderFormat::names).
    pub fn expose_to_browsers(mut self, expose: bool) -> Self {
        self.options.is_for_browsers = expose;
        self
    }

    /// Puts the [`Decisions`](crate::Decisions) into the extensions of request and response. That
    /// costs allocations, so it is off by default.
    pub fn expose_decisions(mut self, expose: bool) -> Self {
        self.options.exposes_decisions = expose;
        self
    }

    /// Decides, counts and reports, but refuses nobody and tells the client nothing: a limit to be
    /// tried out. What would have been denied is in the log (at `debug`), in the metrics (outcome
    /// `shadowed`), and in the [`Decisions`](crate::Decisions).
    pub fn shadow(mut self, is_shadow: bool) -> Self {
        self.options.is_shadow = is_shadow;
        self
    }

    /// What requests are called in the metrics `tollgate_decisions_total` and
    /// `tollgate_rejections_total`.
    pub fn metric_labels(mut self, labels: MetricLabels) -> Self {
        self.options.labels = Some(labels);
        self
    }

    /// Names the service and the method that a request calls, where it is a call of a remote
    /// procedure: the log of refusals has them as `rpc.service` and `rpc.method`, the first 128
    /// bytes of each. For adapters of such frameworks; tollgate-tonic has it set.
    pub fn rpc(
        mut self,
        name: impl for<'a> Fn(&'a Parts) -> Option<(&'a str, &'a str)> + Send + Sync + 'static,
    ) -> Self {
        self.options.rpc = Some(Box::new(name));
        self
    }

    /// Puts an [`Account`](crate::Account) into the extensions of the requests that pass, for what
    /// they spend on their way: from `limiter`, or without one from the limiter that let them pass.
    /// That costs allocations, so it is off by default.
    pub fn open_accounts(mut self, limiter: Option<Limiter>) -> Self {
        self.options.accounts = Some(match limiter {
            Some(limiter) => {
                self.limits.limiters.push(limiter);
                Accounts::At(self.limits.limiters.len() - 1)
            }
            None => Accounts::Same,
        });
        self
    }

    /// Who writes the answer when the service is not called; [`Problem`] by default. The status is
    /// the responder's choice; the middleware adds the fields that it leaves out.
    pub fn respond_with<R2>(self, responder: R2) -> RateLimitBuilder<K, R2> {
        RateLimitBuilder { limits: self.limits, options: self.options, key: self.key, responder }
    }

    /// Who writes the answer.
    #[must_use]
    pub fn responder(&self) -> &R {
        &self.responder
    }

    /// The layer.
    #[must_use]
    pub fn build(self) -> RateLimitLayer<K, R> {
        RateLimitLayer::from_shared(Shared::new(self.limits, self.options, self.key, self.responder))
    }
}

impl<K, R> fmt::Debug for RateLimitBuilder<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitBuilder").field("limits", &self.limits).finish_non_exhaustive()
    }
}
