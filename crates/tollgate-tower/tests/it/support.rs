//! Stores that answer late or not at all, and services to put behind a limit.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response, StatusCode};
use tollgate::{
    Check, CheckFuture, Clock, Decision, Error, Key, Limiter, MemoryStore, Outage, Policy, PolicySet, Quota, Store,
    StoreFuture,
};
use tollgate_tower::{HeaderFormat, ResetFormat};
use tower::{Layer, Service, ServiceExt, service_fn};

pub(crate) const TWO: Policy = Policy::token_bucket("two", Quota::per_minute(2));
pub(crate) const HOURLY: Policy = Policy::window_from_first_hit("hourly", Quota::per_hour(3));

/// Every dialect.
pub(crate) const HEADER_FORMATS: [HeaderFormat; 8] = [
    HeaderFormat::Ietf08,
    HeaderFormat::Ietf07,
    HeaderFormat::Ietf06,
    HeaderFormat::Envoy03,
    HeaderFormat::Legacy { reset: ResetFormat::Seconds },
    HeaderFormat::Spring,
    HeaderFormat::RetryAfter,
    HeaderFormat::None,
];

/// An in-process store on a clock that stands still.
pub(crate) fn still() -> MemoryStore {
    MemoryStore::builder().clock(Clock::manual(1_000_000_000)).build()
}

/// Answers as the store inside, after a while on the paused clock of tokio.
#[derive(Clone, Debug)]
pub(crate) struct Late(pub(crate) MemoryStore);

impl Store for Late {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let answer = self.0.check(check);
        StoreFuture::pending(async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            answer.await
        })
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        let answer = self.0.refund(check, decision);
        StoreFuture::pending(async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            answer.await
        })
    }

    fn reset(&self, policies: &PolicySet, key: &Key) -> StoreFuture<()> {
        self.0.reset(policies, key)
    }
}

/// Is away.
#[derive(Clone, Debug)]
pub(crate) struct Away;

impl Store for Away {
    fn check(&self, _: Check<'_>) -> CheckFuture {
        StoreFuture::ready(Err(Error::unavailable("away")))
    }

    fn refund(&self, _: Check<'_>, _: Option<&Decision>) -> StoreFuture<()> {
        StoreFuture::ready(Err(Error::unavailable("away")))
    }

    fn reset(&self, _: &PolicySet, _: &Key) -> StoreFuture<()> {
        StoreFuture::ready(Err(Error::unavailable("away")))
    }
}

pub(crate) fn away(outage: Outage) -> Limiter {
    Limiter::builder(Away).policies(TWO).on_outage(outage).build()
}

/// Answers 200 with a text.
pub(crate) fn hello() -> impl Service<Request<()>, Response = Response<String>, Error = Infallible, Future: Send> + Clone
{
    service_fn(|_: Request<()>| async { Ok(Response::new("hello".to_owned())) })
}

/// One request through a layer around [`hello`].
pub(crate) async fn send<L>(layer: &L, request: Request<()>) -> Response<String>
where
    L: Layer<BoxedHello>,
    L::Service: Service<Request<()>, Response = Response<String>, Error = Infallible>,
{
    let Ok(response) = layer.layer(BoxedHello::new(hello())).oneshot(request).await;
    response
}

pub(crate) type BoxedHello = tower::util::BoxCloneService<Request<()>, Response<String>, Infallible>;

pub(crate) fn request() -> Request<()> {
    Request::new(())
}

/// The value of a field, which stands in one line.
pub(crate) fn field<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    let mut lines = response.headers().get_all(name).iter();
    let line = lines.next()?;
    assert!(lines.next().is_none(), "{name} stands in more than one line");
    Some(line.to_str().unwrap())
}

/// The statuses of `count` requests in a row.
pub(crate) async fn statuses<L>(layer: &L, count: usize) -> Vec<StatusCode>
where
    L: Layer<BoxedHello>,
    L::Service: Service<Request<()>, Response = Response<String>, Error = Infallible>,
{
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(send(layer, request()).await.status());
    }
    statuses
}
