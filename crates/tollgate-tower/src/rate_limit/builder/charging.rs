//! The options that charge a request by its response, or while it is handled.
//! What they do with a request is in `charge.rs`.

use std::sync::Arc;

use http::StatusCode;
use tollgate_core::{Cost, Costs, Decision, Limiter};

use super::RateLimitBuilder;
use crate::{
    charge::{CostOfOutcome, FinalCost, Outcome},
    rate_limit::options::RequestLimiterSource,
};

impl<K, R> RateLimitBuilder<K, R> {
    /// Charges only responses with a matching status. All other responses are refunded.
    ///
    /// Every request is charged before the service is called, so that the limit also holds for
    /// concurrent requests. **The charge counts until the response**: of many concurrent requests,
    /// those beyond the quota are denied, although most may be refunded a moment later.
    /// [`charge_after`](Self::charge_after) charges after the response instead.
    ///
    /// A service that fails or panics counts as 500. A request that is cancelled
    /// before the response stays charged, because otherwise a client could avoid the limit by
    /// disconnecting early. [`final_cost`](Self::final_cost) is the general form of this option and
    /// replaces it.
    ///
    /// When an inner layer denies a request and this layer refunds it, `Retry-After` is the wait of
    /// the inner layer.
    pub fn charge_on(
        self,
        is_charged: impl Fn(StatusCode) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.final_cost(move |outcome, charged| match outcome.status() {
            Some(status) if !is_charged(status) => Cost::ZERO,
            _ => charged,
        })
    }

    /// Charges responses with a matching status after the response. All other responses cost
    /// nothing.
    ///
    /// A request passes if its cost fits at this moment, and is charged when the service has
    /// responded. For example, a limit of three failed log-ins lets thirty correct log-ins at once
    /// pass. When the cost does not fit, the request is denied.
    ///
    /// **The bound is weaker** than the one of [`charge_on`](Self::charge_on): requests that are
    /// under way at the same time do not see the charges of each other. A key can exceed its quota
    /// by the number of its concurrent requests, minus one. Where that matters, use `charge_on`, or
    /// limit the concurrent requests with a [`ConcurrencyLayer`](crate::ConcurrencyLayer).
    ///
    /// A service that fails or panics counts as 500. A request that is cancelled before the
    /// response is charged, because otherwise a client could avoid the limit by disconnecting
    /// early. The charge runs in the background and delays no response. The rate limit headers show
    /// the units before the charge. A leaky bucket does not delay these requests. Each charged
    /// request takes a second call of the store. The option replaces `charge_on` and
    /// [`final_cost`](Self::final_cost).
    ///
    /// ```
    /// # use http::{Request, Response, StatusCode};
    /// # use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::Global};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("guesses", Quota::per_day(2)));
    /// let layer = RateLimitLayer::builder(limiter.clone(), Global)
    ///     .charge_after(|status| status == StatusCode::UNAUTHORIZED)
    ///     .build();
    /// let service = layer.layer(service_fn(|request: Request<StatusCode>| async move {
    ///     Ok::<_, std::convert::Infallible>(Response::builder().status(*request.body()).body(String::new()).unwrap())
    /// }));
    ///
    /// let mut statuses = Vec::new();
    /// for status in [200, 200, 200, 401, 401, 200] {
    ///     let request = Request::new(StatusCode::from_u16(status).unwrap());
    ///     statuses.push(service.clone().oneshot(request).await.unwrap().status().as_u16());
    /// }
    /// assert_eq!(statuses, [200, 200, 200, 401, 401, 429]);
    /// # }
    /// ```
    pub fn charge_after(
        self,
        is_charged: impl Fn(StatusCode) -> bool + Send + Sync + 'static,
    ) -> Self {
        let mut builder = self.charge_on(is_charged);
        builder.options.charges_after = true;
        builder
    }

