//! Allocations of a decision in the process: one, for the header value.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use tollgate::{
    Cost, Limiter, LimiterHandle, MemoryStore, Policy, Quota,
    permits::{Concurrency, ConcurrencyLimiter, OnLoss},
    store::Clock,
    tenants::TenantLimiters,
};
use tollgate_tests::http::{Bare, response_at_once};
use tollgate_tower::{
    HeaderFormat, LimiterSource, Meter, RateLimitLayer,
    body::{BodyEnd, BodyGuard, GuardedBody},
    concurrency::ConcurrencyLayer,
    key::{Global, Header, PeerIp},
};
use tower::{Layer, Service};

fn request() -> Request<()> {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert("x-api-key", "acme".parse().unwrap());
    let peer: std::net::SocketAddr = "192.0.2.7:4711".parse().unwrap();
    let mut request = Request::builder().extension(peer).body(()).unwrap();
    *request.headers_mut() = headers;
    request
}

/// Returns the allocations of the last of many requests. The layer inspects the first 1024 for
/// double counts.
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
    assert_eq!(
        allocations(RateLimitLayer::new(limiter(), PeerIp).layer(Bare)),
        1
    );
    assert_eq!(
        allocations(RateLimitLayer::new(limiter(), (PeerIp, Header::new("x-api-key"))).layer(Bare)),
        1
    );
    // Limiters that are looked up add none.
    let live = LimiterHandle::new(limiter());
    assert_eq!(
        allocations(RateLimitLayer::new(live, PeerIp).layer(Bare)),
        1
    );
    let policies = limiter().policies().clone();
    let of_function = LimiterSource::from_fn(limiter(), move |_| policies.clone());
    assert_eq!(
        allocations(RateLimitLayer::new(of_function, PeerIp).layer(Bare)),
        1
    );
    let policies = limiter().policies().clone();
    let tenants = TenantLimiters::new(limiter(), move |_: u64| {
        std::future::ready(Ok::<_, String>(policies.clone()))
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    assert!(
        runtime
            .block_on(tenants.limiter_for(&7))
            .unwrap()
            .into_limiter()
            .is_some()
    );
    let tenants = LimiterSource::by_tenant(tenants, |_| Some(7));
    assert_eq!(
        allocations(RateLimitLayer::new(tenants, PeerIp).layer(Bare)),
        1
    );
    let silent = RateLimitLayer::builder(limiter(), PeerIp)
        .header_format(HeaderFormat::None)
        .build();
    assert_eq!(allocations(silent.layer(Bare)), 0);
}

/// Yields the same frame for ever.
struct Endless(Bytes);

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(self.0.clone()))))
    }
}

struct Bytewise(Meter);

impl BodyGuard for Bytewise {
    fn on_data(&mut self, data: &dyn bytes::Buf) {
        self.0.add(data.remaining() as u64);
    }

    fn on_end(&mut self, _: BodyEnd) {}
}

#[test]
fn a_guarded_body_allocates_nothing_for_its_frames() {
    let meter = Meter::new();
    let info = allocation_counter::measure(|| {
        let mut body = GuardedBody::new(
            Endless(Bytes::from_static(b"frame")),
            Bytewise(meter.clone()),
        );
        for _ in 0..1000 {
            let frame = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(frame, Poll::Ready(Some(Ok(_)))));
        }
    });
    assert_eq!((info.count_total, meter.get()), (0, Some(5000)));
}

/// Responds with an endless body.
#[derive(Clone)]
struct EndlessService;

impl Service<Request<()>> for EndlessService {
    type Response = Response<Endless>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Endless>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Endless(Bytes::from_static(b"frame")))))
    }
}

impl From<String> for Endless {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

#[test]
fn frames_allocate_nothing_while_a_reservation_and_a_permit_are_held() {
    let permits = ConcurrencyLimiter::new(
        MemoryStore::new(),
        Concurrency::new("streams", 2).on_loss(OnLoss::Cancel),
    );
    let reserve = RateLimitLayer::builder(limiter(), Global)
        .reserve(|_| Cost::new(9))
        .build();
    let mut service = ConcurrencyLayer::new(permits, Global).layer(reserve.layer(EndlessService));
    let response = response_at_once(&mut service, request());
    let mut body = std::pin::pin!(response.into_body());
    let info = allocation_counter::measure(|| {
        for _ in 0..1000 {
            let frame = body
                .as_mut()
                .poll_frame(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(frame, Poll::Ready(Some(Ok(_)))));
        }
    });
    assert_eq!(info.count_total, 0);
}
