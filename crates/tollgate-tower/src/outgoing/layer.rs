use std::{fmt, sync::Arc, time::Duration};

use tollgate::Limiter;
use tower::retry::budget::TpsBudget;
use tower_layer::Layer;

use super::{
    pauses::Pauses,
    retry::{NoRetries, Repeat, Retries},
    service::{Outgoing, Queue, Shared, Turns},
};
use crate::{
    RetryAfterLayer, gate::GateOptions, key::KeyExtractor, labels::MetricLabels, metrics::LimitMetrics,
    rejection::Problem,
};

/// Keeps the calls of all replicas below the limit of another service: the [module](super) describes it.
///
/// The key of a call says whose limit it spends: [`Global`](crate::key::Global) for one limit of all calls, or the account by
/// an [`Extension`](crate::key::Extension).
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{key::Global, outgoing::OutgoingLayer};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let client = service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) });
/// let limiter = Limiter::new(MemoryStore::new(), Policy::leaky_bucket("geocoder", Quota::per_second(10)));
/// let client = OutgoingLayer::new(limiter.clone(), Global).layer(client);
///
/// assert_eq!(client.oneshot(Request::new(())).await.unwrap().status(), 200);
/// // The call has taken a place in the bucket.
/// assert_eq!(limiter.peek("all").await.unwrap().state("geocoder").unwrap().remaining(), 9);
/// # }
/// ```
pub struct OutgoingLayer<K, C = NoRetries, R = Problem> {
    shared: Arc<Shared<K, R>>,
    retries: Arc<Retries<C>>,
}

impl<K: KeyExtractor> OutgoingLayer<K> {
    /// Creates a layer that waits for up to 30 s, obeys what a [`RetryAfterLayer`] obeys, and repeats nothing.
    #[must_use]
    pub fn new(limiter: Limiter, key: K) -> Self {
        Self::builder(limiter, key).build()
    }

    /// Creates a builder, which offers the options.
    pub fn builder(limiter: Limiter, key: K) -> OutgoingBuilder<K> {
        OutgoingBuilder {
            limiter,
            key,
            longest: Duration::from_secs(30),
            answers: RetryAfterLayer::new(),
            most: 0,
            copy: NoRetries,
            budget: (0.1, 1),
            gate: GateOptions::new(Duration::ZERO),
        }
    }
}

impl<S, K, C, R> Layer<S> for OutgoingLayer<K, C, R> {
    type Service = Outgoing<S, K, C, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Outgoing::new(inner, Turns::new(Arc::clone(&self.shared)), Repeat::new(Arc::clone(&self.retries)))
    }
}

impl<K, C, R> Clone for OutgoingLayer<K, C, R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), retries: Arc::clone(&self.retries) }
    }
}

impl<K, C, R> fmt::Debug for OutgoingLayer<K, C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingLayer").field("limiter", &self.shared.queue.limiter).finish_non_exhaustive()
    }
}

/// Builds an [`OutgoingLayer`] with options.
///
/// [`OutgoingLayer::builder`] creates it.
#[must_use = "a builder does nothing until `build` is called"]
pub struct OutgoingBuilder<K, C = NoRetries, R = Problem> {
    limiter: Limiter,
    key: K,
    longest: Duration,
    answers: RetryAfterLayer,
    most: u32,
    copy: C,
    budget: (f32, u32),
    gate: GateOptions<R>,
}

/// The longest cap of a pause: a day.
const LONGEST_CAP: Duration = Duration::from_secs(86_400);

/// The time in which the budget counts.
const BUDGET_TIME: Duration = Duration::from_secs(10);

