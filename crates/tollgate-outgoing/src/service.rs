//! The way of an outgoing call: it waits for its turn and for the end of pauses, and its answer may
//! begin one.
//! Pauses are kept in `pauses.rs`, repetitions decided in `retry.rs`.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response, StatusCode, request::Parts};
use tokio::time::Instant;
use tollgate_core::{
    Decision, Error, ErrorKind, Key, Limiter,
    store::{CheckFuture, StoreFuture},
};
use tollgate_tower::{
    KeyExtractor, Respond,
    gate::{DecisionCounters, Gate, GateOptions, Gated, Verdict, take_ready},
    key::KeyError,
    rejection::{Problem, Reason},
};
use tower::retry::{Retry, future::ResponseFuture};
use tower_service::Service;

use crate::{
    metrics,
    pauses::{Pauses, until},
    retry::{Answer, CopyBody, Deadline, NoRetries, Repeat},
    retry_after::{FOR_EVER, Settings, delay_of},
};

/// Keeps the calls of a client below the limit of another service.
/// [`OutgoingLayer`](crate::OutgoingLayer) creates it.
///
/// It has the response and error types of the client. Clones share the pauses and the budget of
/// the retries. A call that is dropped while it waits leaves the queue.
pub struct Outgoing<S, K, C = NoRetries, R = Problem> {
    service: Retry<Repeat<C>, Gated<S, Turns<K, R>>>,
}

impl<S, K, C, R> Outgoing<S, K, C, R> {
    pub(crate) fn new(inner: S, turns: Turns<K, R>, retries: Repeat<C>) -> Self {
        Self {
            service: Retry::new(retries, Gated::new(inner, turns)),
        }
    }

    /// Returns the client.
    pub fn get_ref(&self) -> &S {
        self.service.get_ref().get_ref()
    }
}

impl<S, K, C, R, B, RB> Service<Request<B>> for Outgoing<S, K, C, R>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone,
    K: KeyExtractor,
    C: CopyBody<B>,
    R: Respond<RB>,
    B: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<Repeat<C>, Gated<S, Turns<K, R>>, Request<B>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.service.call(request)
    }
}

impl<S: Clone, K, C, R> Clone for Outgoing<S, K, C, R> {
    fn clone(&self) -> Self {
        Self {
            service: self.service.clone(),
        }
    }
}

impl<S: fmt::Debug, K, C, R> fmt::Debug for Outgoing<S, K, C, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("inner", self.get_ref())
            .finish_non_exhaustive()
    }
}

/// Gives each call its turn, and reads the answer: the gate between the retries and the client.
#[allow(
    missing_debug_implementations,
    reason = "only the skeleton of the layers sees it"
)]
pub struct Turns<K, R> {
    shared: Arc<Shared<K, R>>,
}

pub(crate) struct Shared<K, R> {
    pub(crate) queue: Arc<Queue>,
    pub(crate) key: K,
    pub(crate) gate: GateOptions<R>,
    pub(crate) longest: Duration,
    pub(crate) settings: Settings,
    pub(crate) counters: DecisionCounters,
}

/// Names what a call waits for.
pub(crate) struct Queue {
    pub(crate) limiter: Limiter,
    pub(crate) pauses: Pauses,
}

impl Queue {
    /// Waits for a turn in which no pause is known, until the deadline.
    async fn turn(&self, key: &Key, deadline: Instant) -> Result<Decision, Error> {
        loop {
            if let Some(denied) = self.pauses.wait(key, deadline).await? {
                return Ok(denied);
            }
            let decision = self.limiter.check_key(key).wait(until(deadline)).await?;
            // The pause may have begun while the call waited. Its turn passes unused then: after
            // the pause all such calls would leave together.
            if decision.is_denied() || !self.pauses.is_paused(key).await {
                return Ok(decision);
            }
        }
    }
}

impl<K, R> Turns<K, R> {
    pub(crate) fn new(shared: Arc<Shared<K, R>>) -> Self {
        Self { shared }
    }

    fn reject_without_key<B>(&self, error: &KeyError, parts: &Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        let consequence = "outgoing calls have no turn";
        self.shared
            .gate
            .reject_without_key(error, consequence, parts)
    }

