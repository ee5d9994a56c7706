//! The options of a server, and the opening of its ports.
//! What happens on them afterwards is in `run.rs`.

use std::time::Duration;

use axum::Router;

use super::{
    GrpcListen, Server, ServerError, TlsFiles,
    listen::{Listener, local, tcp},
    options::Options,
    run::{Listeners, Page},
    tls::ReloadedTls,
};
use crate::{Health, RateLimitService};

/// Sets options and builds a [`Server`].
#[must_use = "a builder does nothing until `bind` is called"]
pub struct ServerBuilder {
    service: RateLimitService,
    health: Health,
    grpc: GrpcListen,
    tls: Option<TlsFiles>,
    http: Option<(String, u16)>,
    debug: Option<(String, u16)>,
    metrics: Option<(String, u16, Router)>,
    console: Option<(String, u16, Router)>,
    options: Options,
}

impl Server {
    /// Returns a builder for the options.
    pub fn builder(service: RateLimitService, health: Health) -> ServerBuilder {
        ServerBuilder {
            service,
            health,
            grpc: GrpcListen::Tcp("0.0.0.0".to_owned(), 8081),
            tls: None,
            http: None,
            debug: None,
            metrics: None,
            console: None,
            options: Options::default(),
        }
    }
}

impl ServerBuilder {
    /// Sets where gRPC is served. The default is `0.0.0.0:8081`.
    pub fn grpc(mut self, listen: GrpcListen) -> Self {
        self.grpc = listen;
        self
    }

    /// Serves gRPC with TLS. The files are read again when they change.
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Serves health and decisions over HTTP: see [`http`](crate::http). By default, they are not
    /// served.
    pub fn http(mut self, host: impl Into<String>, port: u16) -> Self {
        self.http = Some((host.into(), port));
        self
    }

    /// Serves pages for operators: see [`debug`](crate::debug). By default, they are not served.
    pub fn debug(mut self, host: impl Into<String>, port: u16) -> Self {
        self.debug = Some((host.into(), port));
        self
    }

    /// Serves metrics with these routes. By default, they are not served.
    pub fn metrics(mut self, host: impl Into<String>, port: u16, routes: Router) -> Self {
        self.metrics = Some((host.into(), port, routes));
        self
    }

    /// Serves a page for operators with these routes: those of `tollgate-console`. By default, it is
    /// not served.
    pub fn console(mut self, host: impl Into<String>, port: u16, routes: Router) -> Self {
        self.console = Some((host.into(), port, routes));
        self
    }

    /// Closes connections of gRPC after this time, changed by up to a tenth. The default is 24
    /// hours.
    ///
    /// Calls that are under way have `grace` more, which is one hour by default. For both, zero is
    /// no limit, as in gRPC for Go.
    pub fn max_connection_age(mut self, age: Duration, grace: Duration) -> Self {
        self.options.max_connection_age = unlimited_if_zero(age);
        self.options.max_connection_age_grace = unlimited_if_zero(grace);
        self
    }

    /// Sets the time without a new call after which a connection of gRPC is closed. The default is
    /// 15 minutes, and zero is no limit.
    ///
    /// The connection is closed after one to two times this time. Calls that are still under way
    /// have the grace of [`max_connection_age`](Self::max_connection_age). A connection without any
    /// call is closed after one minute at most.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.options.idle_timeout = unlimited_if_zero(timeout);
        self
    }

    /// Sets the most connections of gRPC, and the most connections of HTTP. The default is 10 000
    /// each. Debug pages, metrics and the console have a quarter of it each, and at most 64.
    ///
    /// A port with so many connections accepts the next one when another one ends, and closes those
    /// that have made no call, or have not read, for a second. HTTP then answers health checks on
    /// up to four more connections. Each connection takes a file descriptor of the process.
    pub fn max_connections(mut self, max: usize) -> Self {
        self.options.max_connections = max.max(1);
        self
    }

    /// Sets the most calls at the same time on one connection. The default is 1024. The client
    /// holds further calls back.
    ///
    /// The port waits for the rest of four times as many requests. When there are more, the oldest
    /// one ends with `UNAVAILABLE`. So does a request that has not come whole within ten seconds,
    /// with `DEADLINE_EXCEEDED`. A connection ends when it resets four times as many calls before
    /// the server has taken them.
    pub fn max_streams(mut self, max: u32) -> Self {
        self.options.max_streams = max;
        self
    }

    /// Sets how long calls that are under way may go on when the server ends. The default is 20
    /// seconds, which is less than the 30 seconds after which Kubernetes kills a program.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.options.drain_timeout = timeout;
        self
    }

    /// Opens all ports, and reads the certificates.
    ///
    /// # Errors
    ///
    /// Fails when a port cannot be opened, when a certificate or a key cannot be read, and when TLS
    /// is set for a Unix socket.
    pub async fn bind(self) -> Result<Server, ServerError> {
        if self.tls.is_some() && matches!(self.grpc, GrpcListen::Unix(_)) {
            return Err(ServerError::new("TLS needs a port, and not a Unix socket"));
        }
        let tls = self.tls.map(ReloadedTls::load).transpose()?;
        let grpc = self.grpc.open().await?;
        let most = self.options.max_connections;
        let few = (most / 4).clamp(1, 64);
        let routes =
            |place: Option<(String, u16)>, routes| place.map(|(host, port)| (host, port, routes));
        let http = routes(
            self.http,
            crate::http::router(self.service.clone(), self.health.clone()),
        );
        let spare = crate::http::spare_router(self.health.clone());
        let debug = routes(self.debug, crate::debug::router(self.service.clone()));
        let mut pages = Vec::new();
        for (what, page, max_connections, spare) in [
            ("HTTP", http, most, Some(spare)),
            ("debug pages", debug, few, None),
            ("metrics", self.metrics, few, None),
            ("console", self.console, few, None),
        ] {
            let Some((host, port, routes)) = page else {
                continue;
            };
            let listener = tcp(what, &host, port).await?;
            let address = local(&listener)?;
            pages.push(Page {
                what,
                address,
                listener: Listener::Tcp(listener),
                routes,
                max_connections,
                spare,
            });
        }
        let listeners = Listeners {
            grpc_place: grpc.local()?,
            grpc,
            tls,
            pages,
        };
        Ok(Server {
            service: self.service,
            health: self.health,
            listeners,
            options: self.options,
        })
    }
}

/// Returns the longest time for zero.
fn unlimited_if_zero(time: Duration) -> Duration {
    if time.is_zero() { Duration::MAX } else { time }
}

tollgate::debug_fields! { ServerBuilder: grpc, tls, http, debug, options, .. }
