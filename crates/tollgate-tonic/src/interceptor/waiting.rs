use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tollgate::{CheckFuture, Limiter};
use tollgate_tower::KeyExtractor;
use tonic::{Request, Status};
use tonic_async_interceptor::AsyncInterceptor;

use super::Limit;
use crate::{GrpcStatus, key::Head};

/// A rate limit as an interceptor of the crate `tonic-async-interceptor`, which waits for the store.
///
/// Like every interceptor it does not see which method is called, and cannot say in the response
/// what is left: the [`layer`](crate::layer) does both.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::{AsyncRateLimitInterceptor, key::PeerIp};
/// use tonic::transport::Server;
/// use tonic_async_interceptor::async_interceptor;
///
/// // With `RedisStore::connect(…).await?` all replicas share the limit.
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("burst", Quota::per_second(5)));
/// let interceptor = AsyncRateLimitInterceptor::new(limiter, PeerIp::new());
/// let server = Server::builder().layer(async_interceptor(interceptor));
/// # let _ = server;
/// ```
#[derive(Clone)]
pub struct AsyncRateLimitInterceptor {
    limit: Arc<Limit>,
    answer: Arc<GrpcStatus>,
}

impl AsyncRateLimitInterceptor {
    /// An interceptor that asks `limiter`.
    #[must_use]
    pub fn new(limiter: Limiter, key: impl KeyExtractor) -> Self {
        Self::with_answer(limiter, key, GrpcStatus::new())
    }

    /// An interceptor whose denials look as `answer` says.
    #[must_use]
    pub fn with_answer(limiter: Limiter, key: impl KeyExtractor, answer: GrpcStatus) -> Self {
        Self { limit: Arc::new(Limit { limiter, key: Box::new(key) }), answer: Arc::new(answer) }
    }
}

impl AsyncInterceptor for AsyncRateLimitInterceptor {
    type Future = InterceptFuture;

    fn call(&mut self, request: Request<()>) -> InterceptFuture {
        let (opened, check) = match self.limit.open(request, &self.answer) {
            Ok((head, key)) => (Ok(head), key.map(|key| self.limit.limiter.check(key))),
            Err(status) => (Err(status), None),
        };
        InterceptFuture { opened: Some(opened), check, answer: Arc::clone(&self.answer) }
    }
}

/// The request, or the status that stands in for the answer to it.
#[must_use = "futures do nothing unless polled"]
pub struct InterceptFuture {
    opened: Option<Result<Head, Status>>,
    check: Option<CheckFuture>,
    answer: Arc<GrpcStatus>,
}

impl Future for InterceptFuture {
    type Output = Result<Request<()>, Status>;

    /// # Panics
    ///
    /// When polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(check) = &mut self.check {
            let answer = ready!(Pin::new(check).poll(cx));
            self.check = None;
            if let Err(status) = self.answer.judge(answer) {
                return Poll::Ready(Err(status));
            }
        }
        let opened = self.opened.take().expect("a request is taken once");
        Poll::Ready(opened.map(Head::into_request))
    }
}

impl fmt::Debug for AsyncRateLimitInterceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncRateLimitInterceptor").field("limiter", &self.limit.limiter).finish_non_exhaustive()
    }
}

impl fmt::Debug for InterceptFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterceptFuture").finish_non_exhaustive()
    }
}
