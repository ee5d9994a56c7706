use std::{fmt, time::Duration};

use http::request::Parts;
use tollgate::{Costs, Key, Limiter, reservation::Reservation, store::StoreFuture};

use crate::{rate_limit::builder::RateLimitBuilder, rejection::Problem};

/// Computes the estimate of a request from its head.
pub(crate) type EstimateOf = Box<dyn Fn(&Parts) -> Costs + Send + Sync>;

/// Stores the options of reservations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReserveOptions {
    pub(crate) time_to_live: Option<Duration>,
    pub(crate) is_capped: bool,
}

/// The bounds of a time to live.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

impl ReserveOptions {
    /// Sets the time to live.
    ///
    /// # Panics
    ///
    /// Panics when it is not between 1 ms and 7 days.
    pub(super) fn set_time_to_live(&mut self, time_to_live: Duration) {
        assert!(
            (SHORTEST..=LONGEST).contains(&time_to_live),
            "time to live must be {SHORTEST:?} to {LONGEST:?}, got {time_to_live:?}"
        );
        self.time_to_live = Some(time_to_live);
    }

    /// Reserves the estimate, for a turn within `max_wait` where the layer waits.
    pub(crate) fn reserve(
        self,
        limiter: &Limiter,
        key: &Key,
        estimate: Costs,
        max_wait: Option<Duration>,
    ) -> StoreFuture<Reservation> {
        let mut reserve = limiter.reserve(key.clone(), estimate);
        if let Some(max_wait) = max_wait {
            reserve = reserve.wait(max_wait);
        }
        if let Some(time_to_live) = self.time_to_live {
            reserve = reserve.time_to_live(time_to_live);
        }
        if self.is_capped {
            reserve = reserve.capped();
        }
        reserve.into_future()
    }
}

/// Builds a [`ReservationLayer`](crate::rate_limit::reservation::ReservationLayer).
///
/// [`RateLimitBuilder::reserve`] creates it. Set the other options of the layer before or after `reserve`. Those that a
/// reservation replaces, such as [`RateLimitBuilder::cost`], are missing here. So is [`RateLimitBuilder::wait`]: set it
/// before `reserve`.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{HeaderFormat, RateLimitLayer, key::Global, rejection::Empty};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("tokens", Quota::per_day(100)));
/// let layer = RateLimitLayer::builder(limiter, Global)
///     .reserve(|_| [("tokens", 60)])
///     .exempt(|parts| parts.uri.path() == "/healthz")
///     .header_format(HeaderFormat::Ietf07)
///     .respond_with(Empty)
///     .build();
/// let service =
///     layer.layer(service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) }));
///
/// let get = |path| Request::get(path).body(()).unwrap();
/// let admitted = service.clone().oneshot(get("/")).await.unwrap();
/// assert_eq!(admitted.headers()["ratelimit"].to_str().unwrap().split(", reset").next(), Some("limit=100, remaining=40"));
/// let denied = service.clone().oneshot(get("/")).await.unwrap();
/// assert_eq!(denied.status(), 429);
/// assert!(denied.headers().get("content-type").is_none(), "no problem document");
/// assert_eq!(service.oneshot(get("/healthz")).await.unwrap().status(), 200);
/// # }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct ReservationBuilder<K, R = Problem> {
    pub(super) builder: RateLimitBuilder<K, R>,
    pub(super) estimate: EstimateOf,
    pub(super) options: ReserveOptions,
}

impl<K, R> ReservationBuilder<K, R> {
    pub(crate) fn new(builder: RateLimitBuilder<K, R>, estimate: EstimateOf) -> Self {
        Self { builder, estimate, options: ReserveOptions::default() }
    }

    /// Lowers an estimate above the burst of a policy to that burst. By default the response to such a request is 413.
    ///
    /// Units that the meter counts beyond the burst are charged as a debt.
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::Global};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let service = service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) });
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("tokens", Quota::per_day(100)));
    /// let builder = || RateLimitLayer::builder(limiter.clone(), Global).reserve(|_| Cost::new(663));
    /// let response = builder().build().layer(service.clone()).oneshot(Request::new(())).await.unwrap();
    /// assert_eq!(response.status(), 413);
    ///
    /// let response = builder().capped().build().layer(service).oneshot(Request::new(())).await.unwrap();
    /// assert_eq!(response.status(), 200);
    /// # }
    /// ```
    pub fn capped(mut self) -> Self {
        self.options.is_capped = true;
        self
    }

    /// Sets the time after which a reservation can no longer be settled: the estimate stays charged then. The default
    /// is 10 minutes.
    ///
    /// Set it longer than a response can take.
    ///
    /// # Panics
    ///
    /// Panics when it is not between 1 ms and 7 days.
    pub fn time_to_live(mut self, time_to_live: Duration) -> Self {
        self.options.set_time_to_live(time_to_live);
        self
    }
}

impl<K, R> fmt::Debug for ReservationBuilder<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReservationBuilder")
            .field("builder", &self.builder)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
