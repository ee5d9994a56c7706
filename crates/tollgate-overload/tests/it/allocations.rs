//! Allocations of an admitted request: none.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response};
use tollgate_overload::{AdaptiveLayer, AdaptiveLimiter, Gradient};
use tollgate_tests::http::{Bare, response_at_once};
use tower::{Layer, Service};

use crate::support::request;

/// Returns the allocations of the last of many requests.
fn allocations<S, B>(mut service: S) -> u64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let mut count = 0;
    for _ in 0..1100 {
        let request = request();
        let mut response = None;
        let info = allocation_counter::measure(|| {
            response = Some(response_at_once(&mut service, request));
        });
        assert!(response.is_some_and(|response| response.status() == 200));
        count = info.count_total;
    }
    count
}

#[test]
fn the_adaptive_layer_allocates_nothing() {
    let limiter = AdaptiveLimiter::builder(Gradient::new())
        .window(Duration::from_micros(1))
        .build();
    assert_eq!(
        allocations(AdaptiveLayer::new(limiter.clone()).layer(Bare)),
        0
    );
    assert!(limiter.in_flight() == 0 && limiter.latency().is_some());
}
