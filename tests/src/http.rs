//! Requests, responses and services that the tests of several crates share.
//! Nothing here knows a limit.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
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
