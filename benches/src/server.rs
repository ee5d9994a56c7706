//! Starts the Redis server of a section on its own core, and reads its use of it.

use std::time::Duration;

use tollgate_tests::{Authority, Mode, Proxy, RedisServer};

use crate::machine;

/// Runs a server that only one section uses.
#[derive(Debug)]
pub(crate) struct Server(RedisServer);

impl Server {
    pub(crate) fn start() -> Self {
        Self(machine::on_the_server_core(RedisServer::start))
    }

    /// Starts a server that loads `module`. The module needs the libraries in the folder
    /// `libraries`.
    pub(crate) fn with_module(module: &str, libraries: &str) -> Self {
        let server = RedisServer::builder()
            .arg("--loadmodule", module)
            .env("LD_LIBRARY_PATH", libraries);
        Self(machine::on_the_server_core(|| server.start()))
    }

    /// Starts a server that speaks TLS with a certificate of this authority.
    pub(crate) fn with_tls(authority: &Authority) -> Self {
        let signed = authority.sign();
        Self(machine::on_the_server_core(|| {
            authority.server(&signed, false)
        }))
    }

    /// Starts a server with this many threads for its sockets, on any core.
    pub(crate) fn with_io_threads(count: usize) -> Self {
        let server = RedisServer::builder()
            .arg("--io-threads", count.to_string())
            .arg("--io-threads-do-reads", "yes");
        Self(machine::on_every_core(|| server.start()))
    }

    pub(crate) fn url(&self) -> String {
        self.0.url()
    }

    /// Returns the URL over TLS.
    pub(crate) fn tls_url(&self) -> String {
        format!("rediss://127.0.0.1:{}/", self.0.tls_port())
    }

    /// Starts a proxy before the server that delivers each reply later by a round trip.
    pub(crate) fn at_a_distance(&self, round_trip: Duration) -> Proxy {
        let address = ([127, 0, 0, 1], self.0.port()).into();
        let proxy = machine::on_every_core(|| Proxy::start(address));
        proxy.set(Mode::Delay(round_trip));
        proxy
    }

    /// Loads a script into the server, and returns its SHA-1.
    pub(crate) fn load(&self, script: &str) -> String {
        let reply = self.0.command(&["SCRIPT", "LOAD", script]);
        assert!(!reply.is_error(), "{}", reply.text());
        reply.text()
    }

    /// Returns the processor time of the whole process since it started.
    pub(crate) fn cpu(&self) -> Duration {
        let info = self.0.info("cpu");
        let seconds = |name: &str| {
            let value = info.get(name).and_then(|value| value.parse::<f64>().ok());
            value.unwrap_or(0.0)
        };
        Duration::from_secs_f64(seconds("used_cpu_sys") + seconds("used_cpu_user"))
    }
}
