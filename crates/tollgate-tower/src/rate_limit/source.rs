//! The limits of a layer: fixed limiters, tiers, limiters that are looked up for each request, and
//! deciders.
//! How the limiter is then asked is in `ask.rs`. Limits of tenants are fetched by the core.

use std::{any, collections::HashMap, fmt, hash::Hash};

use http::request::Parts;
use tollgate_core::{
    Limiter, LimiterHandle,
    limiter::{Limited, LimiterFuture, Selection},
    store::StoreFuture,
    tenants::TenantLimiters,
};

use crate::{
    key::KeyError,
    labels::MetricLabels,
    rate_limit::joint::{JointCheck, JointFuture},
};

/// A way to look up the limiter of a request.
pub(super) struct Lookup {
    find: FindLimiter,
    /// A limiter that it finds, for `Debug`.
    example: Option<Limiter>,
}

type FindLimiter = Box<dyn Fn(&Parts) -> Result<LimiterFuture, KeyError> + Send + Sync>;

impl Lookup {
    /// Returns the limiter of a request. It is ready at once where nothing has to be fetched.
    pub(super) fn limiter_for(&self, parts: &Parts) -> Result<LimiterFuture, KeyError> {
        (self.find)(parts)
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lookup").field(&self.example).finish()
    }
}

/// Lets several limits decide a request.
pub(super) type Decide =
    Box<dyn Fn(&Parts, JointCheck) -> Result<JointFuture, KeyError> + Send + Sync>;

fn ready(limiter: Limited) -> Result<LimiterFuture, KeyError> {
    Ok(StoreFuture::ready(Ok(limiter)))
}

/// Lists the limiters of a layer: the fixed ones, the ways to look others up, and the deciders.
#[derive(Default)]
pub(super) struct LimiterTable {
    pub(super) fixed: Vec<Limiter>,
    pub(super) lookups: Vec<Lookup>,
    pub(super) deciders: Vec<Decide>,
}

/// Says what limits a request.
#[derive(Clone, Copy)]
pub(super) enum Target {
    /// The fixed limiter at this index.
    Fixed(usize),
    /// The limiter that is looked up in the way at this index.
    Lookup(usize),
    /// The decider at this index.
    Decider(usize),
    Exempt,
}

/// Says what limits the requests of a layer.
pub(super) enum Selector {
    Always(Target),
    By(Select),
}

type Select = Box<dyn Fn(&Parts) -> Result<Target, KeyError> + Send + Sync>;

impl LimiterTable {
    pub(super) fn add_fixed(&mut self, limiter: Limiter) -> usize {
        self.fixed.push(limiter);
        self.fixed.len() - 1
    }

    /// Returns whether the limiters that are known before the first request have fair shares. The
    /// fixed one at `except` is not asked.
    pub(super) fn have_fair_shares(&self, except: Option<usize>) -> bool {
        let fixed = self.fixed.iter().enumerate();
        let asked = fixed.filter(|(at, _)| Some(*at) != except);
        let examples = self
            .lookups
            .iter()
            .filter_map(|lookup| lookup.example.as_ref());
        let mut known = asked.map(|(_, limiter)| limiter).chain(examples);
        known.all(Limiter::has_fair_shares)
    }

    fn add_lookup(&mut self, lookup: Lookup) -> Target {
        self.lookups.push(lookup);
        Target::Lookup(self.lookups.len() - 1)
    }

    fn add_decider(&mut self, decider: Decide) -> Target {
        self.deciders.push(decider);
        Target::Decider(self.deciders.len() - 1)
    }
}

/// Finds the limiter of each request of a layer.
///
/// [`RateLimitLayer::new`](crate::RateLimitLayer::new) takes every type of this table, because each
/// converts into a source:
///
/// | limits | type |
/// |---|---|
/// | the same for all requests | [`Limiter`] |
/// | the same for all requests, replaced while the service runs | [`LimiterHandle`] |
/// | from a list, by the tier of a request | [`TieredLimiters`](crate::TieredLimiters) |
/// | computed for each request by a function | [`LimiterSource::from_fn`] |
/// | fetched and cached, by the tenant of a request | [`TenantLimiters`], [`LimiterSource::by_tenant`] |
/// | several limiters and keys at once, such as rules in files | [`LimiterSource::from_decider`] |
///
/// The headers, the problem document and the metrics show the policies that decided the request.
/// All options of the layer work with every row except the last one, for which [some options have
/// no effect](LimiterSource::from_decider).
pub struct LimiterSource {
    pub(super) limiters: LimiterTable,
    pub(super) selector: Selector,
    pub(super) labels: Option<MetricLabels>,
}

