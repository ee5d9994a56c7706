//! A running server: a task for each port, and the order in which they end.
//! One port is served in `port.rs`, and the end is asked for by the program's signals.

use std::{future::Future, net::SocketAddr, time::Duration};

use axum::Router;
use tokio::{sync::watch, task::JoinSet, time::timeout};

use super::{
    GrpcListen, ServerError,
    connection::{Connections, Lifetimes},
    grpc,
    listen::Listener,
    options::Options,
    port::Port,
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
    pub(super) service: RateLimitService,
    pub(super) health: Health,
    pub(super) listeners: Listeners,
    pub(super) options: Options,
}

/// The open ports.
pub(super) struct Listeners {
    pub(super) grpc: Listener,
    pub(super) grpc_place: GrpcListen,
    pub(super) tls: Option<ReloadedTls>,
    pub(super) pages: Vec<Page>,
}

/// A port with pages.
pub(super) struct Page {
    pub(super) what: &'static str,
    pub(super) address: SocketAddr,
    pub(super) listener: Listener,
    pub(super) routes: Router,
    pub(super) max_connections: usize,
    /// Answers while there are so many connections.
    pub(super) spare: Option<Router>,
}

/// The times of connections to pages. The time from one call to the next is that of HTTP/1.
const PAGES: Lifetimes = Lifetimes {
    age: Duration::from_secs(24 * 3_600),
    idle: Duration::from_secs(60),
    grace: Duration::from_secs(30),
};

impl Server {
    /// Returns where gRPC is served.
    #[must_use]
    pub fn grpc(&self) -> &GrpcListen {
        &self.listeners.grpc_place
    }

    /// Returns what else is served, and where.
    pub fn pages(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        self.listeners
            .pages
            .iter()
            .map(|page| (page.what, page.address))
    }

    /// Serves until `end` is ready, and then until the calls that are under way have ended.
    ///
    /// At the end, the server first reports that it is not healthy. From then on it accepts no
    /// connection of gRPC, and it closes the open connections when their calls have ended. It
    /// serves the pages until then. Calls that take longer than the [drain
    /// timeout](crate::ServerBuilder::drain_timeout) are dropped.
    ///
    /// **Set [`Component::Running`] to `false` some time before `end`**, so that clients which ask
    /// for the health turn away before connections are closed.
    ///
    /// # Errors
    ///
    /// Fails when a port cannot be served any more.
    pub async fn run(self, end: impl Future<Output = ()>) -> Result<(), ServerError> {
        let Self {
            service,
            health,
            listeners,
            options,
        } = self;
        let Listeners {
            grpc, tls, pages, ..
        } = listeners;
        let metrics = service.metrics().clone();
        let routes = grpc::routes(service, &health).await?;
        let (end_calls, calls_end) = watch::channel(false);
        let (end_pages, pages_end) = watch::channel(false);
        let (mut calls, mut served) = (JoinSet::new(), JoinSet::new());
        let lifetimes = Lifetimes {
            age: options.max_connection_age,
            idle: options.idle_timeout,
            grace: options.max_connection_age_grace,
        };
        let connections =
            Connections::grpc(routes, options.max_streams, lifetimes, calls_end.clone());
        let port = Port {
            what: "gRPC",
            listener: grpc,
            tls,
            max_connections: options.max_connections,
            spare: None,
        };
        calls.spawn(port.serve(connections, metrics.clone(), calls_end));
        for Page {
            what,
            listener,
            routes,
            max_connections,
            spare,
            ..
        } in pages
        {
            let connections = Connections::http(routes, PAGES, pages_end.clone());
            let port = Port {
                what,
                listener,
                tls: None,
                max_connections,
                spare: spare.map(|routes| Connections::spare(routes, pages_end.clone())),
            };
            served.spawn(port.serve(connections, metrics.clone(), pages_end.clone()));
        }
        tokio::select! {
            () = end => {}
            Some(result) = calls.join_next() => return joined(result),
            Some(result) = served.join_next() => return joined(result),
        }
        health.set(Component::Running, false).await;
        let all = async {
            end_calls.send_replace(true);
            let mut result = calls.join_next().await.map_or(Ok(()), joined);
            end_pages.send_replace(true);
            while let Some(ended) = served.join_next().await {
                result = result.and(joined(ended));
            }
            result
        };
        let drained = timeout(options.drain_timeout, all).await;
        drained.unwrap_or_else(|_| {
            tracing::warn!(
                after_ms = options.drain_timeout.as_millis(),
                "calls that had not ended were dropped"
            );
            Ok(())
        })
    }
}

fn joined(result: Result<(), tokio::task::JoinError>) -> Result<(), ServerError> {
    result.map_err(|error| ServerError::with("a task of the server failed", error))
}

tollgate::debug_fields! { Server: grpc = .grpc(), options, .. }
