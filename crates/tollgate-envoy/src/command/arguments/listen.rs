//! The flags and variables for ports, TLS, and the bounds of connections and calls.
//! They are kept in `server/`; `command/start.rs` passes them on.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use crate::command::values::{boolean, duration, path};

/// The settings of the server.
#[derive(Args)]
pub(crate) struct ListenArguments {
    /// Sets the address for HTTP
    #[arg(long, env, default_value = "0.0.0.0", value_name = "HOST")]
    pub(crate) host: String,

    /// Sets the port for HTTP
    #[arg(long, env, default_value_t = 8080, value_name = "PORT")]
    pub(crate) port: u16,

    /// Sets the address for debug pages
    #[arg(long, env, default_value = "127.0.0.1", value_name = "HOST")]
    pub(crate) debug_host: String,

    /// Sets the port for debug pages
    #[arg(long, env, default_value_t = 6070, value_name = "PORT")]
    pub(crate) debug_port: u16,

    /// Serves gRPC at a Unix socket in place of a port
    #[arg(long, env, default_value = "", value_parser = path, value_name = "PATH")]
    pub(crate) grpc_uds: PathBuf,

    /// Sets the address for gRPC
    #[arg(long, env, default_value = "0.0.0.0", value_name = "HOST")]
    pub(crate) grpc_host: String,

    /// Sets the port for gRPC
    #[arg(long, env, default_value_t = 8081, value_name = "PORT")]
    pub(crate) grpc_port: u16,

    /// Closes connections of gRPC after this time. 0 is no limit
    #[arg(long, env, default_value = "24h", value_parser = duration)]
    pub(crate) grpc_max_connection_age: Duration,

    /// Sets how long calls may go on after --grpc-max-connection-age. 0 is no limit
    #[arg(long, env, default_value = "1h", value_parser = duration)]
    pub(crate) grpc_max_connection_age_grace: Duration,

    /// Serves gRPC with TLS
    #[arg(long, env, value_parser = boolean, default_value = "false")]
    pub(crate) grpc_server_use_tls: bool,

    /// Sets the certificate, in PEM. It is read again when it changes
    #[arg(long, env, default_value = "", value_parser = path, value_name = "FILE")]
    pub(crate) grpc_server_tls_cert: PathBuf,

    /// Sets the private key of the certificate, in PEM
    #[arg(long, env, default_value = "", value_parser = path, value_name = "FILE")]
    pub(crate) grpc_server_tls_key: PathBuf,

    /// Sets the CA certificates that verify clients, in PEM. Clients then need a certificate
    #[arg(long, env, default_value = "", value_parser = path, value_name = "FILE")]
    pub(crate) grpc_client_tls_cacert: PathBuf,

    /// Sets the name that the certificate of a client must have
    #[arg(long, env, default_value = "", value_name = "NAME")]
    pub(crate) grpc_client_tls_san: String,

    /// Sets the most connections of gRPC, and of HTTP [default: a quarter of the file descriptors,
    /// at most 10000]
    #[arg(long, env = "TOLLGATE_MAX_CONNECTIONS", value_name = "COUNT")]
    pub(crate) max_connections: Option<usize>,

    /// Closes connections of gRPC without a new call for this time. 0 is no limit
    #[arg(long, env = "TOLLGATE_IDLE_TIMEOUT", default_value = "15m", value_parser = duration)]
    pub(crate) idle_timeout: Duration,

    /// Sets the most calls at the same time on one connection
    #[arg(long, env = "TOLLGATE_MAX_STREAMS", default_value_t = 1_024)]
    #[arg(value_name = "COUNT")]
    pub(crate) max_streams: u32,

    /// Sets the most bytes of a request
    #[arg(long, env = "TOLLGATE_MAX_MESSAGE_BYTES", default_value_t = 1 << 20)]
    #[arg(value_name = "BYTES")]
    pub(crate) max_message_bytes: usize,

    /// Sets the most descriptors of a request
    #[arg(long, env = "TOLLGATE_MAX_DESCRIPTORS", default_value_t = 1_000)]
    #[arg(value_name = "COUNT")]
    pub(crate) max_descriptors: usize,

    /// Sets how long calls are still taken after SIGTERM, while the health fails
    #[arg(long, env = "TOLLGATE_DRAIN_DELAY", default_value = "5s", value_parser = duration)]
    pub(crate) drain_delay: Duration,

    /// Sets how long calls may go on after --drain-delay
    #[arg(long, env = "TOLLGATE_DRAIN_TIMEOUT", default_value = "20s", value_parser = duration)]
    pub(crate) drain_timeout: Duration,
}