impl LimiterSource {
    /// Selects the limits of each request by a function.
    ///
    /// The function returns one of these:
    ///
    /// - Policies, in every form that [`Limiter::new`] takes. They use the store and all options of
    ///   `default`. If two of them have the same name, or the set is invalid in another way, the
    ///   response is 500.
    /// - A [`Limiter`].
    /// - An `Option` of either. `None` selects `default`, so make `default` the strictest.
    /// - A [`Selection`]. [`Selection::Exempt`] lifts the limit, and [`Selection::Blocked`] denies
    ///   the request.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota, limiter::Selection};
    /// use tollgate_tower::{LimiterSource, RateLimitLayer, key::Global};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// const API: Policy = Policy::token_bucket("api", Quota::per_minute(10));
    ///
    /// /// The authentication inserts it.
    /// #[derive(Clone)]
    /// struct Account { requests_per_minute: u64 }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let limits = LimiterSource::from_fn(Limiter::new(MemoryStore::new(), API), |parts| {
    ///     let account = parts.extensions.get::<Account>()?;
    ///     API.with_quota(Quota::per_minute(account.requests_per_minute)).ok()
    /// });
    /// let service = RateLimitLayer::new(limits, Global)
    ///     .layer(service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) }));
    ///
    /// let request = Request::builder().extension(Account { requests_per_minute: 500 }).body(()).unwrap();
    /// let response = service.oneshot(request).await.unwrap();
    /// assert_eq!(response.headers()["ratelimit-policy"], r#""api";q=500;w=60"#);
    /// # }
    /// ```
    pub fn from_fn<F, S>(default: Limiter, select: F) -> Self
    where
        F: Fn(&Parts) -> S + Send + Sync + 'static,
        S: Into<Selection>,
    {
        Self::look_up(Some(default.clone()), move |parts| {
            let selected = select(parts).into().limiter(&default);
            ready(selected.map_err(|error| KeyError::misconfigured(error.to_string()))?)
        })
    }

    /// Selects the limits of the tenant of each request. They are fetched and cached.
    ///
    /// `find` returns the tenant of a request. With `None`, the [default
    /// limiter](TenantLimiters::default_limiter) limits the request. Use only a tenant that an
    /// authentication has verified: a client that chooses its tenant chooses its limits.
    ///
    /// If an outer layer inserts a `T` into the extensions of the request, pass the
    /// `TenantLimiters<T>` itself: no `find` is needed.
    pub fn by_tenant<T, F>(tenants: TenantLimiters<T>, find: F) -> Self
    where
        T: Clone + Eq + Hash + Send + Sync + 'static,
        F: Fn(&Parts) -> Option<T> + Send + Sync + 'static,
    {
        Self::look_up(
            Some(tenants.default_limiter().clone()),
            move |parts| match find(parts) {
                Some(tenant) => Ok(tenants.limiter_for(&tenant)),
                None => ready(Limited::By(tenants.default_limiter().clone())),
            },
        )
    }

