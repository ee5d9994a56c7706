//! Counts the units of a request while the service works on it.
//! How the counts become a charge is decided in `rate_limit/reservation/`.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tollgate_core::{
    Cost, Costs, Policy, PolicySet,
    reservation::{GrowingReservation, Growth, GrowthError},
};

/// Counts the units that a request costs, while the service works on it.
///
/// The cost of some work is known only when the work is done: the tokens of a language model, the
/// bytes of an export. The handler adds them to the meter as it writes the response. Clones share
/// the counts, so the stream of the response body can own a clone.
///
/// A layer that [reserves](crate::RateLimitBuilder::reserve) inserts a meter into the extensions of
/// each request that it admits. The meter of an exempt request has a counter for every name, and
/// counts nothing. With the feature `axum` a meter is also an extractor. Without such a layer, the
/// extractor logs the mistake once at `error`, and returns a meter that counts nothing.
///
/// A count is an atomic number. Adding to it takes no lock and no allocation. Counts stay at
/// `u64::MAX - 1` instead of overflowing.
///
/// The meter of a reservation that [grows](crate::rate_limit::reservation::ReservationBuilder::growing)
/// has one count, of the units of its slices, and counts nothing that is not reserved. Call
/// [`take`](Self::take) before units leave. [`add`](Self::add), for units that have left already,
/// counts as many as are reserved, and the rest is not charged. Counters of policies that do not grow
/// count nothing then: these are charged the estimate.
///
/// ```
/// use tollgate::{Cost, Costs, Policy, PolicySet, Quota};
/// use tollgate_tower::Meter;
///
/// let policies = PolicySet::from([
///     Policy::token_bucket("requests", Quota::per_minute(60)),
///     Policy::token_bucket("tokens", Quota::per_minute(10_000)),
/// ]);
/// let meter = Meter::for_policies(&policies);
/// let tokens = meter.counter("tokens").unwrap();
/// assert_eq!(tokens.get(), None);
/// tokens.add(12);
/// tokens.add(30);
/// assert_eq!(meter.counted("tokens"), Some(42));
///
/// // The estimate stands for what was not counted.
/// let estimate = Costs::from([("requests", 1), ("tokens", 850)]);
/// assert_eq!(meter.costs(estimate), Costs::from([("requests", 1), ("tokens", 42)]));
/// ```
#[derive(Clone)]
pub struct Meter(Counter);

/// Counts the units of one policy. [`Meter::counter`] returns it.
#[derive(Clone)]
pub struct Counter {
    /// `None` counts nothing.
    counts: Option<Arc<Counts>>,
    at: usize,
}

struct Counts {
    policies: Option<PolicySet>,
    /// Counts instead, for a reservation that grows.
    growth: Option<Growth>,
    /// The first count is for all policies that have no count of their own, which follow.
    each: [Count; 1 + PolicySet::MAX_POLICIES],
}

/// A number, or nothing: the greatest number stands for nothing.
struct Count(AtomicU64);

impl Count {
    const NOTHING: u64 = u64::MAX;
    const MAX: u64 = u64::MAX - 1;

    const fn new() -> Self {
        Self(AtomicU64::new(Self::NOTHING))
    }

    fn add(&self, units: u64) {
        let sum = |count: u64| {
            Some(
                if count == Self::NOTHING {
                    units
                } else {
                    count.saturating_add(units)
                }
                .min(Self::MAX),
            )
        };
        // The closure always returns a number, so the update succeeds.
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, sum);
    }

    fn set(&self, units: u64) {
        self.0.store(units.min(Self::MAX), Ordering::Release);
    }

    fn get(&self) -> Option<u64> {
        let count = self.0.load(Ordering::Acquire);
        (count != Self::NOTHING).then_some(count)
    }
}

impl Meter {
    /// Counts nothing: the meter of a request that no limit applies to.
    pub(crate) const UNREAD: Self = Self(Counter {
        counts: None,
        at: 0,
    });

    /// Creates a meter with one count, which is for all policies.
    #[must_use]
    pub fn new() -> Self {
        Self::with_policies(None, None)
    }

    /// Creates a meter that also has a count for each policy of a set.
    #[must_use]
    pub fn for_policies(policies: &PolicySet) -> Self {
        Self::with_policies(Some(policies.clone()), None)
    }