impl<K, C, R> OutgoingBuilder<K, C, R> {
    /// Sets the longest wait. The default is 30 s.
    ///
    /// No attempt begins later than this after the call. It counts the wait for a turn, the pauses, and the time of
    /// earlier attempts. A call that would wait for longer gets a 429 of the layer at once, whose `Retry-After` says after which
    /// time its turn is within reach. A refused call whose pause ends later returns the answer of the service.
    pub fn wait(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// Sets which answers pause the calls, and for how long: the cap, the fallback and
    /// [`delay_on_forbidden`](RetryAfterLayer::delay_on_forbidden) of the given layer. Its jitter is not used, because the
    /// limiter spaces the calls.
    ///
    /// # Panics
    ///
    /// When the cap is zero or longer than a day.
    pub fn retry_after(mut self, answers: RetryAfterLayer) -> Self {
        let cap = answers.settings().cap;
        assert!(
            !cap.is_zero() && cap <= LONGEST_CAP,
            "the cap of a pause must be above 0 and at most 1 day, got {cap:?}"
        );
        self.answers = answers;
        self
    }

    /// Repeats a refused call up to `most` times. The default is never.
    ///
    /// A 429 is repeated for every method, because the service has not worked on the call. So is a 403, where
    /// [`delay_on_forbidden`](RetryAfterLayer::delay_on_forbidden) makes it a refusal. A 503 is repeated if it names a
    /// `Retry-After` and the method is idempotent. An error of the client is not repeated. A repeated call waits for the end of
    /// the pause, and takes a turn of its own.
    ///
    /// `copy` returns the body to send again. It is called before each attempt, and returns `None` for a body that can be sent
    /// only once, such as a stream. That call is not repeated.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http_body_util::Full;
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_tower::{key::Global, outgoing::OutgoingLayer};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::leaky_bucket("geocoder", Quota::per_second(10)));
    /// let layer = OutgoingLayer::builder(limiter.clone(), Global).retries(2, |body: &Full<Bytes>| Some(body.clone())).build();
    ///
    /// // Calls without a body alone, of a type whose streams cannot be copied.
    /// use axum::body::{Body, HttpBody};
    /// let empty = |body: &Body| body.is_end_stream().then(Body::empty);
    /// let layer = OutgoingLayer::builder(limiter, Global).retries(2, empty).build();
    /// ```
    pub fn retries<B, C2: Fn(&B) -> Option<B>>(self, most: u32, copy: C2) -> OutgoingBuilder<K, C2, R> {
        let Self { limiter, key, longest, answers, most: _, copy: _, budget, gate } = self;
        OutgoingBuilder { limiter, key, longest, answers, most, copy, budget, gate }
    }

    /// Bounds the retries of all calls together: a `share` of the answers that were no refusals, and `per_second` besides. The
    /// default is 0.1 and 1.
    ///
    /// Both count over 10 s. A service that refuses everything thus gets no more than `10 × per_second` retries in 10 s from each
    /// process. The budget is the [`TpsBudget`] of tower.
    ///
    /// # Panics
    ///
    /// When the share is not between 0 and 1, or `per_second` is above 1000.
    pub fn budget(mut self, share: f32, per_second: u32) -> Self {
        assert!((0.0..=1.0).contains(&share), "the budget must be a share of 0 to 1, got {share}");
        assert!(per_second <= 1_000, "the budget must be at most 1000 retries per second, got {per_second}");
        self.budget = (share, per_second);
        self
    }

    /// Sets the metric labels, from a fixed list. The metrics of decisions and rejections carry them.
    pub fn metric_labels(mut self, labels: MetricLabels) -> Self {
        self.gate.labels = labels;
        self
    }

    /// Sets the [responder](crate::Respond) that builds rejections. The default is [`Problem`].
    pub fn respond_with<R2>(self, responder: R2) -> OutgoingBuilder<K, C, R2> {
        let Self { limiter, key, longest, answers, most, copy, budget, gate } = self;
        OutgoingBuilder { limiter, key, longest, answers, most, copy, budget, gate: gate.respond_with(responder) }
    }

    /// Builds the layer.
    #[must_use]
    pub fn build(self) -> OutgoingLayer<K, C, R> {
        let Self { limiter, key, longest, answers, most, copy, budget: (share, per_second), gate } = self;
        let settings = answers.settings();
        let retries = Retries {
            most,
            copy,
            budget: TpsBudget::new(BUDGET_TIME, per_second, share),
            longest,
            name: limiter.name().to_owned(),
        };
        let metrics = LimitMetrics::new(&gate.labels);
        let pauses = Pauses::new(&limiter, settings.cap);
        let queue = Arc::new(Queue { limiter, pauses });
        OutgoingLayer {
            shared: Arc::new(Shared { queue, key, gate, longest, settings, metrics }),
            retries: Arc::new(retries),
        }
    }
}

impl<K, C, R> fmt::Debug for OutgoingBuilder<K, C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingBuilder").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}
