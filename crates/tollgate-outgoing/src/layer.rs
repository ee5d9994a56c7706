//! The layer for outgoing calls and its builder, which turns the options into the parts.
//! What happens to a call is in `service.rs`.

use std::{sync::Arc, time::Duration};

use tollgate_core::Limiter;
use tollgate_tower::{
    KeyExtractor, MetricLabels,
    gate::{GateOptions, IsLayer, Unbuilt},
    rejection::Problem,
};
use tower::retry::budget::TpsBudget;
use tower_layer::Layer;

use crate::{
    pauses::Pauses,
    retry::{NoRetries, Repeat, Retries},
    retry_after::RetryAfterLayer,
    service::{Outgoing, Queue, Shared, Turns},
};

/// Keeps the calls of all replicas below the limit of another service. The [module](crate)
/// describes how.
///
/// Calls with the same key share a limit. Use [`Global`](tollgate_tower::key::Global) for one limit of all
/// calls, or [`FromExtension`](tollgate_tower::key::FromExtension) for one limit of each account.
#[doc(alias = "throttle")]
#[doc(alias = "backoff")]
#[doc(alias = "client")]
pub struct OutgoingLayer<K, C = NoRetries, R = Problem> {
    shared: Arc<Shared<K, R>>,
    retries: Arc<Retries<C>>,
}

impl<K: KeyExtractor> OutgoingLayer<K> {
    /// Creates a layer that waits for up to 30 s, obeys the same headers as a [`RetryAfterLayer`],
    /// and repeats nothing.
    #[must_use]
    pub fn new(limiter: Limiter, key: K) -> Self {
        Self::builder(limiter, key).build()
    }

    /// Creates a builder, which offers the options.
    pub fn builder(limiter: Limiter, key: K) -> OutgoingBuilder<K> {
        OutgoingBuilder {
            limiter,
            key,
            options: Options {
                longest: Duration::from_secs(30),
                answers: RetryAfterLayer::new(),
                most: 0,
                budget: (0.1, 1),
            },
            copy: NoRetries,
            gate: GateOptions::new(),
        }
    }
}

impl<S, K, C, R> Layer<S> for OutgoingLayer<K, C, R> {
    type Service = Outgoing<S, K, C, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Outgoing::new(
            inner,
            Turns::new(Arc::clone(&self.shared)),
            Repeat::new(Arc::clone(&self.retries)),
        )
    }
}

impl<K, C, R> Clone for OutgoingLayer<K, C, R> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            retries: Arc::clone(&self.retries),
        }
    }
}

tollgate_core::debug_fields! { OutgoingLayer<K, C, R>: limiter = .shared.queue.limiter, .. }

/// Builds an [`OutgoingLayer`] with options.
///
/// [`OutgoingLayer::builder`] creates it.
#[must_use = "a builder does nothing until `build` is called"]
pub struct OutgoingBuilder<K, C = NoRetries, R = Problem> {
    limiter: Limiter,
    key: K,
    options: Options,
    copy: C,
    gate: GateOptions<R>,
}

#[derive(Clone, Copy)]
struct Options {
    longest: Duration,
    answers: RetryAfterLayer,
    most: u32,
    budget: (f32, u32),
}

/// The longest cap of a pause: a day.
const LONGEST_CAP: Duration = Duration::from_secs(86_400);

/// The time in which the budget counts.
const BUDGET_TIME: Duration = Duration::from_secs(10);

/// Is no layer before [`build`](OutgoingBuilder::build): this lets the compiler say so.
impl<S, K, C, R> Layer<S> for OutgoingBuilder<K, C, R>
where
    Unbuilt: IsLayer<Self>,
{
    type Service = S;

    fn layer(&self, inner: S) -> S {
        inner
    }
}

impl<K, C, R> OutgoingBuilder<K, C, R> {
    /// Sets the longest wait. The default is 30 s.
    ///
    /// No attempt begins later than this after the call. The time includes the wait for a turn, the
    /// pauses, and earlier attempts. If a call would have to wait for longer, the layer responds
    /// with 429 at once. Its `Retry-After` is the time after which the wait of a call is short
    /// enough. If the service refuses a call and the pause ends too late, the caller receives the
    /// response of the service.
    pub fn wait(mut self, longest: Duration) -> Self {
        self.options.longest = longest;
        self
    }