    /// Limits each request by several limiters and keys at once.
    ///
    /// The rules of `tollgate-rules` are such a source: a request has a limit for each of its
    /// descriptors. When one key is enough, use a [`Limiter`] with several policies instead: it
    /// decides all of them in one step.
    ///
    /// `decide` finds the keys of a request from its head, so the layer does not use its key
    /// extractor. Pass [`Global`](crate::key::Global) to it. It takes
    /// [`cost`](crate::RateLimitBuilder::cost), [`priority`](crate::RateLimitBuilder::priority) and
    /// [`enforcement`](crate::RateLimitBuilder::enforcement) from its [`JointCheck`]. When it finds
    /// no key, it returns a [`KeyError`]. When its future fails, the response is 413 for a cost
    /// that never fits, 500 for [`ErrorKind::Config`](tollgate_core::ErrorKind::Config), and 503
    /// otherwise.
    ///
    /// Options that need one key have no effect, and the layer logs them once at `warn`:
    /// [`wait`](crate::RateLimitBuilder::wait), [`costs`](crate::RateLimitBuilder::costs) apart
    /// from the cost of policies that they do not name,
    /// [`reserve`](crate::RateLimitBuilder::reserve),
    /// [`partition_key`](crate::RateLimitBuilder::partition_key) and
    /// [`expose_request_limiter`](crate::RateLimitBuilder::expose_request_limiter). With
    /// [`charge_after`](crate::RateLimitBuilder::charge_after), the layer charges before the
    /// response, as [`charge_on`](crate::RateLimitBuilder::charge_on) does.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota, store::StoreFuture};
    /// use tollgate_tower::{
    ///     JointDecision, LimiterSource, RateLimitLayer,
    ///     key::{Global, KeyError},
    /// };
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let store = MemoryStore::new();
    /// let hosts = Limiter::new(store.clone(), Policy::fixed_window("host", Quota::per_day(1)));
    /// let service = Limiter::new(store, Policy::fixed_window("service", Quota::per_day(100)));
    /// // Limits the requests of each host, and all requests of the service.
    /// let limits = LimiterSource::from_decider(move |parts, check| {
    ///     let host = parts.uri.host().ok_or(KeyError::missing("the request names no host"))?.to_owned();
    ///     let (hosts, service) = (hosts.clone(), service.clone());
    ///     Ok(StoreFuture::pending(async move {
    ///         let all = service.check("all").cost(check.costs()).await?;
    ///         if all.is_denied() && check.is_enforced(&"all".into()) {
    ///             return Ok(Some(JointDecision::denied().with(service, "all".into(), all)));
    ///         }
    ///         let of_host = hosts.check(host.clone()).cost(check.costs()).await?;
    ///         if of_host.is_denied() && check.is_enforced(&host.clone().into()) {
    ///             // What the request has spent elsewhere is returned.
    ///             service.refund("all", check.cost()).of(&all).await?;
    ///             return Ok(Some(JointDecision::denied().with(hosts, host.into(), of_host)));
    ///         }
    ///         let both = JointDecision::allowed().with(service, "all".into(), all).with(hosts, host.into(), of_host);
    ///         Ok(Some(both))
    ///     }))
    /// });
    /// let service = RateLimitLayer::new(limits, Global)
    ///     .layer(service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) }));
    ///
    /// let request = || Request::get("http://one.example.com/").body(()).unwrap();
    /// let allowed = service.clone().oneshot(request()).await.unwrap();
    /// assert_eq!(allowed.headers()["ratelimit-policy"], r#""service";q=100;w=86400, "host";q=1;w=86400"#);
    /// let denied = service.oneshot(request()).await.unwrap();
    /// assert_eq!(denied.status(), 429);
    /// assert!(denied.body().contains(r#""violated-policies":["host"]"#));
    /// # }
    /// ```
    pub fn from_decider(
        decide: impl Fn(&Parts, JointCheck) -> Result<JointFuture, KeyError> + Send + Sync + 'static,
    ) -> Self {
        let mut limiters = LimiterTable::default();
        let target = limiters.add_decider(Box::new(decide));
        Self {
            limiters,
            selector: Selector::Always(target),
            labels: None,
        }
    }

    /// Sets the metric labels of the layer, unless its builder sets
    /// [others](crate::RateLimitBuilder::metric_labels).
    ///
    /// Use it when the source knows the names of the limited methods or routes. The labels of a
    /// source inside another one, such as the limiters of a tier, have no effect.
    #[must_use]
    pub fn with_metric_labels(mut self, labels: MetricLabels) -> Self {
        self.labels = Some(labels);
        self
    }

    /// Returns the limiter of a request, or its exemption, for code that limits requests without a
    /// layer.
    ///
    /// # Errors
    ///
    /// Fails when [`TieredLimiters::strict`](crate::TieredLimiters::strict) has no limiter for the
    /// tier of the request, when the policies of [`from_fn`](Self::from_fn) are no valid set, and
    /// for a [decider](Self::from_decider), which has no single limiter.
    pub fn limiter_for(&self, parts: &Parts) -> Result<LimiterFuture, KeyError> {
        let target = match &self.selector {
            Selector::Always(target) => *target,
            Selector::By(select) => select(parts)?,
        };
        match target {
            Target::Fixed(at) => ready(Limited::By(self.limiters.fixed[at].clone())),
            Target::Lookup(at) => self.limiters.lookups[at].limiter_for(parts),
            Target::Decider(_) => Err(KeyError::misconfigured(
                "several limiters decide this request together, and only a layer can do that: give the source to a layer, or \
                 to one level of tiers",
            )),
            Target::Exempt => ready(Limited::Exempt),
        }
    }

