use std::{fmt, future::Future, net::SocketAddr};

use axum::Router;
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time::timeout};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::server::TcpIncoming;

use super::{
    GrpcListen, ServerError,
    grpc::{routes, serve},
    listen::GrpcListener,
    options::GrpcOptions,
    tls::ReloadedTls,
};
use crate::{Component, Health, RateLimitService};

/// Serves a [`RateLimitService`] with health, reflection and pages.
///
/// ```no_run
/// # async fn run(service: tollgate_envoy::RateLimitService) -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate_envoy::{Component, Health, Server};
///
/// let health = Health::new().await;
/// health.set(Component::Store, true).await;
/// health.set(Component::Rules, true).await;
/// let server = Server::builder(service, health).http("0.0.0.0", 8080).bind().await?;
/// println!("gRPC at {}", server.grpc());
/// server.run(async { drop(tokio::signal::ctrl_c().await) }).await?;
/// # Ok(()) }
/// ```
#[must_use = "a server does nothing until `run` is polled"]
pub struct Server {
    service: RateLimitService,
    health: Health,
    listeners: Listeners,
    tls: Option<ReloadedTls>,
    options: GrpcOptions,
}

/// The open ports.
pub(super) struct Listeners {
    pub(super) grpc: GrpcListener,
    pub(super) grpc_place: GrpcListen,
    pub(super) pages: Vec<(&'static str, SocketAddr, TcpListener, Router)>,
}

impl Server {
    pub(super) fn with(
        service: RateLimitService,
        health: Health,
        listeners: Listeners,
        tls: Option<ReloadedTls>,
        options: GrpcOptions,
    ) -> Self {
        Self { service, health, listeners, tls, options }
    }

    /// Returns where gRPC is served.
    #[must_use]
    pub fn grpc(&self) -> &GrpcListen {
        &self.listeners.grpc_place
    }

    /// Returns what else is served, and where.
    pub fn pages(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        self.listeners.pages.iter().map(|(what, address, ..)| (*what, *address))
    }

    /// Serves until `end`, and then until the calls that are under way have ended.
    ///
    /// At the end, the health fails first. No connection is accepted from then on, and those that are open are closed when
    /// their calls have ended. The pages are served until then. Calls that take longer than the
    /// [drain timeout](crate::ServerBuilder::drain_timeout) are dropped.
    ///
    /// # Errors
    ///
    /// Fails when a port cannot be served any more.
    pub async fn run(self, end: impl Future<Output = ()>) -> Result<(), ServerError> {
        let Self { service, health, listeners, tls, options } = self;
        let Listeners { grpc, pages, grpc_place } = listeners;
        let routes = routes(service, &health).await?;
        let mut serving = JoinSet::new();
        for (what, _, listener, routes) in pages {
            serving.spawn(async move {
                let served = axum::serve(listener, routes).await;
                served.map_err(|error| ServerError::with(format!("{what} failed"), error))
            });
        }
        let (ending, ended) = watch::channel(false);
        let drain_timeout = options.drain_timeout;
        let mut calls = tokio::spawn(async move { serve_on(grpc, tls, routes, &options, ended).await });
        tokio::select! {
            () = end => {}
            result = &mut calls => return joined(result),
            Some(result) = serving.join_next() => return joined(result),
        }
        health.set(Component::Running, false).await;
        ending.send_replace(true);
        let result = match timeout(drain_timeout, &mut calls).await {
            Ok(result) => joined(result),
            Err(_) => {
                calls.abort();
                tracing::warn!(after_ms = drain_timeout.as_millis(), "calls that had not ended were dropped");
                Ok(())
            }
        };
        if let GrpcListen::Unix(path) = grpc_place {
            // It is gone already, or the next process replaces it.
            let _ = std::fs::remove_file(path);
        }
        result
    }
}

async fn serve_on(
    grpc: GrpcListener,
    tls: Option<ReloadedTls>,
    routes: tonic::service::Routes,
    options: &GrpcOptions,
    mut ended: watch::Receiver<bool>,
) -> Result<(), ServerError> {
    let end = async move {
        // An error means that the server was dropped.
        let _ = ended.wait_for(|is_over| *is_over).await;
    };
    match (grpc, tls) {
        (GrpcListener::Tcp(listener), Some(tls)) => serve(routes, options, tls.incoming(listener), end).await,
        (GrpcListener::Tcp(listener), None) => {
            serve(routes, options, TcpIncoming::from(listener).with_nodelay(Some(true)), end).await
        }
        (GrpcListener::Unix(listener, _), None) => serve(routes, options, UnixListenerStream::new(listener), end).await,
        (GrpcListener::Unix(..), Some(_)) => Err(ServerError::new("TLS needs a port, and not a Unix socket")),
    }
}

fn joined(result: Result<Result<(), ServerError>, tokio::task::JoinError>) -> Result<(), ServerError> {
    result.unwrap_or_else(|error| Err(ServerError::with("a task of the server failed", error)))
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("grpc", self.grpc()).field("options", &self.options).finish_non_exhaustive()
    }
}
