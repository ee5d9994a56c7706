//! Which refused calls are made again, and how often. The loop is that of `tower`.
//! When a call may go out is decided in `service.rs` and `pauses.rs`.

use std::{
    future::{Ready, ready},
    sync::Arc,
    time::Duration,
};

use http::{Request, Response, StatusCode, header};
use tokio::time::Instant;
use tower::retry::{
    Policy,
    budget::{Budget, TpsBudget},
};

use crate::metrics;

/// Copies the body of a call, so that it can be sent again. Closures and functions
/// `Fn(&B) -> Option<B>` implement it.
///
/// [`OutgoingBuilder::retries`](crate::OutgoingBuilder::retries) takes one. To name the type of a
/// layer, pass a function:
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_outgoing::{CopyBody, OutgoingLayer};
/// use tollgate_tower::key::Global;
///
/// type Layer = OutgoingLayer<Global, fn(&String) -> Option<String>>;
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::leaky_bucket("geocoder", Quota::per_second(10)));
/// let copy: fn(&String) -> Option<String> = |body| Some(body.clone());
/// let layer: Layer = OutgoingLayer::builder(limiter, Global).retries(2, copy).build();
/// assert_eq!(copy.copy(&"order 7".to_owned()).unwrap(), "order 7");
/// ```
pub trait CopyBody<B> {
    /// Returns a copy, or `None` for a body that cannot be sent again.
    fn copy(&self, body: &B) -> Option<B>;
}

impl<B, F: Fn(&B) -> Option<B>> CopyBody<B> for F {
    fn copy(&self, body: &B) -> Option<B> {
        self(body)
    }
}

/// Copies no body: no call is repeated. The default of an [`OutgoingLayer`](crate::OutgoingLayer).
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRetries;

impl<B> CopyBody<B> for NoRetries {
    fn copy(&self, _: &B) -> Option<B> {
        None
    }
}

/// Marks an answer: who gave it, and whether the service accepted the call.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    /// A layer has rejected the call, and the service has not received it.
    Unsent,
    Accepted,
    /// The service has not worked on the call, and takes no further ones for a time.
    Refused {
        pause: Duration,
    },
}

/// Names the time after which no attempt begins, in the extensions of a call that is repeated.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(pub(crate) Instant);

/// Stores what all calls of a layer share.
pub(crate) struct Retries<C> {
    pub(crate) most: u32,
    pub(crate) copy: C,
    pub(crate) budget: TpsBudget,
    pub(crate) longest: Duration,
    /// The name of the limiter.
    pub(crate) name: String,
}

/// Decides whether a call is repeated. Each call has a clone.
#[allow(
    missing_debug_implementations,
    reason = "only the retries of tower see it"
)]
pub struct Repeat<C> {
    retries: Arc<Retries<C>>,
    repeated: u32,
    /// `None` when the time is too far to be represented.
    deadline: Option<Instant>,
}

impl<C> Repeat<C> {
    pub(crate) fn new(retries: Arc<Retries<C>>) -> Self {
        Self {
            retries,
            repeated: 0,
            deadline: None,
        }
    }

    /// Returns why a refused call is not repeated.
    fn obstacle(&self, pause: Duration) -> Option<&'static str> {
        let is_late = |deadline| Instant::now() + pause > deadline;
        if self.repeated >= self.retries.most {
            Some("spent")
        } else if self.deadline.is_some_and(is_late) {
            Some("late")
        } else if !self.retries.budget.withdraw() {
            Some("no_budget")
        } else {
            None
        }
    }
}

/// Returns whether a refused call does no harm when it is made again. A service that is not
/// available may have begun to work on it.
fn is_repeatable<B, RB>(request: &Request<B>, response: &Response<RB>) -> bool {
    response.status() != StatusCode::SERVICE_UNAVAILABLE
        || request.method().is_idempotent() && response.headers().contains_key(header::RETRY_AFTER)
}

impl<C> Clone for Repeat<C> {
    fn clone(&self) -> Self {
        Self {
            retries: Arc::clone(&self.retries),
            ..*self
        }
    }
}

impl<C, B, RB, E> Policy<Request<B>, Response<RB>, E> for Repeat<C>
where
    C: CopyBody<B>,
{
    type Future = Ready<()>;

    fn retry(
        &mut self,
        request: &mut Request<B>,
        result: &mut Result<Response<RB>, E>,
    ) -> Option<Ready<()>> {
        let response = result.as_ref().ok()?;
        let pause = match *response.extensions().get::<Answer>()? {
            Answer::Unsent => return None,
            Answer::Accepted => {
                self.retries.budget.deposit();
                return None;
            }
            Answer::Refused { pause } => pause,
        };
        if !is_repeatable(request, response) {
            return None;
        }
        let obstacle = self.obstacle(pause);
        metrics::count_retry(&self.retries.name, obstacle.unwrap_or("repeated"));
        if obstacle.is_some() {
            return None;
        }
        self.repeated += 1;
        if let Some(deadline) = self.deadline {
            request.extensions_mut().insert(Deadline(deadline));
        }
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        let body = self.retries.copy.copy(request.body())?;
        if self.repeated == 0 {
            self.deadline = Instant::now().checked_add(self.retries.longest);
        }
        let mut copy = Request::new(body);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        *copy.extensions_mut() = request.extensions().clone();
        Some(copy)
    }
}
