use std::{any, collections::HashMap, fmt, hash::Hash};

use http::request::Parts;

use super::{
    source::LimiterSource,
    table::{LimiterTable, Selector, Target},
};
use crate::key::KeyError;

/// Selects a limiter by the tier of a request, such as the plan of a customer.
///
/// A tier is a value that an outer layer, such as the authentication, inserts into the extensions of
/// the request. [`by`](Self::by) finds the tier by a closure instead. A request without a tier, or
/// with a tier that is not listed, is limited by the default limiter. Make that one the strictest.
///
/// A counter belongs to the name of a policy and to a key. A caller that changes its tier starts with
/// a fresh quota if the policies of the tiers have different names. If the names are equal, the units
/// that it has spent stay spent.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{Key, Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{RateLimitLayer, TieredLimiters, key::Extension};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// enum Plan { Free, Pro, Staff }
///
/// #[derive(Clone)]
/// struct UserId(u64);
///
/// impl From<UserId> for Key {
///     fn from(UserId(id): UserId) -> Self {
///         id.into()
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let store = MemoryStore::new();
/// let free = Limiter::new(store.clone(), Policy::fixed_window("free", Quota::per_day(100)));
/// let pro = Limiter::new(store, Policy::fixed_window("pro", Quota::per_day(50_000)));
/// let tiers = TieredLimiters::new(free).tier(Plan::Pro, pro).exempt(Plan::Staff);
/// let service = RateLimitLayer::new(tiers, Extension::<UserId>::new())
///     .layer(service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) }));
///
/// // The authentication inserts both.
/// let request = Request::builder().extension(UserId(7)).extension(Plan::Pro).body(()).unwrap();
/// let response = service.clone().oneshot(request).await.unwrap();
/// assert_eq!(response.headers()["ratelimit-policy"], r#""pro";q=50000;w=86400"#);
///
/// let request = Request::builder().extension(UserId(8)).extension(Plan::Free).body(()).unwrap();
/// let response = service.oneshot(request).await.unwrap();
/// assert_eq!(response.headers()["ratelimit-policy"], r#""free";q=100;w=86400"#);
/// # }
/// ```
#[must_use = "tiers limit nothing until a layer uses them"]
pub struct TieredLimiters<T> {
    limiters: LimiterTable,
    by_tier: HashMap<T, Target>,
    /// Applies to tiers that are not listed. Without a default it is the name of the tier's type.
    default: Result<Target, &'static str>,
    find: Find<T>,
}

type Find<T> = Box<dyn Fn(&Parts) -> Option<T> + Send + Sync>;

impl<T: Clone + Eq + Hash + Send + Sync + 'static> TieredLimiters<T> {
    /// Creates tiers with a default limiter, for requests whose tier is missing or not listed.
    ///
    /// The default, like the limiter of each tier, may be any [`LimiterSource`]: a
    /// [`LimiterHandle`](tollgate::LimiterHandle), or the limits of tenants.
    pub fn new(default: impl Into<LimiterSource>) -> Self {
        let mut tiers = Self::strict();
        tiers.default = Ok(default.into().add_to(&mut tiers.limiters));
        tiers
    }

    /// Creates tiers without a default limiter.
    ///
    /// A request whose tier is missing or not listed is answered with 500: the layer that inserts the
    /// tier is missing, or is not outside of the rate limit.
    pub fn strict() -> Self {
        Self {
            limiters: LimiterTable::default(),
            by_tier: HashMap::new(),
            default: Err(any::type_name::<T>()),
            find: Box::new(|parts| parts.extensions.get().cloned()),
        }
    }

    /// Adds a tier with its limiter.
    pub fn tier(mut self, tier: T, limiter: impl Into<LimiterSource>) -> Self {
        let target = limiter.into().add_to(&mut self.limiters);
        self.by_tier.insert(tier, target);
        self
    }

    /// Adds a tier without a limit.
    pub fn exempt(mut self, tier: T) -> Self {
        self.by_tier.insert(tier, Target::Exempt);
        self
    }

    /// Finds the tier of a request by a closure, instead of by an extension of type `T`.
    pub fn by(mut self, find: impl Fn(&Parts) -> Option<T> + Send + Sync + 'static) -> Self {
        self.find = Box::new(find);
        self
    }
}

impl<T: Clone + Eq + Hash + Send + Sync + 'static> From<TieredLimiters<T>> for LimiterSource {
    fn from(tiers: TieredLimiters<T>) -> Self {
        let TieredLimiters { limiters, by_tier, default, find } = tiers;
        let select = move |parts: &Parts| {
            let listed = find(parts).and_then(|tier| by_tier.get(&tier).copied());
            listed.map_or(default, Ok).map_err(|tier| {
                KeyError::misconfigured(format!(
                    "the request has no tier, or one without a limiter: the layer that inserts a `{tier}` must be outside the rate limit"
                ))
            })
        };
        Self { limiters, selector: Selector::By(Box::new(select)), labels: None }
    }
}

impl<T> fmt::Debug for TieredLimiters<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TieredLimiters").field("limiters", &self.limiters).finish_non_exhaustive()
    }
}
