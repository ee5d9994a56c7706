//! Limits where an interceptor is all that fits.

#[cfg(feature = "async-interceptor")]
mod waiting;

use std::{fmt, sync::Arc};

use tollgate::{Key, Limiter};
use tollgate_tower::{Decisions, KeyExtractor};
use tonic::{Request, Status, service::Interceptor};

use crate::{GrpcStatus, key::Head};

#[cfg(feature = "async-interceptor")]
pub use waiting::{AsyncRateLimitInterceptor, InterceptFuture};

/// A rate limit as an interceptor of tonic: `GreeterServer::with_interceptor(greeter, interceptor)`.
///
/// **An interceptor of tonic is a synchronous function: it cannot wait for Redis.** What it can do:
///
/// - With a limiter that decides inside the process, [`new`](Self::new), it decides on the spot. That
///   limits one replica. Any other limiter is refused.
/// - With Redis, [`after_layer`](Self::after_layer), it enforces what a layer further out decided
///   and left to it: the layer asks and charges, the interceptor denies. A denial that the store
///   remembers in the process comes that way too, and without a trip.
///
/// What asks Redis by itself is the [`layer`](crate::layer) or, with the feature `async-interceptor`,
/// `AsyncRateLimitInterceptor`.
///
/// | | layer | async interceptor | this |
/// |---|---|---|---|
/// | counts in Redis | yes | yes | **only after a layer** |
/// | knows which method is called (`key::Method`, `key::Service`, `MethodLimiters`) | yes | no | **no** |
/// | tells what is left in response metadata | yes | no | **no** |
/// | status with details and pushback | yes | yes | yes |
/// | fits `with_interceptor` | no | no | yes |
///
/// Use the layer wherever it fits; `tonic::service::LayerExt::named_layer` puts it around a single
/// service.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::{RateLimitInterceptor, key::Metadata};
/// use tonic::{Code, Request, service::Interceptor};
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("burst", Quota::per_minute(1)));
/// let mut interceptor = RateLimitInterceptor::new(limiter, Metadata::new("x-api-key"))?;
///
/// let request = || {
///     let mut request = Request::new(());
///     request.metadata_mut().insert("x-api-key", "acme".parse().unwrap());
///     request
/// };
/// assert!(interceptor.call(request()).is_ok());
/// assert_eq!(interceptor.call(request()).unwrap_err().code(), Code::ResourceExhausted);
/// # Ok::<(), tollgate_tonic::StoreNotInProcess>(())
/// ```
#[derive(Clone)]
pub struct RateLimitInterceptor {
    shared: Arc<Shared>,
}

/// What clones have in common.
struct Shared {
    limit: Option<Limit>,
    answer: GrpcStatus,
}

/// A limiter to ask, and for whom; absent where a layer has asked.
struct Limit {
    limiter: Limiter,
    key: Box<dyn KeyExtractor>,
}

impl RateLimitInterceptor {
    /// An interceptor that decides on the spot.
    ///
    /// # Errors
    ///
    /// The limiter's store has to be waited for.
    pub fn new(limiter: Limiter, key: impl KeyExtractor) -> Result<Self, StoreNotInProcess> {
        Self::with_answer(limiter, key, GrpcStatus::new())
    }

    /// An interceptor whose denials look as `answer` says.
    ///
    /// # Errors
    ///
    /// The limiter's store has to be waited for.
    pub fn with_answer(
        limiter: Limiter,
        key: impl KeyExtractor,
        answer: GrpcStatus,
    ) -> Result<Self, StoreNotInProcess> {
        if !limiter.is_in_process() {
            return Err(StoreNotInProcess(()));
        }
        let limit = Limit { limiter, key: Box::new(key) };
        Ok(Self { shared: Arc::new(Shared { limit: Some(limit), answer }) })
    }

    /// An interceptor that denies what the layers further out decided to deny.
    ///
    /// Such a layer asks and charges, but leaves it to the interceptor to refuse: it is in
    /// [`shadow`](tollgate_tower::RateLimitBuilder::shadow) and
    /// [exposes its decisions](tollgate_tower::RateLimitBuilder::expose_decisions). This is for
    /// servers where what may be refused is known only behind another interceptor; a service without
    /// this interceptor is charged and not limited.
    ///
    /// A call without a decision passes, as it does where the layer exempts it. In shadow the layer
    /// also lets calls pass when its limiter is [closed](tollgate::Outage::Closed) and the store away.
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_tonic::{GrpcStatus, RateLimitInterceptor, key::PeerIp};
    /// use tonic::transport::Server;
    ///
    /// // In production a limiter over a `RedisStore`.
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("burst", Quota::per_second(5)));
    /// let layer = tollgate_tonic::builder(limiter, PeerIp::new()).shadow(true).expose_decisions(true).build();
    /// let interceptor = RateLimitInterceptor::after_layer(GrpcStatus::new());
    /// let server = Server::builder().layer(layer);
    /// // server.add_service(GreeterServer::with_interceptor(greeter, interceptor))
    /// # let _ = (server, interceptor);
    /// ```
    #[must_use]
    pub fn after_layer(answer: GrpcStatus) -> Self {
        Self { shared: Arc::new(Shared { limit: None, answer }) }
    }
}

impl Interceptor for RateLimitInterceptor {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let shared = &self.shared;
        let Some(limit) = &shared.limit else {
            let decisions = request.extensions().get::<Decisions>();
            let denied = decisions.and_then(|decisions| decisions.iter().find(|decision| decision.is_denied()));
            return match denied {
                Some(decision) => Err(shared.answer.status(decision)),
                None => Ok(request),
            };
        };
        let (head, key) = limit.open(request, &shared.answer)?;
        if let Some(key) = key {
            match limit.limiter.check(key).into_ready() {
                Ok(answer) => shared.answer.judge(answer)?,
                // A store that says it is in process, and is not.
                Err(_) => {
                    tracing::error!(hint = %StoreNotInProcess(()), "calls cannot be rate limited");
                    return Err(Status::internal("internal error"));
                }
            }
        }
        Ok(head.into_request())
    }
}

impl Limit {
    /// The head of a request and its key.
    fn open(&self, request: Request<()>, answer: &GrpcStatus) -> Result<(Head, Option<Key>), Status> {
        let (metadata, extensions, ()) = request.into_parts();
        let head = Head::new(metadata, extensions);
        match head.extract(&*self.key) {
            Ok(key) => Ok((head, key)),
            Err(error) => Err(answer.keyless_and_logged(&error)),
        }
    }
}

impl fmt::Debug for RateLimitInterceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitInterceptor")
            .field("limiter", &self.shared.limit.as_ref().map(|it| &it.limiter))
            .finish_non_exhaustive()
    }
}

/// The limiter's store has to be waited for, which an interceptor of tonic cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreNotInProcess(());

impl fmt::Display for StoreNotInProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an interceptor cannot wait for the store of this limiter: \
             put `tollgate_tonic::layer(limiter, key)` around the service, with `LayerExt::named_layer` for one of many, \
             or use `AsyncRateLimitInterceptor` (feature `async-interceptor`), \
             or `RateLimitInterceptor::after_layer` behind a layer that asks",
        )
    }
}

impl std::error::Error for StoreNotInProcess {}
