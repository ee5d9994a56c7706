//! The interceptor for `with_interceptor` of tonic, which has to decide at once: in process, or by
//! what
//! an outer layer decided.
//! Whatever may wait for a store is in `asynchronous.rs`.

use std::{fmt, sync::Arc};

use tollgate::LimiterHandle;
use tollgate_tower::{Decisions, KeyExtractor};
use tonic::{Request, Status, service::Interceptor};

use super::keyed_limiter::KeyedLimiter;
use crate::status::GrpcStatus;

/// Limits calls in an interceptor of tonic:
/// `GreeterServer::with_interceptor(greeter, interceptor)`.
///
/// **An interceptor of tonic is a synchronous function, so it cannot wait for Redis.** Use
/// [`layer`](crate::layer) where it fits; `tonic::service::LayerExt::named_layer` puts it around a
/// single service. Where only an interceptor fits, there are two ways:
///
/// - [`new`](Self::new) takes a limiter whose store is in process. The limit applies to one
///   replica. A limiter with another store is refused.
/// - [`after_layer`](Self::after_layer) works with Redis. A layer further out checks the limit and
///   charges the call, and this interceptor denies the call.
///
/// | | layer | `AsyncRateLimitInterceptor` | this interceptor |
/// |---|---|---|---|
/// | counts in Redis | yes | yes | **only behind a layer** |
/// | knows the method of a call (`key::RpcMethod`, `key::RpcService`, `MethodLimiters`) | yes | no | **no** |
/// | can send the remaining quota in the response metadata | yes | no | **no** |
/// | delays calls in a [leaky bucket](tollgate::Algorithm::LeakyBucket) | yes | yes | **no: calls in the queue pass at once** |
/// | sends status details and pushback | yes | yes | yes |
/// | works with `with_interceptor` | no | no | yes |
/// | reads the message of a denied call | yes | **behind a `DrainLayer`** | **behind a `DrainLayer`** |
///
/// **Put a [`DrainLayer`](tollgate_tower::drain::DrainLayer) outside.** An interceptor cannot read
/// the message of a call. When a short message arrives after the denial, the server (h2 0.4.16 and
/// later) charges it to a budget of the connection. After 2100 to 3500 such messages the server
/// ends the connection with `ENHANCE_YOUR_CALM`, and all calls on it fail. The `DrainLayer` reads
/// these messages. If you cannot add one, enlarge the budget with
/// `Server::initial_connection_window_size`: the connection survives at least one late message for
/// each 512 bytes of its window, which is 2048 messages with the default of 1 MiB.
///
/// The interceptor denies a call with the same status as the layer:
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
#[doc(alias = "RESOURCE_EXHAUSTED")]
#[derive(Clone)]
pub struct RateLimitInterceptor {
    source: Arc<DecisionSource>,
    responder: Arc<GrpcStatus>,
}

/// Says where the decision on a call comes from.
enum DecisionSource {
    Limiter(KeyedLimiter<LimiterHandle>),
    OuterLayers,
}

impl RateLimitInterceptor {
    /// Creates an interceptor that checks `limiter`, whose store must be in process.
    ///
    /// `limiter` is a [`Limiter`](tollgate::Limiter), or a [`LimiterHandle`] whose policies change
    /// while the server runs.
    ///
    /// # Errors
    ///
    /// [`StoreNotInProcess`] when the interceptor would have to wait for the store of the limiter.
    pub fn new(
        limiter: impl Into<LimiterHandle>,
        key: impl KeyExtractor,
    ) -> Result<Self, StoreNotInProcess> {
        let limiter = limiter.into();
        if !limiter.load().is_in_process() {
            return Err(StoreNotInProcess(()));
        }
        Ok(Self::from_source(DecisionSource::Limiter(
            KeyedLimiter::new(limiter, key),
        )))
    }

    /// Creates an interceptor that denies the calls that an outer layer decided to deny. When
    /// several outer layers deny a call, the status describes the denial with the longest wait.
    ///
    /// The outer layer checks the limit and charges the call, but lets every call pass: set
    /// [`shadow`](tollgate_tower::RateLimitBuilder::shadow) and
    /// [`expose_decisions`](tollgate_tower::RateLimitBuilder::expose_decisions) on it. Use this
    /// when another interceptor has to run before a call may be denied.
    ///
    /// - A service without this interceptor is charged, but not limited.
    /// - A call without a decision passes, for example a call that the layer exempts.
    /// - When the store does not answer, calls pass, even if the limiter is
    ///   [closed](tollgate::Outage::Closed): the layer is in shadow.
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_tonic::{RateLimitInterceptor, key::PeerIp};
    /// use tollgate_tower::drain::DrainLayer;
    /// use tonic::transport::Server;
    ///
    /// // In production, use a limiter with a `RedisStore`.
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("burst", Quota::per_second(5)));
    /// let layer = tollgate_tonic::builder(limiter, PeerIp).shadow(true).expose_decisions(true).build();
    /// let interceptor = RateLimitInterceptor::after_layer();
    /// let server = Server::builder().layer(DrainLayer::new()).layer(layer);
    /// // server.add_service(GreeterServer::with_interceptor(greeter, interceptor))
    /// # let _ = (server, interceptor);
    /// ```
    #[must_use]
    pub fn after_layer() -> Self {
        Self::from_source(DecisionSource::OuterLayers)
    }

    fn from_source(source: DecisionSource) -> Self {
        Self {
            source: Arc::new(source),
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

impl Interceptor for RateLimitInterceptor {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let limiter = match &*self.source {
            DecisionSource::Limiter(limiter) => limiter,
            DecisionSource::OuterLayers => {
                let decisions = request.extensions().get::<Decisions>();
                let denied = decisions
                    .into_iter()
                    .flat_map(Decisions::iter)
                    .filter(|decision| decision.is_denied());
                // A denial that no wait ends comes before all others.
                return match denied
                    .max_by_key(|decision| (decision.is_blocked(), decision.retry_after()))
                {
                    Some(decision) => Err(self.responder.status(decision)),
                    None => Ok(request),
                };
            }
        };
        let (head, key) = limiter.key_of(request, &self.responder)?;
        if let Some(key) = key {
            match limiter
                .limiter()
                .load()
                .check(key)
                .into_future()
                .into_ready()
            {
                Ok(result) => self.responder.check_result(result)?,
                // The store claims to be in process, but its check is pending.
                Err(_) => {
                    tracing::error!(hint = %StoreNotInProcess(()), "calls cannot be rate limited");
                    return Err(Status::internal("internal error"));
                }
            }
        }
        Ok(head.into_request())
    }
}

impl fmt::Debug for RateLimitInterceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limiter = match &*self.source {
            DecisionSource::Limiter(limiter) => Some(limiter.limiter().load().clone()),
            DecisionSource::OuterLayers => None,
        };
        f.debug_struct("RateLimitInterceptor")
            .field("limiter", &limiter)
            .finish_non_exhaustive()
    }
}

/// Reports that the store of a limiter is not in process, so a synchronous interceptor cannot use
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreNotInProcess(());

impl fmt::Display for StoreNotInProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the store of this limiter is not in process, and an interceptor of tonic cannot wait for it: \
             use `tollgate_tonic::layer(limiter, key)`, with `LayerExt::named_layer` around a single service, \
             or `AsyncRateLimitInterceptor` (feature `async-interceptor`), \
             or `RateLimitInterceptor::after_layer` behind a layer that checks the limit",
        )
    }
}

impl std::error::Error for StoreNotInProcess {}