    /// Turns the outcome of the wait into a rejection, or into nothing for a call that has its
    /// turn.
    fn judge<B>(&self, outcome: Result<Decision, Error>, parts: &Parts) -> Result<(), Response<B>>
    where
        R: Respond<B>,
    {
        let Shared {
            queue,
            gate,
            counters,
            ..
        } = &*self.shared;
        match outcome {
            Ok(decision) => {
                if decision.policies() == queue.limiter.policies() {
                    gate.count(counters, &decision, parts);
                }
                if decision.is_allowed() {
                    return Ok(());
                }
                tracing::debug!(
                    limiter = queue.limiter.name(),
                    "an outgoing call would wait for too long"
                );
                Err(gate.reject(Reason::of_denial(&decision), parts))
            }
            Err(error) => Err(match error.kind() {
                ErrorKind::KeyLevels
                | ErrorKind::CrossSlot
                | ErrorKind::NoRuntime
                | ErrorKind::Config => {
                    self.reject_without_key(&KeyError::misconfigured(error.to_string()), parts)
                }
                _ => gate.reject(Reason::Unavailable(&error), parts),
            }),
        }
    }
}

impl<K, R> Shared<K, R> {
    /// Obeys an answer of the service.
    fn obey<B>(&self, key: &Key, response: &Response<B>) -> Answer {
        let (status, settings) = (response.status(), &self.settings);
        let Some(delay) = delay_of(status, response.headers(), settings) else {
            return Answer::Accepted;
        };
        let pause = delay.min(settings.cap);
        if !pause.is_zero() {
            let limiter = self.queue.limiter.name();
            metrics::count_pause(limiter);
            tracing::debug!(
                pause_us = pause.as_micros() as u64,
                status = status.as_u16(),
                limiter,
                "outgoing calls pause"
            );
            self.queue.pauses.begin(key, pause);
        }
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Answer::Refused { pause }
            }
            StatusCode::FORBIDDEN if settings.delays_on_forbidden => Answer::Refused { pause },
            _ => Answer::Accepted,
        }
    }
}

impl<K, R> Clone for Turns<K, R> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

/// Stores the key of a call until its answer. `None` for a call that is exempt.
type Pass<K, R> = Option<(Turns<K, R>, Key)>;

/// Stores the wait of a call, and its key.
type Wait = (CheckFuture, Key);

impl<S, K, R, B, RB> Gate<S, B> for Turns<K, R>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone,
    K: KeyExtractor,
    R: Respond<RB>,
{
    type Pass = Pass<K, R>;
    type Wait = Wait;
    type Response = S::Response;

    fn admit(&self, parts: &mut Parts) -> Verdict<Self::Pass, Wait, S::Response> {
        let key = match self.shared.key.extract(parts) {
            Ok(Some(key)) => key,
            Ok(None) => return Verdict::Admit(None),
            Err(error) => return Verdict::Reject(self.reject_without_key(&error, parts)),
        };
        let now = Instant::now();
        let deadline = parts.extensions.get().map(|deadline: &Deadline| deadline.0);
        // A time too far to be represented is one that nobody waits for.
        let deadline = deadline
            .or_else(|| now.checked_add(self.shared.longest))
            .unwrap_or(now + FOR_EVER);
        let (queue, own) = (Arc::clone(&self.shared.queue), key.clone());
        Verdict::Wait((
            StoreFuture::pending(async move { queue.turn(&own, deadline).await }),
            key,
        ))
    }

    fn poll_wait(
        &self,
        (turn, key): &mut Wait,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<Verdict<Self::Pass, Wait, S::Response>> {
        let outcome = ready!(std::pin::Pin::new(turn).poll(cx));
        Poll::Ready(match self.judge(outcome, parts) {
            Ok(()) => Verdict::Admit(Some((self.clone(), key.clone()))),
            Err(response) => Verdict::Reject(response),
        })
    }

    fn hold(service: &mut S, _: &Wait) -> S {
        take_ready(service)
    }

    fn complete(pass: Option<&mut Self::Pass>, mut response: S::Response) -> S::Response {
        let is_unsent = matches!(response.extensions().get::<Answer>(), Some(Answer::Unsent));
        let answer = match pass {
            None => Answer::Unsent,
            Some(Some((turns, key))) if !is_unsent => turns.shared.obey(key, &response),
            // A layer inside this one has rejected the call, or the call is exempt.
            Some(_) => return response,
        };
        response.extensions_mut().insert(answer);
        response
    }
}
