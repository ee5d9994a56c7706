//! Serves one connection until its client or the server ends it.
//! How connections are accepted, and how many, is in `port.rs`. What a call does is in `service/`.

use std::{
    future::pending,
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use axum::{Router, body::Body, http::Request};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::{sleep, timeout},
};
use tonic::codegen::Service;

use super::{reading::Readings, unread::Unread};

/// The time after which a silent client of HTTP/2 is asked whether it is there, and in which it
/// must answer.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(20));

/// The longest time for the head of a request over HTTP/1, and between two requests.
const HEAD: Duration = Duration::from_secs(30);

/// The longest time from the start of a connection to its first call. A client that makes no call
/// keeps no other one out.
const FIRST_CALL: Duration = Duration::from_secs(60);

/// The same where the port has no place for another client.
const FIRST_CALL_OF_MANY: Duration = Duration::from_secs(1);

/// The longest time of a spare connection. Half of it is for the head of its request.
const SPARE: Duration = Duration::from_secs(2);

/// The most requests of a gRPC port that have not come whole, and the most calls of a connection
/// that may be reset before they are taken, for each call that one connection may have.
const UNREAD: usize = 4;

/// The time that a client has to close a connection on which it has made no call.
const FAREWELL: Duration = Duration::from_secs(1);

/// Limits how long connections last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    /// The longest time in all, changed by up to a tenth.
    pub(super) age: Duration,
    /// The longest time without a new call.
    pub(super) idle: Duration,
    /// The time that calls have when their connection is closed.
    pub(super) grace: Duration,
}

/// Serves the connections of one port.
pub(super) struct Connections {
    builder: Builder<TokioExecutor>,
    routes: Router,
    /// The requests that have not come whole, where they are bounded for the port.
    readings: Option<Readings>,
    lifetimes: Lifetimes,
    end: watch::Receiver<bool>,
}

impl Connections {
    /// Serves HTTP/2 alone.
    pub(super) fn grpc(
        routes: Router,
        max_streams: u32,
        lifetimes: Lifetimes,
        end: watch::Receiver<bool>,
    ) -> Self {
        let mut served = Self::http(routes, lifetimes, end);
        let max = (max_streams as usize).saturating_mul(UNREAD);
        served
            .builder
            .http2()
            .max_concurrent_streams(max_streams)
            // Envoy resets the calls of 20 ms ago: after a pause of this process, all of them come
            // with their resets. A connection that ends then takes the calls after them along.
            .max_pending_accept_reset_streams(max);
        Self {
            builder: served.builder.http2_only(),
            readings: Some(Readings::new(max)),
            ..served
        }
    }

    /// Answers one request over HTTP/1 on each connection, within two seconds.
    pub(super) fn spare(routes: Router, end: watch::Receiver<bool>) -> Self {
        let lifetimes = Lifetimes {
            age: SPARE,
            idle: SPARE,
            grace: Duration::ZERO,
        };
        let mut served = Self::http(routes, lifetimes, end);
        served
            .builder
            .http1()
            .keep_alive(false)
            .header_read_timeout(SPARE / 2);
        Self {
            builder: served.builder.http1_only(),
            ..served
        }
    }

    /// Serves HTTP/1 and HTTP/2.
    pub(super) fn http(routes: Router, lifetimes: Lifetimes, end: watch::Receiver<bool>) -> Self {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD);
        let (interval, limit) = KEEP_ALIVE;
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(interval)
            .keep_alive_timeout(limit);
        Self {
            builder,
            routes,
            readings: None,
            lifetimes,
            end,
        }
    }

    /// Serves a connection until its client closes it, and not longer than its lifetimes allow.
    ///
    /// `is_full` says whether further clients wait for a place.
    pub(super) async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        is_full: watch::Receiver<bool>,
    ) {
        let calls = AtomicU64::new(0);
        let service = service_fn(|request: Request<Incoming>| {
            calls.fetch_add(1, Ordering::Relaxed);
            let request = request.map(|body| match &self.readings {
                Some(readings) => Body::new(readings.body(body)),
                None => Body::new(body),
            });
            self.routes.clone().call(request)
        });
        let stream = Unread::new(stream, is_full.clone());
        let mut connection = pin!(self.builder.serve_connection(TokioIo::new(stream), service));
        let grace = tokio::select! {
            result = connection.as_mut() => return log(result),
            grace = self.over(&calls, is_full) => grace,
        };
        connection.as_mut().graceful_shutdown();
        match timeout(grace, connection).await {
            Ok(result) => log(result),
            Err(_) => tracing::debug!("a connection was dropped"),
        }
    }

    /// Waits until a connection has to be closed. Returns the time that its calls have then.
    async fn over(&self, calls: &AtomicU64, is_full: watch::Receiver<bool>) -> Duration {
        let Lifetimes { age, grace, .. } = self.lifetimes;
        let mut end = self.end.clone();
        tokio::select! {
            // The server limits the time of all calls.
            _ = end.wait_for(|is_over| *is_over) => Duration::MAX,
            () = sleep(spread(age)) => grace,
            grace = self.idle(calls) => grace,
            () = gives_way(calls, is_full) => FAREWELL,
        }
    }

    /// Waits until no new call has come for long.
    async fn idle(&self, calls: &AtomicU64) -> Duration {
        let Lifetimes { idle, grace, .. } = self.lifetimes;
        sleep(idle.min(FIRST_CALL)).await;
        let mut before = calls.load(Ordering::Relaxed);
        if before == 0 {
            return FAREWELL;
        }
        loop {
            sleep(idle).await;
            let now = calls.load(Ordering::Relaxed);
            if std::mem::replace(&mut before, now) == now {
                return grace;
            }
        }
    }
}

/// Changes an age by up to a tenth, so that connections that began at one moment do not end at one
/// moment.
fn spread(age: Duration) -> Duration {
    let seconds = age.as_secs_f64() * (0.9 + 0.2 * fastrand::f64());
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Waits until the port is full, while the client makes no call. A client that has made one does
/// not give way.
async fn gives_way(calls: &AtomicU64, mut is_full: watch::Receiver<bool>) {
    let is_silent = || calls.load(Ordering::Relaxed) == 0;
    sleep(FIRST_CALL_OF_MANY).await;
    if !(is_silent() && is_full.wait_for(|is_full| *is_full).await.is_ok() && is_silent()) {
        pending::<()>().await;
    }
}

fn log(result: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = result {
        tracing::debug!(%error, "a connection failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_of_any_length_is_changed_by_a_tenth_at_most() {
        for age in [
            Duration::ZERO,
            Duration::from_secs(24 * 3_600),
            Duration::MAX,
        ] {
            let bounds = age.mul_f64(0.89)..=age.saturating_add(age / 9);
            for _ in 0..100 {
                let changed = spread(age);
                assert!(bounds.contains(&changed), "{age:?}: {changed:?}");
            }
        }
    }
}