    /// Clears the [lockouts](tollgate_core::Policy::lockout) of the key after responses with a matching
    /// status.
    ///
    /// The failures and the lockouts of the key are forgotten, as by
    /// [`Limiter::reset`](tollgate_core::Limiter::reset). Policies of other algorithms do not change.
    /// Charge the failures with [`charge_on`](Self::charge_on) or
    /// [`charge_after`](Self::charge_after).
    ///
    /// **Do not clear the lockout of an address.** An attacker with an account would log in to it
    /// now and then, and go on guessing the passwords of other accounts. Clear only the lockout of
    /// the account.
    ///
    /// ```
    /// # use http::{Request, Response, StatusCode};
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::Global};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::lockout("login", Quota::per_hour(2), minute, hour));
    /// let layer = RateLimitLayer::builder(limiter, Global)
    ///     .charge_on(|status| status == StatusCode::UNAUTHORIZED)
    ///     .clear_on(|status| status.is_success())
    ///     .build();
    /// let service = layer.layer(service_fn(|request: Request<StatusCode>| async move {
    ///     Ok::<_, std::convert::Infallible>(Response::builder().status(*request.body()).body(String::new()).unwrap())
    /// }));
    ///
    /// let mut statuses = Vec::new();
    /// for status in [401, 200, 401, 401, 200] {
    ///     let request = Request::new(StatusCode::from_u16(status).unwrap());
    ///     statuses.push(service.clone().oneshot(request).await.unwrap().status().as_u16());
    /// }
    /// // The success forgave the first failure. Two more lock the key, also for the right password.
    /// assert_eq!(statuses, [401, 200, 401, 401, 429]);
    /// # }
    /// ```
    pub fn clear_on(
        mut self,
        is_cleared: impl Fn(StatusCode) -> bool + Send + Sync + 'static,
    ) -> Self {
        FinalCost::set_clears(&mut self.options.final_cost, is_cleared);
        self
    }

    /// Sets the final cost after the response. The difference to the initial charge is refunded.
    ///
    /// The closure receives the [`Outcome`] and the initial charge. Charge the highest possible
    /// cost with [`cost`](Self::cost): a final cost above the initial charge takes no further
    /// units. When each policy has a [cost](Self::costs) of its own, the closure receives the
    /// greatest of them, and the final cost is the most that each policy keeps.
    ///
    /// The refund runs in the background and delays no response. The rate limit headers of the
    /// response do not include it.
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::Global};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("tokens", Quota::per_day(100_000)));
    /// // A request costs up to 4000 tokens. The service reports the number in an extension.
    /// let service = service_fn(|_: Request<()>| async {
    ///     let mut response = Response::new(String::new());
    ///     response.extensions_mut().insert(Cost::new(700));
    ///     Ok::<_, std::convert::Infallible>(response)
    /// });
    /// let layer = RateLimitLayer::builder(limiter.clone(), Global)
    ///     .cost(|_| Cost::new(4000))
    ///     .final_cost(|outcome, charged| match outcome.response() {
    ///         Some(response) => response.extensions.get::<Cost>().copied().unwrap_or(charged),
    ///         None => charged,
    ///     })
    ///     .build();
    ///
    /// layer.layer(service).oneshot(Request::new(())).await.unwrap();
    /// assert_eq!(limiter.peek("all").await.unwrap().state("tokens").unwrap().remaining(), 99_300);
    /// # }
    /// ```
    pub fn final_cost(
        mut self,
        final_cost: impl Fn(Outcome<'_>, Cost) -> Cost + Send + Sync + 'static,
    ) -> Self {
        FinalCost::set_cost(
            &mut self.options.final_cost,
            CostOfOutcome::One(Arc::new(final_cost)),
        );
        self.options.charges_after = false;
        self
    }

    /// Sets the final cost for each policy after the response. The difference to the initial charge
    /// is refunded.
    ///
    /// The closure receives the [`Outcome`] and the decision. Each state of the decision has its
    /// initial [cost](tollgate_core::limiter::PolicyState::cost). A policy that the result does not name
    /// keeps its initial charge. The option replaces [`final_cost`](Self::final_cost), and
    /// otherwise works in the same way.
    pub fn final_costs<C: Into<Costs>>(
        mut self,
        final_costs: impl Fn(Outcome<'_>, &Decision) -> C + Send + Sync + 'static,
    ) -> Self {
        let final_costs =
            move |outcome: Outcome<'_>, decision: &Decision| final_costs(outcome, decision).into();
        FinalCost::set_cost(
            &mut self.options.final_cost,
            CostOfOutcome::Each(Arc::new(final_costs)),
        );
        self.options.charges_after = false;
        self
    }

    /// Inserts a [`RequestLimiter`](crate::RequestLimiter) into the extensions of each admitted
    /// request. That of an [exempt](Self::exempt) request admits everything.
    ///
    /// The service charges further units with it: from `limiter`, or, with `None`, from the limiter
    /// that admitted the request. [`RequestLimiter`](crate::RequestLimiter) has an example. The
    /// option is off by default, because it allocates memory for each request.
    pub fn expose_request_limiter(mut self, limiter: Option<Limiter>) -> Self {
        self.options.request_limiter = Some(match limiter {
            Some(limiter) => RequestLimiterSource::At(self.limiters.limiters.add_fixed(limiter)),
            None => RequestLimiterSource::Same,
        });
        self
    }
}
