//! Sets the options of a server.

use std::{
    ffi::OsString,
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Mutex,
};

use tempfile::TempDir;

use super::{RedisServer, binary, launch};
use crate::ports;

/// The number of ports to try; each failure is a race lost against another process.
const ATTEMPTS: usize = 10;

/// Builds and starts a server; made by [`RedisServer::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "a server runs only after `start`"]
pub struct Builder {
    pub(super) binary: Option<PathBuf>,
    pub(super) arguments: Vec<String>,
    pub(super) arguments_since_7: Vec<String>,
    pub(super) variables: Vec<(OsString, OsString)>,
    pub(super) configuration: String,
    pub(super) password: Option<String>,
    pub(super) files: Vec<(String, String)>,
    pub(super) tls: bool,
    pub(super) has_bus: bool,
    pub(super) address: Option<Ipv4Addr>,
    pub(super) port: Option<u16>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Adds an option to the command line: `.arg("--maxmemory", "1")`.
    pub fn arg(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.arguments.extend([name.into(), value.into()]);
        self
    }

    /// Adds an option that servers have had since Redis 7.0. Older ones start without it.
    pub fn arg_since_7(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.arguments_since_7.extend([name.into(), value.into()]);
        self
    }

    /// Gives it a second port for a cluster, since Redis 7.0. Older servers take the first one and
    /// 10 000.
    pub(super) fn cluster_port(mut self) -> Self {
        self.has_bus = true;
        self
    }

    /// Makes it a Sentinel, with these lines in its configuration file:
    /// `sentinel monitor m 127.0.0.1 6379 2`.
    pub fn sentinel(mut self, lines: impl AsRef<str>) -> Self {
        self.arguments.push("--sentinel".to_owned());
        self.config(lines)
    }

    /// Adds lines to the configuration file: `.config("user app on >secret ~app:* +get")`.
    pub fn config(mut self, lines: impl AsRef<str>) -> Self {
        self.configuration.push_str(lines.as_ref());
        self.configuration.push('\n');
        self
    }

    /// Requires `password` from every connection.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Puts a file into the server's directory before it starts.
    pub fn file(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.files.push((name.into(), text.into()));
        self
    }

    /// Listens for TLS on a second port, with these certificates in PEM: the authority's, its own
    /// and its key. Clients have to show a certificate of that authority where `asks` is set.
    pub fn tls(mut self, authority: &str, certificate: &str, key: &str, asks: bool) -> Self {
        self.tls = true;
        self.file("ca.crt", authority)
            .file("server.crt", certificate)
            .file("server.key", key)
            .config("tls-ca-cert-file ca.crt\ntls-cert-file server.crt\ntls-key-file server.key")
            .config(format!(
                "tls-auth-clients {}",
                if asks { "yes" } else { "no" }
            ))
    }

    /// Listens at this address instead of 127.0.0.1: a local one, or that of a
    /// [`NetworkNamespace`](crate::NetworkNamespace).
    pub fn address(mut self, address: Ipv4Addr) -> Self {
        self.address = Some(address);
        self
    }

    /// Listens on this port instead of a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Starts this binary instead of the one found by [`find_binary`](super::find_binary).
    pub fn binary(mut self, binary: impl Into<PathBuf>) -> Self {
        self.binary = Some(binary.into());
        self
    }

    /// Sets an environment variable of the server.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Runs the server on `clock`, which must outlive it.
    pub fn clock(mut self, clock: &crate::WallClock) -> Self {
        self.variables.extend(clock.variables());
        self
    }

    /// Returns the address with this port.
    pub(super) fn at(&self, port: u16) -> SocketAddr {
        (self.address.unwrap_or(Ipv4Addr::LOCALHOST), port).into()
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// When there is no server binary, or the server ends instead of answering; the message
    /// contains its log.
    #[must_use]
    pub fn start(mut self) -> RedisServer {
        // Found once: a restart must not change servers.
        let binary = self.binary.get_or_insert_with(binary::find);
        if !self.arguments_since_7.is_empty() && binary::major(binary) >= 7 {
            self.arguments.append(&mut self.arguments_since_7);
        }
        let directory = directory().expect("a temporary directory can be made");
        let has_bus = self.has_bus && binary::major(binary) >= 7;
        // Each attempt has ports of its own.
        let (settings, port, tls_port, running) = (0..ATTEMPTS)
            .find_map(|_| {
                let (port, tls_port) = (
                    self.port.unwrap_or_else(ports::free),
                    self.tls.then(ports::free),
                );
                let mut settings = self.clone();
                if has_bus {
                    settings = settings.arg("--cluster-port", ports::free().to_string());
                }
                let running = launch::launch(&settings, directory.path(), port, tls_port).ok()?;
                Some((settings, port, tls_port, running))
            })
            .expect("every port that was free had been taken a moment later");
        RedisServer {
            settings,
            port,
            tls_port,
            directory,
            running: Mutex::new(Some(running)),
            connection: Mutex::new(None),
        }
    }
}

/// Makes the directory of a server, in memory where that is possible: a server of a cluster waits for
/// the disk each time that a slot moves.
fn directory() -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("tollgate-redis-");
    let in_memory = builder.tempdir_in("/dev/shm");
    in_memory.or_else(|_| builder.tempdir())
}