    /// Sets which responses pause the calls, and for how long. The layer uses the
    /// [cap](RetryAfterLayer::cap), the [fallback](RetryAfterLayer::fallback) and
    /// [`delay_on_forbidden`](RetryAfterLayer::delay_on_forbidden) of `answers`. It does not use
    /// the jitter, because the limiter spaces the calls.
    ///
    /// # Panics
    ///
    /// Panics if the cap is zero or longer than a day.
    pub fn retry_after(mut self, answers: RetryAfterLayer) -> Self {
        let cap = answers.settings().cap;
        assert!(
            !cap.is_zero() && cap <= LONGEST_CAP,
            "the cap of a pause must be above 0 and at most 1 day, got {cap:?}"
        );
        self.options.answers = answers;
        self
    }

    /// Repeats a refused call up to `most` times. By default no call is repeated.
    ///
    /// A repeated call waits for the end of the pause, and takes a turn of its own. These calls are
    /// repeated:
    ///
    /// - After a 429, calls of every method, because the service has not worked on the call. A 403
    ///   counts as a 429 with [`delay_on_forbidden`](RetryAfterLayer::delay_on_forbidden).
    /// - After a 503 with `Retry-After`, calls of idempotent methods.
    ///
    /// A call that fails with an error of the client is not repeated.
    ///
    /// `copy` returns a copy of the body, to send it again. The layer calls it before each attempt.
    /// If it returns `None`, as for a stream, the call is not repeated.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http_body_util::Full;
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_outgoing::OutgoingLayer;
    /// use tollgate_tower::key::Global;
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::leaky_bucket("geocoder", Quota::per_second(10)));
    /// let layer = OutgoingLayer::builder(limiter.clone(), Global).retries(2, |body: &Full<Bytes>| Some(body.clone())).build();
    ///
    /// // Calls without a body alone, of a type whose streams cannot be copied.
    /// use axum::body::{Body, HttpBody};
    /// let empty = |body: &Body| body.is_end_stream().then(Body::empty);
    /// let layer = OutgoingLayer::builder(limiter, Global).retries(2, empty).build();
    /// ```
    pub fn retries<B, C2: Fn(&B) -> Option<B>>(
        self,
        most: u32,
        copy: C2,
    ) -> OutgoingBuilder<K, C2, R> {
        OutgoingBuilder {
            limiter: self.limiter,
            key: self.key,
            options: Options {
                most,
                ..self.options
            },
            copy,
            gate: self.gate,
        }
    }

    /// Limits the retries of all calls together, in each process: to a `share` of the calls that the service has not
    /// refused, plus `per_second` retries each second. The default is 0.1 and 1.
    ///
    /// Both count over 10 s. So a service that refuses everything gets up to `10 × per_second`
    /// retries in 10 s from each process. The budget is the [`TpsBudget`] of tower.
    ///
    /// # Panics
    ///
    /// Panics if the share is not between 0 and 1, or if `per_second` is above 1000.
    pub fn budget(mut self, share: f32, per_second: u32) -> Self {
        assert!(
            (0.0..=1.0).contains(&share),
            "the budget must be a share of 0 to 1, got {share}"
        );
        assert!(
            per_second <= 1_000,
            "the budget must be at most 1000 retries per second, got {per_second}"
        );
        self.options.budget = (share, per_second);
        self
    }

    /// Sets the metric labels, from a fixed list. The metrics `tollgate_decisions_total` and
    /// `tollgate_rejections_total` carry them.
    pub fn metric_labels(mut self, labels: MetricLabels) -> Self {
        self.gate = self.gate.metric_labels(labels);
        self
    }

    /// Sets the [responder](tollgate_tower::Respond) that builds rejections. The default is [`Problem`].
    pub fn respond_with<R2>(self, responder: R2) -> OutgoingBuilder<K, C, R2> {
        OutgoingBuilder {
            limiter: self.limiter,
            key: self.key,
            options: self.options,
            copy: self.copy,
            gate: self.gate.respond_with(responder),
        }
    }

    /// Builds the layer.
    #[must_use]
    pub fn build(self) -> OutgoingLayer<K, C, R> {
        let Self {
            limiter,
            key,
            options,
            copy,
            gate,
        } = self;
        let (settings, (share, per_second)) = (options.answers.settings(), options.budget);
        let retries = Retries {
            most: options.most,
            copy,
            budget: TpsBudget::new(BUDGET_TIME, per_second, share),
            longest: options.longest,
            name: limiter.name().to_owned(),
        };
        let counters = gate.decision_counters();
        let pauses = Pauses::new(&limiter, settings.cap);
        let queue = Arc::new(Queue { limiter, pauses });
        OutgoingLayer {
            shared: Arc::new(Shared {
                queue,
                key,
                gate,
                longest: options.longest,
                settings,
                counters,
            }),
            retries: Arc::new(retries),
        }
    }
}

tollgate_core::debug_fields! { OutgoingBuilder<K, C, R>: limiter, .. }
