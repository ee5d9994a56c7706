use std::{any, collections::HashMap, fmt, hash::Hash};

use http::request::Parts;
use tollgate::Limiter;

use crate::{MetricLabels, key::KeyError};

/// Limiters by tier: which policies hold depends on the request.
///
/// A tier is a value that an earlier layer, the authentication, left in the request's extensions;
/// [`by`](Self::by) finds it elsewhere. A request without a tier, or with one that is not listed,
/// is limited by the limiter that [`new`](Self::new) takes: make it the strictest.
///
/// Counters belong to the name of a policy and the key: a caller that changes from one tier to
/// another starts with a fresh quota where the names differ, and keeps what it has spent where the
/// new tier's policy has the same name.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{RateLimitLayer, TieredLimiters, key::Header};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// enum Plan { Free, Pro, Staff }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let store = MemoryStore::new();
/// let free = Limiter::new(store.clone(), Policy::fixed_window("free", Quota::per_day(100)));
/// let pro = Limiter::new(store, Policy::fixed_window("pro", Quota::per_day(50_000)));
/// let tiers = TieredLimiters::new(free).tier(Plan::Pro, pro).exempt(Plan::Staff);
/// let service = RateLimitLayer::new(tiers, Header::new("x-api-key"))
///     .layer(service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) }));
///
/// let request = Request::builder().header("x-api-key", "acme").extension(Plan::Pro).body(()).unwrap();
/// let response = service.clone().oneshot(request).await.unwrap();
/// assert_eq!(response.headers()["ratelimit-policy"], r#""pro";q=50000;w=86400"#);
///
/// let request = Request::builder().header("x-api-key", "acme").extension(Plan::Free).body(()).unwrap();
/// let response = service.oneshot(request).await.unwrap();
/// assert_eq!(response.headers()["ratelimit-policy"], r#""free";q=100;w=86400"#);
/// # }
/// ```
#[must_use = "tiers limit nothing by themselves"]
pub struct TieredLimiters<T> {
    limiters: Vec<Limiter>,
    by_tier: HashMap<T, Pick>,
    others: Result<Pick, &'static str>,
    find: Find<T>,
}

type Find<T> = Box<dyn Fn(&Parts) -> Option<T> + Send + Sync>;

/// What holds for a request.
#[derive(Clone, Copy)]
pub(crate) enum Pick {
    /// The limiter at this place.
    Limiter(usize),
    Exempt,
}

impl<T: Clone + Eq + Hash + Send + Sync + 'static> TieredLimiters<T> {
    /// TieredLimiters where `others` limits the requests that have none of those listed.
    pub fn new(others: Limiter) -> Self {
        let mut tiers = Self::strict();
        tiers.others = Ok(Pick::Limiter(0));
        tiers.limiters.push(others);
        tiers
    }

    /// TieredLimiters where a request that has none of those listed is answered with 500: the layer that
    /// finds the tier is missing or inside this one.
    pub fn strict() -> Self {
        Self {
            limiters: Vec::new(),
            by_tier: HashMap::new(),
            others: Err(any::type_name::<T>()),
            find: Box::new(|parts| parts.extensions.get().cloned()),
        }
    }

    /// The limiter of the requests of one tier.
    pub fn tier(mut self, tier: T, limiter: Limiter) -> Self {
        self.by_tier.insert(tier, Pick::Limiter(self.limiters.len()));
        self.limiters.push(limiter);
        self
    }

    /// A tier without a limit.
    pub fn exempt(mut self, tier: T) -> Self {
        self.by_tier.insert(tier, Pick::Exempt);
        self
    }

    /// Finds the tier by a closure, not as an extension of type `T`.
    pub fn by(mut self, find: impl Fn(&Parts) -> Option<T> + Send + Sync + 'static) -> Self {
        self.find = Box::new(find);
        self
    }

    fn pick(&self, parts: &Parts) -> Result<Pick, KeyError> {
        let listed = (self.find)(parts).and_then(|tier| self.by_tier.get(&tier).copied());
        listed.map_or(self.others, Ok).map_err(|tier| {
            KeyError::misconfigured(format!(
                "the request has no tier, or one without a limiter: the layer that inserts a `{tier}` must be outside the rate limit"
            ))
        })
    }
}

impl<T> fmt::Debug for TieredLimiters<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TieredLimiters").field("limiters", &self.limiters).finish_non_exhaustive()
    }
}

/// The limiters of a layer: one [`Limiter`], or [`TieredLimiters`].
pub struct LimiterSource {
    pub(crate) limiters: Vec<Limiter>,
    pub(crate) pick: Option<Picker>,
    pub(crate) labels: Option<MetricLabels>,
}

impl LimiterSource {
    /// These, with the labels that the metrics have unless the builder is given
    /// [others](crate::RateLimitBuilder::metric_labels). For tables of limiters that know the names of what
    /// they limit.
    #[must_use]
    pub fn with_metric_labels(mut self, labels: MetricLabels) -> Self {
        self.labels = Some(labels);
        self
    }
}

/// Says which limiter holds, where there is more than one.
pub(crate) type Picker = Box<dyn Fn(&Parts) -> Result<Pick, KeyError> + Send + Sync>;

impl From<Limiter> for LimiterSource {
    fn from(limiter: Limiter) -> Self {
        Self { limiters: vec![limiter], pick: None, labels: None }
    }
}

impl<T: Clone + Eq + Hash + Send + Sync + 'static> From<TieredLimiters<T>> for LimiterSource {
    fn from(tiers: TieredLimiters<T>) -> Self {
        Self { limiters: tiers.limiters.clone(), pick: Some(Box::new(move |parts| tiers.pick(parts))), labels: None }
    }
}

impl fmt::Debug for LimiterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LimiterSource").field(&self.limiters).finish()
    }
}
