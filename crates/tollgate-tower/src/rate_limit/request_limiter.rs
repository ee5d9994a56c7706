use std::{fmt, sync::Arc};

use tollgate::{CheckFuture, Cost, Decision, Error, Key, Limiter};

use crate::{metrics::LabelIndex, rate_limit::limit::LimitRef, rpc::RpcName};

/// Charges further units for a request while the service handles it.
///
/// It joins a limiter with the key of the request. A layer with
/// [`expose_request_limiter`](crate::RateLimitBuilder::expose_request_limiter) inserts one into the
/// extensions of each request that it admits. Its checks wait, log and count as those of the layer
/// do, and follow its shadow mode. tollgate-tonic uses it to charge each message of a stream.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{RateLimitLayer, RequestLimiter, key::Header, rejection::Empty};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("rows", Quota::per_day(100)));
/// let layer = RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
///     .respond_with(Empty)
///     .expose_request_limiter(None)
///     .build();
///
/// // The layer charges one unit for the request. The service charges one more for each row.
/// let service = layer.layer(service_fn(|request: Request<u64>| async move {
///     let limiter = request.extensions().get::<RequestLimiter>().unwrap();
///     let result = limiter.check(Cost::new(*request.body())).await;
///     Ok::<_, std::convert::Infallible>(Response::new(limiter.admits(&result)))
/// }));
/// let request = |rows| Request::builder().header("x-api-key", "acme").body(rows).unwrap();
/// assert!(service.clone().oneshot(request(80)).await.unwrap().into_body());
/// assert!(!service.oneshot(request(80)).await.unwrap().into_body());
/// assert_eq!(limiter.peek("acme").await.unwrap().state("rows").unwrap().remaining(), 18);
/// # }
/// ```
#[derive(Clone)]
pub struct RequestLimiter {
    charger: Arc<dyn Charger>,
    limit: LimitRef,
    key: Key,
    labels: LabelIndex,
    rpc: RpcName<Box<str>>,
}

/// Charges requests. The layer implements it, so that a [`RequestLimiter`] does not carry the type parameters of the
/// layer.
pub(crate) trait Charger: Send + Sync {
    fn limiter<'a>(&'a self, limit: &'a LimitRef) -> &'a Limiter;

    fn check(&self, limit: &LimitRef, key: &Key, cost: Cost) -> CheckFuture;

    /// Logs and counts the result of a check. Returns whether the request may go on.
    fn record(
        &self,
        limit: &LimitRef,
        result: &Result<Decision, Error>,
        labels: LabelIndex,
        rpc: &RpcName<&str>,
    ) -> bool;
}

impl RequestLimiter {
    pub(crate) fn new(
        charger: Arc<dyn Charger>,
        limit: LimitRef,
        key: Key,
        labels: LabelIndex,
        rpc: RpcName<Box<str>>,
    ) -> Self {
        Self { charger, limit, key, labels, rpc }
    }

    /// Returns the limiter that is checked.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        self.charger.limiter(&self.limit)
    }

    /// Returns the key of the request.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Charges `cost` more units, or none when they do not fit.
    ///
    /// Waits for quota where the layer [waits](crate::RateLimitBuilder::wait). Pass the result to
    /// [`admits`](Self::admits).
    ///
    /// # Errors
    ///
    /// The same as [`Limiter::check_cost`].
    pub fn check(&self, cost: Cost) -> CheckFuture {
        self.charger.check(&self.limit, &self.key, cost)
    }

    /// Returns whether the request may go on after a [`check`](Self::check).
    ///
    /// Logs and counts the result as the layer does. In [shadow mode](crate::RateLimitBuilder::shadow)
    /// the request may always go on.
    #[must_use = "a request that is not admitted must not go on"]
    pub fn admits(&self, result: &Result<Decision, Error>) -> bool {
        self.charger.record(&self.limit, result, self.labels, &self.rpc.as_deref())
    }
}

impl fmt::Debug for RequestLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestLimiter").field("limiter", self.limiter()).finish_non_exhaustive()
    }
}
