//! Allocations of a decision in the process: one, for the header value.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll, Waker},
};

use http::{HeaderMap, Request, Response};
use tollgate::{Clock, Limiter, LimiterHandle, MemoryStore, Policy, Quota, TenantLimiters};
use tollgate_tower::{
    HeaderFormat, LimiterSource, RateLimitLayer,
    key::{Header, PeerIp},
};
use tower::{Layer, Service};

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

fn request() -> Request<()> {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert("x-api-key", "acme".parse().unwrap());
    let peer: std::net::SocketAddr = "192.0.2.7:4711".parse().unwrap();
    let mut request = Request::builder().extension(peer).body(()).unwrap();
    *request.headers_mut() = headers;
    request
}

/// Returns the allocations of the last of many requests. The layer inspects the first 1024 for double counts.
fn allocations<S>(mut service: S) -> u64
where
    S: Service<Request<()>, Response = Response<String>, Error = Infallible>,
{
    let mut count = 0;
    for _ in 0..1100 {
        let request = request();
        let mut response = None;
        let info = allocation_counter::measure(|| {
            let mut future = std::pin::pin!(service.call(request));
            match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(ready)) => response = Some(ready),
                Poll::Pending => panic!("a decision in the process is ready at once"),
            }
        });
        assert!(response.is_some_and(|response| response.status() == 200));
        count = info.count_total;
    }
    count
}

fn limiter() -> Limiter {
    let store = MemoryStore::builder().clock(Clock::manual(0)).build();
    Limiter::new(
        store,
        [
            Policy::token_bucket("burst", Quota::per_second(10_000)),
            Policy::fixed_window("daily", Quota::per_day(1_000_000)),
        ],
    )
}

#[test]
fn the_layer_allocates_only_the_header_value_that_it_writes() {
    assert_eq!(allocations(Bare), 0);
    assert_eq!(allocations(RateLimitLayer::new(limiter(), PeerIp::new()).layer(Bare)), 1);
    assert_eq!(allocations(RateLimitLayer::new(limiter(), (PeerIp::new(), Header::new("x-api-key"))).layer(Bare)), 1);
    // Limiters that are looked up add none.
    let live = LimiterHandle::new(limiter());
    assert_eq!(allocations(RateLimitLayer::new(live, PeerIp::new()).layer(Bare)), 1);
    let policies = limiter().policies().clone();
    let of_function = LimiterSource::from_fn(limiter(), move |_| policies.clone());
    assert_eq!(allocations(RateLimitLayer::new(of_function, PeerIp::new()).layer(Bare)), 1);
    let policies = limiter().policies().clone();
    let tenants = TenantLimiters::new(limiter(), move |_: u64| std::future::ready(Ok::<_, String>(policies.clone())));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert!(runtime.block_on(tenants.limiter_for(&7)).unwrap().is_some());
    let tenants = LimiterSource::by_tenant(tenants, |_| Some(7));
    assert_eq!(allocations(RateLimitLayer::new(tenants, PeerIp::new()).layer(Bare)), 1);
    let silent = RateLimitLayer::builder(limiter(), PeerIp::new()).header_format(HeaderFormat::None).build();
    assert_eq!(allocations(silent.layer(Bare)), 0);
}
