//! The layer that reserves an estimate, and its builder.
//! The steps of a request are those of the rate limit, in `ask.rs` and `reply.rs`; the settlement
//! is in `metered.rs`.

use std::task::{Context, Poll};

use http::{Request, Response, request::Parts};
use http_body::Body;
use tollgate_core::Costs;
use tower_service::Service;

use super::{
    metered::MeteredReservation,
    options::{EstimateOf, ReserveOptions, reserve_options},
};
use crate::{
    body::{GuardedBody, guard_response},
    gate::{Gate, Gated, take_ready},
    key::{BoxedKey, KeyExtractor},
    rate_limit::{
        builder::RateLimitBuilder,
        layer::RateLimitLayer,
        request::{Admission, Step, StepVerdict},
    },
    rejection::{Problem, Respond},
};

/// Limits the requests of a service by a cost that is known when the response body ends.
///
/// It is a [`RateLimitLayer`] that charges an estimate before it calls the service. The service
/// counts the real cost with the [`Meter`](crate::Meter) in the extensions of the request. When the
/// body of the response ends, fails or is dropped, the layer settles the difference. The
/// [module](crate::rate_limit::reservation) lists what each end costs. The body of the response is
/// a [`GuardedBody`](crate::body::GuardedBody) around the body of the service: frames and trailers
/// pass unchanged.
///
/// The rate limit headers show the state after the reservation. They do not include the difference
/// to the final cost.
///
/// [`RateLimitBuilder::reserve`](crate::RateLimitBuilder::reserve) builds it.
///
/// ```
/// use http::{Request, Response};
/// use http_body_util::BodyExt;
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{Meter, RateLimitLayer, key::Header};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let policies = [
///     Policy::fixed_window("requests", Quota::per_day(60)),
///     Policy::fixed_window("tokens", Quota::per_day(10_000)),
/// ];
/// let limiter = Limiter::new(MemoryStore::new(), policies);
/// let layer = RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
///     .reserve(|_request| [("requests", 1), ("tokens", 850)])
///     .build();
///
/// // A stream would count each of its parts.
/// let service = layer.layer(service_fn(|request: Request<()>| async move {
///     let meter = request.extensions().get::<Meter>().unwrap();
///     meter.counter("tokens").unwrap().add(42);
///     Ok::<_, std::convert::Infallible>(Response::new(String::from("six times nine")))
/// }));
/// let request = Request::builder().header("x-api-key", "acme").body(()).unwrap();
/// let response = service.oneshot(request).await.unwrap();
/// let tokens_left = async || limiter.peek("acme").await.unwrap().state("tokens").unwrap().remaining();
/// assert_eq!(tokens_left().await, 9_150);
///
/// response.into_body().collect().await.unwrap();
/// assert_eq!(tokens_left().await, 9_958);
/// # }
/// ```
pub struct ReservationLayer<K = BoxedKey, R = Problem> {
    layer: RateLimitLayer<K, R>,
}

impl<K, R> RateLimitBuilder<K, R> {
    /// Charges an estimate before it calls the service. When the response body ends, the layer
    /// charges what the service has counted instead.
    ///
    /// Use it when the cost is known only at the end of a stream: tokens of a language model, bytes
    /// of an upload, rows of an export. The closure computes the estimate from the head of the
    /// request. It returns one [`Cost`](tollgate_core::Cost) for all policies, or [`Costs`] for each.
    /// The service counts with the [`Meter`](crate::Meter) in the extensions of the request. The
    /// module [`reservation`](crate::rate_limit::reservation) lists what each end of a request
    /// costs, and [`ReservationLayer`](crate::rate_limit::reservation::ReservationLayer) has an
    /// example.
    ///
    /// Call it after the other options. It replaces [`cost`](Self::cost), [`costs`](Self::costs),
    /// [`final_cost`](Self::final_cost), [`charge_on`](Self::charge_on),
    /// [`charge_after`](Self::charge_after) and [`clear_on`](Self::clear_on). [`wait`](Self::wait)
    /// applies to leaky buckets alone: with other policies, a reservation does not wait. With a
    /// store that has no reservations, the response is 500.
    pub fn reserve<C: Into<Costs>>(
        self,
        estimate: impl Fn(&Parts) -> C + Send + Sync + 'static,
    ) -> ReservationBuilder<K, R> {
        let estimate = Box::new(move |parts: &Parts| estimate(parts).into());
        ReservationBuilder {
            builder: self,
            estimate,
            options: ReserveOptions::default(),
        }
    }
}

/// Builds a [`ReservationLayer`]. [`RateLimitBuilder::reserve`] creates it, and comes after all
/// other options of the layer.
#[must_use = "a builder does nothing until `build` is called"]
pub struct ReservationBuilder<K, R = Problem> {
    builder: RateLimitBuilder<K, R>,
    estimate: EstimateOf,
    options: ReserveOptions,
}

crate::gate::is_no_layer!(ReservationBuilder<K, R>);

impl<K, R> ReservationBuilder<K, R> {
    reserve_options!();

    /// Builds the layer.
    #[must_use]
    pub fn build(self) -> ReservationLayer<K, R> {
        let Self {
            builder,
            estimate,
            options,
        } = self;
        ReservationLayer {
            layer: builder.reserving(estimate, options).build(),
        }
    }
}

tollgate_core::debug_fields! { ReservationBuilder<K, R>: builder, options, .. }

crate::gate::is_layer!(ReservationLayer<K, R>, layer);

tollgate_core::debug_fields! { ReservationLayer<K, R>: layer }

/// Limits the requests of an inner service, and settles their cost when their response bodies end.
/// [`ReservationLayer`] creates it.
pub type Reserve<S, K = BoxedKey, R = Problem> = Gated<S, ReservationLayer<K, R>>;

impl<S, K, R, ReqBody, ResBody> Gate<S, ReqBody> for ReservationLayer<K, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: KeyExtractor,
    R: Respond<ResBody>,
    ResBody: Body + 'static,
{
    type Pass = Admission;
    type Wait = Step;
    type Response = Response<GuardedBody<ResBody, MeteredReservation>>;

    fn admit(&self, parts: &mut Parts) -> StepVerdict<ResBody> {
        self.layer.state.begin(parts)
    }

    fn poll_wait(
        &self,
        step: &mut Step,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<StepVerdict<ResBody>> {
        self.layer.state.steps().poll_step(step, parts, cx)
    }

    fn hold(service: &mut S, _: &Step) -> S {
        take_ready(service)
    }

    fn complete(admission: Option<&mut Admission>, mut response: S::Response) -> Self::Response {
        let reservation = admission.and_then(|admission| {
            let reservation = admission.take_reservation();
            admission.complete(&mut response);
            reservation
        });
        match reservation {
            Some(reservation) => guard_response(response, reservation),
            None => response.map(GuardedBody::unguarded),
        }
    }

    fn fail(admission: &mut Admission) {
        admission.fail();
    }
}
