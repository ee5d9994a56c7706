//! The interceptor that can wait for a store in Redis, for users of `tonic-async-interceptor`.
//! tonic's own kind, which cannot wait, is in `synchronous.rs`. Statuses are made in `status/`.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tollgate::{
    Key,
    limiter::{Limited, LimiterFuture},
    store::CheckFuture,
};
use tollgate_tower::{KeyExtractor, LimiterSource};
use tonic::{Request, Status};
use tonic_async_interceptor::AsyncInterceptor;

use super::keyed_limiter::KeyedLimiter;
use crate::{key::RequestHead, status::GrpcStatus};

/// Limits calls in an interceptor of the crate `tonic-async-interceptor`, which can wait for the
/// store.
///
/// The interceptor works with every store. Like every interceptor, it cannot read the method of a
/// call, and it cannot send the remaining quota in the response metadata. The
/// [`layer`](crate::layer) can do both. A [leaky bucket](tollgate::Algorithm::LeakyBucket) delays
/// calls as in a layer. Put a [`DrainLayer`](tollgate_tower::drain::DrainLayer) outside:
/// [`RateLimitInterceptor`](crate::RateLimitInterceptor) explains why.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::{AsyncRateLimitInterceptor, key::PeerIp};
/// use tollgate_tower::drain::DrainLayer;
/// use tonic::transport::Server;
/// use tonic_async_interceptor::async_interceptor;
///
/// // With `RedisStore::connect(…).await?`, all replicas share the limit.
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("burst", Quota::per_second(5)));
/// let interceptor = AsyncRateLimitInterceptor::new(limiter, PeerIp);
/// let server = Server::builder().layer(DrainLayer::new()).layer(async_interceptor(interceptor));
/// # let _ = server;
/// ```
#[derive(Clone)]
pub struct AsyncRateLimitInterceptor {
    limiter: Arc<KeyedLimiter<LimiterSource>>,
    responder: Arc<GrpcStatus>,
}

impl AsyncRateLimitInterceptor {
    /// Creates an interceptor that checks `limiters` with the key that `key` finds.
    ///
    /// `limiters` is a [`Limiter`](tollgate::Limiter), or any other [`LimiterSource`] that does not
    /// need the method of a call: a [`LimiterHandle`](tollgate::LimiterHandle), or the limits of
    /// tenants.
    #[must_use]
    pub fn new(limiters: impl Into<LimiterSource>, key: impl KeyExtractor) -> Self {
        Self {
            limiter: Arc::new(KeyedLimiter::new(limiters.into(), key)),
            responder: Arc::new(GrpcStatus::new()),
        }
    }

    /// Sets the options of the status of denied calls.
    #[must_use]
    pub fn respond_with(mut self, responder: GrpcStatus) -> Self {
        self.responder = Arc::new(responder);
        self
    }
}

impl AsyncInterceptor for AsyncRateLimitInterceptor {
    type Future = InterceptFuture;

    fn call(&mut self, request: Request<()>) -> InterceptFuture {
        let (request, step) = match self.limiter.key_of(request, &self.responder) {
            Ok((head, None)) => (Ok(head), None),
            Ok((head, Some(key))) => match head.limiter(self.limiter.limiter()) {
                Ok(limiter) => (Ok(head), Some(Step::LookUp(limiter, key))),
                Err(error) => (Err(self.responder.logged_key_error_status(&error)), None),
            },
            Err(status) => (Err(status), None),
        };
        InterceptFuture {
            request: Some(request),
            step,
            responder: Arc::clone(&self.responder),
        }
    }
}

/// Says what a call waits for.
enum Step {
    /// The limiter of the call is looked up. It is checked with this key.
    LookUp(LimiterFuture, Key),
    /// The limiter is checked, and the call waits in its queue.
    Check(CheckFuture),
}

/// Resolves to the request when the call may go on, and to the status of the rejection otherwise.
// Written by hand: a check that is decided in process needs no allocation, an async block would
// need a box.
#[must_use = "futures do nothing unless polled"]
pub struct InterceptFuture {
    request: Option<Result<RequestHead, Status>>,
    /// `None` when the call has no limit.
    step: Option<Step>,
    responder: Arc<GrpcStatus>,
}

impl Future for InterceptFuture {
    type Output = Result<Request<()>, Status>;

    /// # Panics
    ///
    /// Panics when it is polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        while let Some(step) = &mut self.step {
            let result = match step {
                Step::LookUp(limiter, key) => match ready!(Pin::new(limiter).poll(cx)) {
                    Ok(Limited::By(limiter)) => {
                        *step = Step::Check(limiter.check_key(key).queued().into_future());
                        continue;
                    }
                    Ok(Limited::Exempt) => None,
                    Err(error) => Some(Err(error)),
                },
                Step::Check(check) => Some(ready!(Pin::new(check).poll(cx))),
            };
            self.step = None;
            if let Some(Err(status)) = result.map(|result| self.responder.check_result(result)) {
                return Poll::Ready(Err(status));
            }
        }
        let request = self
            .request
            .take()
            .expect("the future was polled after it was ready");
        Poll::Ready(request.map(RequestHead::into_request))
    }
}

tollgate::debug_fields! { AsyncRateLimitInterceptor: limiter, .. }

tollgate::debug_fields! { InterceptFuture: .. }
