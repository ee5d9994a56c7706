use std::{fmt, sync::Arc};

use http::request::Parts;
use tollgate::{CheckFuture, Cost, Decision, Error, Key, Limiter};

use crate::{
    metrics::Place,
    shared::{Rpc, Shared},
};

/// Whose quota a request spends, for what it turns out to spend on its way.
///
/// A layer that [opens accounts](crate::RateLimitBuilder::open_accounts) puts one into the
/// extensions of each request that it passes on. Its checks are those of the layer: with the same
/// waiting, shadow, metrics and log. tollgate-tonic charges each message of a stream with it.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{Account, RateLimitLayer, key::Header, rejection::Empty};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("rows", Quota::per_day(100)));
/// let layer = RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
///     .respond_with(Empty)
///     .open_accounts(None)
///     .build();
///
/// // The request itself has spent a unit; each of its rows is one more.
/// let service = layer.layer(service_fn(|request: Request<u32>| async move {
///     let account = request.extensions().get::<Account>().unwrap();
///     let answer = account.check(Cost::new(*request.body())).await;
///     Ok::<_, std::convert::Infallible>(Response::new(account.admits(&answer)))
/// }));
/// let request = |rows| Request::builder().header("x-api-key", "acme").body(rows).unwrap();
/// assert!(service.clone().oneshot(request(80)).await.unwrap().into_body());
/// assert!(!service.oneshot(request(80)).await.unwrap().into_body());
/// assert_eq!(limiter.peek("acme").await.unwrap().state("rows").unwrap().remaining(), 18);
/// # }
/// ```
#[derive(Clone)]
pub struct Account {
    ledger: Arc<dyn Ledger>,
    at: usize,
    key: Key,
    place: Place,
    rpc: Rpc<Box<str>>,
}

/// What a layer knows, without its type parameters.
pub(crate) trait Ledger: Send + Sync {
    fn limiter(&self, at: usize) -> &Limiter;

    fn check(&self, at: usize, key: Key, cost: Cost) -> CheckFuture;

    fn note(&self, at: usize, answer: &Result<Decision, Error>, place: Place, rpc: &Rpc<&str>) -> bool;
}

impl Account {
    pub(crate) fn new<K, R>(shared: &Arc<Shared<K, R>>, at: usize, key: Key, parts: &Parts, place: Place) -> Self
    where
        K: Send + Sync + 'static,
        R: Send + Sync + 'static,
    {
        let ledger: Arc<dyn Ledger> = Arc::clone(shared) as _;
        // The names are for the log alone.
        let rpc = if tracing::enabled!(tracing::Level::DEBUG) { shared.rpc(parts).into_owned() } else { Rpc::NONE };
        Self { ledger, at, key, place, rpc }
    }

    /// The limiter that is asked.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        self.ledger.limiter(self.at)
    }

    /// Whose quota is spent.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Spends `cost` more units, or nothing; [waits](crate::RateLimitBuilder::wait) for a turn where
    /// the layer does.
    ///
    /// # Errors
    ///
    /// As [`Limiter::check_cost`].
    pub fn check(&self, cost: Cost) -> CheckFuture {
        self.ledger.check(self.at, self.key.clone(), cost)
    }

    /// Whether the request may go on, after a [check](Self::check); counts and logs the answer as
    /// the layer does its own. In [shadow](crate::RateLimitBuilder::shadow) it always may.
    #[must_use = "a request that is not admitted must not go on"]
    pub fn admits(&self, answer: &Result<Decision, Error>) -> bool {
        self.ledger.note(self.at, answer, self.place, &self.rpc.as_deref())
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("limiter", self.limiter()).finish_non_exhaustive()
    }
}
