//! Requests, responses and services that the tests of several crates share.
//! Nothing here knows a limit.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    mem,
    net::{Ipv4Addr, SocketAddr},
    pin::pin,
    task::{Context, Poll, Waker},
    time::{Duration, SystemTime},
};

use axum::Router;
use http::{Request, Response};
use tokio::net::TcpListener;
use tower::{Service, service_fn};

/// Responds with 200 and a text.
#[must_use]
pub fn hello()
-> impl Service<Request<()>, Response = Response<String>, Error = Infallible, Future: Send> + Clone
{
    service_fn(|_: Request<()>| async { Ok(Response::new("hello".to_owned())) })
}

/// Responds without an allocation: with the headers of the request, which have room for more.
#[derive(Clone, Debug)]
pub struct Bare;

impl Service<Request<()>> for Bare {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<()>) -> Self::Future {
        let mut response = Response::new(String::new());
        *response.headers_mut() = mem::take(request.headers_mut());
        ready(Ok(response))
    }
}

/// Returns the response of a service that does not wait.
///
/// # Panics
///
/// When it waits.
pub fn response_at_once<S, B>(service: &mut S, request: Request<()>) -> Response<B>
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let mut future = pin!(service.call(request));
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(Ok(response)) => response,
        Poll::Pending => panic!("the service waits"),
    }
}

/// Returns a request without a header.
#[must_use]
pub fn request() -> Request<()> {
    Request::new(())
}

/// Returns a request with one header.
///
/// # Panics
///
/// When the header is not valid.
#[must_use]
pub fn request_with(name: &str, value: &str) -> Request<()> {
    let request = Request::builder().header(name, value).body(());
    request.expect("a valid header")
}

/// Returns the value of a header.
///
/// # Panics
///
/// When it has more than one line, or is no text.
#[must_use]
pub fn header<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    let mut lines = response.headers().get_all(name).iter();
    let line = lines.next()?;
    assert!(lines.next().is_none(), "{name} has more than one line");
    Some(line.to_str().expect("a text"))
}

/// Listens on a free port.
///
/// # Panics
///
/// When there is none.
pub async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("a bound port");
    (listener, address)
}

/// Serves a router on a free port, with the addresses of the peers.
///
/// # Panics
///
/// When there is no free port.
pub async fn serve(router: Router) -> SocketAddr {
    let (listener, address) = listen().await;
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

fn time_of_day() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("a time after 1970")
}

/// Returns the time of day in seconds.
#[must_use]
pub fn second() -> u64 {
    time_of_day().as_secs()
}

/// Returns what `work` returns in one tenth of a second of the system clock. Some header formats
/// show the time of a reset by that clock in whole seconds: it stays the same meanwhile when the
/// reset is a whole number of tenths away.
pub async fn in_one_tenth<T>(mut work: impl AsyncFnMut() -> T) -> T {
    let tenth = || time_of_day().as_millis() / 100;
    loop {
        let began = tenth();
        let done = work().await;
        if tenth() == began {
            return done;
        }
    }
}
