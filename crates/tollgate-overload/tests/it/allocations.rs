//! Allocations of an admitted request: none.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::{Request, Response};
use tollgate_overload::{AdaptiveLayer, AdaptiveLimiter, Gradient};
use tower::{Layer, Service};

use crate::support::request;

/// Responds without an allocation, with room for the rate limit headers.
#[derive(Clone)]
struct Bare;

impl Service<Request<()>> for Bare {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<()>) -> Self::Future {
        let mut response = Response::new(String::new());
        *response.headers_mut() = std::mem::take(request.headers_mut());
        ready(Ok(response))
    }
}

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
            let mut future = std::pin::pin!(service.call(request));
            match future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
            {
                Poll::Ready(Ok(ready)) => response = Some(ready),
                Poll::Pending => panic!("a decision in the process is ready at once"),
            }
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