    /// Adds all limiters of the source to a table.
    fn add_to(mut self, table: &mut LimiterTable) -> Target {
        match self.selector {
            Selector::Always(Target::Fixed(at)) => {
                Target::Fixed(table.add_fixed(self.limiters.fixed.swap_remove(at)))
            }
            Selector::Always(Target::Lookup(at)) => {
                table.add_lookup(self.limiters.lookups.swap_remove(at))
            }
            Selector::Always(Target::Decider(at)) => {
                table.add_decider(self.limiters.deciders.swap_remove(at))
            }
            // A source that selects by itself is asked as a whole.
            _ => {
                let example = self.limiters.fixed.first().cloned();
                table.add_lookup(Lookup {
                    find: Box::new(move |parts| self.limiter_for(parts)),
                    example,
                })
            }
        }
    }

    fn look_up(
        example: Option<Limiter>,
        find: impl Fn(&Parts) -> Result<LimiterFuture, KeyError> + Send + Sync + 'static,
    ) -> Self {
        let mut limiters = LimiterTable::default();
        let target = limiters.add_lookup(Lookup {
            find: Box::new(find),
            example,
        });
        Self {
            limiters,
            selector: Selector::Always(target),
            labels: None,
        }
    }
}

impl From<Limiter> for LimiterSource {
    fn from(limiter: Limiter) -> Self {
        let limiters = LimiterTable {
            fixed: vec![limiter],
            ..LimiterTable::default()
        };
        Self {
            limiters,
            selector: Selector::Always(Target::Fixed(0)),
            labels: None,
        }
    }
}

impl From<LimiterHandle> for LimiterSource {
    /// Limits each request by the limiter that the handle holds when the request arrives.
    fn from(limiter: LimiterHandle) -> Self {
        Self::look_up(Some(limiter.load().clone()), move |_| {
            ready(Limited::By(limiter.load().clone()))
        })
    }
}

impl<T: Clone + Eq + Hash + Send + Sync + 'static> From<TenantLimiters<T>> for LimiterSource {
    /// Limits each request by the limits of the tenant in its extensions: see
    /// [`LimiterSource::by_tenant`].
    fn from(tenants: TenantLimiters<T>) -> Self {
        Self::by_tenant(tenants, |parts| parts.extensions.get().cloned())
    }
}

impl fmt::Debug for LimiterTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(&self.fixed)
            .entries(&self.lookups)
            .finish()
    }
}

tollgate_core::debug_fields! { LimiterSource: limiters, .. }

/// Selects a limiter by the tier of a request, such as the plan of a customer.
///
/// A tier is a value that an outer layer, such as the authentication, inserts into the extensions
/// of the request. [`by`](Self::by) finds the tier by a closure instead. The default limiter limits
/// a request without a tier, or with a tier that is not listed. Make it the strictest.
///
/// The store counts by the name of a policy and by the key. If the policies of two tiers have
/// different names, a caller that changes its tier starts with a fresh quota. If the names are
/// equal, the spent units stay spent.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{Key, Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{RateLimitLayer, TieredLimiters, key::FromExtension};
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
/// let service = RateLimitLayer::new(tiers, FromExtension::<UserId>::new())
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
    /// The default, like the limiter of each tier, may be any [`LimiterSource`], such as a
    /// [`LimiterHandle`](tollgate_core::LimiterHandle) or the limits of tenants.
    pub fn new(default: impl Into<LimiterSource>) -> Self {
        let mut tiers = Self::strict();
        tiers.default = Ok(default.into().add_to(&mut tiers.limiters));
        tiers
    }

    /// Creates tiers without a default limiter.
    ///
    /// The response to a request whose tier is missing or not listed is 500, and the mistake is
    /// logged once: the layer that inserts the tier must be outside of the rate limit.
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
        let TieredLimiters {
            limiters,
            by_tier,
            default,
            find,
        } = tiers;
        let select = move |parts: &Parts| {
            let listed = find(parts).and_then(|tier| by_tier.get(&tier).copied());
            listed.map_or(default, Ok).map_err(|tier| {
                KeyError::misconfigured(format!(
                    "the request has no tier, or one without a limiter: the layer that inserts a `{tier}` must be outside the rate limit"
                ))
            })
        };
        Self {
            limiters,
            selector: Selector::By(Box::new(select)),
            labels: None,
        }
    }
}

tollgate_core::debug_fields! { TieredLimiters<T>: limiters, .. }