    /// Creates the meter of a reservation that grows and was made without a layer, such as one of rules.
    ///
    /// The reservation has to live as long as the response. [`guard_fn`](crate::body::guard_fn) keeps it
    /// in a body.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Limiter, Policy, Quota};
    /// use tollgate_tower::Meter;
    ///
    /// let limiter = Limiter::in_memory(Policy::fixed_window("tokens", Quota::per_day(4)));
    /// let stream = limiter.reserve("acme", 0).growing(2).await?;
    /// let meter = Meter::growing(&stream);
    /// meter.take(3).await?;
    /// stream.commit().await?;
    /// assert_eq!(meter.counted("tokens"), Some(3));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn growing(reservation: &GrowingReservation) -> Self {
        let policies = reservation.decision().policies().clone();
        Self::with_policies(Some(policies), Some(reservation.growth().clone()))
    }

    fn with_policies(policies: Option<PolicySet>, growth: Option<Growth>) -> Self {
        let counts = Counts {
            policies,
            growth,
            each: [const { Count::new() }; 1 + PolicySet::MAX_POLICIES],
        };
        Self(Counter {
            counts: Some(Arc::new(counts)),
            at: 0,
        })
    }

    /// Counts units before they leave: as soon as they are reserved, where the reservation grows, and at
    /// once elsewhere.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use http_body_util::BodyExt;
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_tower::{Meter, RateLimitLayer, key::Global};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("tokens", Quota::per_day(1_000)));
    /// let layer = RateLimitLayer::builder(limiter.clone(), Global)
    ///     .reserve(|_request| [("tokens", 12)]) // The prompt.
    ///     .growing([("tokens", 256)])
    ///     .build();
    /// let service = layer.layer(service_fn(|request: Request<()>| async move {
    ///     let meter = request.extensions().get::<Meter>().unwrap();
    ///     let mut answer = String::new();
    ///     // The model never ends, and the limit does.
    ///     while meter.take(1).await.is_ok() {
    ///         answer.push('a');
    ///     }
    ///     Ok::<_, std::convert::Infallible>(Response::new(answer))
    /// }));
    /// let response = service.oneshot(Request::new(())).await.unwrap();
    /// let answer = response.into_body().collect().await.unwrap().to_bytes();
    /// assert_eq!(answer.len(), 3 * 256); // The fourth slice does not fit beside the prompt.
    /// assert_eq!(limiter.peek("all").await.unwrap().state("tokens").unwrap().remaining(), 220);
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Growth::take`]. Nothing was counted then. [`growth`](Self::growth) has a call that waits.
    pub async fn take(&self, units: u64) -> Result<(), GrowthError> {
        match self.growth() {
            Some(growth) => growth.take(units).await,
            None => {
                self.add(units);
                Ok(())
            }
        }
    }

    /// Returns what counts the units of a reservation that grows. `None` for any other reservation.
    #[must_use]
    pub fn growth(&self) -> Option<&Growth> {
        self.0.counts.as_ref()?.growth.as_ref()
    }

    /// Adds units to the count for all policies that have no count of their own.
    pub fn add(&self, units: u64) {
        self.0.add(units);
    }

    /// Sets the count for all policies that have no count of their own.
    pub fn set(&self, units: u64) {
        self.0.set(units);
    }

    /// Returns the count for all policies that have no count of their own. `None` when nothing was
    /// counted.
    #[must_use]
    pub fn get(&self) -> Option<u64> {
        self.0.get()
    }

    /// Returns the counter of the policy with this name. `None` when the set of the meter has no
    /// such policy.
    ///
    /// Keep the counter when you add many small amounts: it does not search for the name again.
    #[must_use]
    pub fn counter(&self, policy: &str) -> Option<Counter> {
        let Some(counts) = &self.0.counts else {
            return Some(self.0.clone());
        };
        let at = counts.names().position(|name| name == policy)?;
        Some(Counter {
            counts: Some(Arc::clone(counts)),
            at: at + 1,
        })
    }

    /// Returns the units that were counted for the policy with this name: its own count, or the
    /// count for all policies. `None` when nothing was counted for it.
    #[must_use]
    pub fn counted(&self, policy: &str) -> Option<u64> {
        self.counter(policy)
            .and_then(|own| own.get())
            .or_else(|| self.get())
    }

    /// Returns whether anything was counted. A count that was set to zero is a count.
    #[must_use]
    pub fn has_counted(&self) -> bool {
        self.0
            .counts
            .as_ref()
            .is_some_and(|counts| counts.each.iter().any(|count| count.get().is_some()))
    }

    /// Returns the count for all policies, and those that policies have of their own beside it. `None`
    /// when nothing was counted for all.
    pub(crate) fn sum(&self) -> Option<Costs> {
        let counts = self.0.counts.as_ref()?;
        let [all, own @ ..] = &counts.each;
        let own = counts.names().zip(own);
        let own = own.filter_map(|(name, count)| Some((name, count.get()?)));
        let all = Costs::new(Cost::new(all.get()?));
        Some(own.fold(all, |costs, (name, units)| {
            costs.with(name.to_owned(), units)
        }))
    }

    /// Returns the cost for each policy: what was counted for it, or the estimate where nothing was
    /// counted.
    #[must_use]
    pub fn costs(&self, estimate: Costs) -> Costs {
        let Some(policies) = self
            .0
            .counts
            .as_ref()
            .and_then(|counts| counts.policies.as_ref())
        else {
            return self.get().map_or(estimate, |units| Cost::new(units).into());
        };
        let counted = policies
            .iter()
            .filter_map(|policy| Some((policy.name(), self.counted(policy.name())?)));
        counted.fold(estimate, |costs, (name, units)| {
            costs.with(name.to_owned(), Cost::new(units))
        })
    }
}

impl Counts {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.policies
            .iter()
            .flat_map(PolicySet::iter)
            .map(Policy::name)
    }
}

impl Counter {
    /// Adds units.
    pub fn add(&self, units: u64) {
        match (&self.counts, self.growth()) {
            (_, Some(growth)) => {
                let counted = growth.take_up_to(units);
                if counted < units {
                    tracing::debug!(
                        units,
                        counted,
                        "units were counted that no slice has: they are not charged"
                    );
                }
            }
            (Some(counts), None) if counts.growth.is_none() => counts.each[self.at].add(units),
            _ => {}
        }
    }

    /// Sets the count. That of a reservation that grows is only raised.
    pub fn set(&self, units: u64) {
        match (&self.counts, self.growth()) {
            (_, Some(growth)) => self.add(units.saturating_sub(growth.counted())),
            (Some(counts), None) if counts.growth.is_none() => counts.each[self.at].set(units),
            _ => {}
        }
    }

    /// Returns what counts instead, if this counter is of a policy that grows.
    fn growth(&self) -> Option<&Growth> {
        let counts = self.counts.as_ref()?;
        let grows = |growth: &&Growth| {
            let own = self.at.checked_sub(1);
            own.and_then(|at| counts.names().nth(at))
                .is_none_or(|name| growth.grows(name))
        };
        counts.growth.as_ref().filter(grows)
    }

    /// Returns the count. `None` when nothing was counted.
    #[must_use]
    pub fn get(&self) -> Option<u64> {
        match self.growth() {
            Some(growth) => Some(growth.counted()),
            None => self.counts.as_ref()?.each[self.at].get(),
        }
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        if let Some(counts) = &self.0.counts {
            for (name, count) in counts.names().zip(&counts.each[1..]) {
                map.entry(&name, &count.get());
            }
        }
        map.entry(&"..", &self.get()).finish()
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.get()).finish()
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for Meter {
    type Rejection = std::convert::Infallible;

    /// Returns the meter of the innermost layer that [reserves](crate::RateLimitBuilder::reserve).
    /// Without such a layer, logs the mistake once and returns a meter that counts nothing.
    async fn from_request_parts(
        parts: &mut http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        static HAS_LOGGED: std::sync::atomic::AtomicBool =
            std::sync::atomic::AtomicBool::new(false);
        let meter = parts.extensions.get().cloned();
        if meter.is_none() && !HAS_LOGGED.swap(true, Ordering::Relaxed) {
            tracing::error!(
                hint = "build a layer with `reserve`, and put it around the route",
                "a handler counts with a meter that no layer has made: what it counts is not charged"
            );
        }
        Ok(meter.unwrap_or(Self::UNREAD))
    }
}
