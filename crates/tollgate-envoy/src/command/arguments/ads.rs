//! The flags and variables for rules from a control plane, under the names that Envoy's service
//! has.
//! The client that they set up is in `ads/`, and is built in `command/start.rs`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use crate::command::values::{Pairs, boolean, duration, equal_pairs, pairs, path};

/// The settings of the client of a control plane.
#[derive(Args)]
pub(crate) struct AdsArguments {
    /// Sets the address of the control plane
    #[arg(long, env, default_value = "localhost:18000", value_name = "HOST:PORT")]
    pub(crate) config_grpc_xds_server_url: String,

    /// Sets the name under which the control plane knows this service
    #[arg(long, env, default_value = "default", value_name = "NAME")]
    pub(crate) config_grpc_xds_node_id: String,

    /// Sets metadata of this service that is sent to the control plane
    #[arg(long, env, default_value = "", value_parser = equal_pairs, value_name = "NAME=VALUE,…")]
    pub(crate) config_grpc_xds_node_metadata: Pairs,

    /// Sets gRPC metadata of the calls to the control plane
    #[arg(long, env, default_value = "", value_parser = pairs, hide_env_values = true)]
    #[arg(value_name = "NAME:VALUE,…")]
    pub(crate) config_grpc_xds_client_additional_headers: Pairs,

    /// Connects to the control plane with TLS
    #[arg(long, env, value_parser = boolean, default_value = "false")]
    pub(crate) config_grpc_xds_server_use_tls: bool,

    /// Sets the CA certificates that verify the control plane, in PEM
    #[arg(long, env, default_value = "", value_parser = path, value_name = "FILE")]
    pub(crate) config_grpc_xds_server_tls_cacert: PathBuf,

    /// Sets the name that the certificate of the control plane must have
    #[arg(long, env, default_value = "", value_name = "NAME")]
    pub(crate) config_grpc_xds_server_tls_san: String,

    /// Sets the certificate of this client, in PEM
    #[arg(long, env, default_value = "", value_parser = path, value_name = "FILE")]
    pub(crate) config_grpc_xds_client_tls_cert: PathBuf,

    /// Sets the private key of the certificate, in PEM
    #[arg(long, env, default_value = "", value_parser = path, value_name = "FILE")]
    pub(crate) config_grpc_xds_client_tls_key: PathBuf,

    /// Sets the first wait before a new connection to the control plane
    #[arg(long, env, default_value = "10s", value_parser = duration)]
    pub(crate) xds_client_backoff_initial_interval: Duration,

    /// Sets the longest wait before a new connection to the control plane
    #[arg(long, env, default_value = "60s", value_parser = duration)]
    pub(crate) xds_client_backoff_max_interval: Duration,

    /// Sets the share by which these waits vary at random, from 0 to 1
    #[arg(long, env, default_value_t = 0.5, value_name = "SHARE")]
    pub(crate) xds_client_backoff_random_factor: f64,

    /// Varies these waits at random
    #[arg(long, env, value_parser = boolean, default_value = "true")]
    pub(crate) xds_client_backoff_jitter: bool,

    /// Sets the most bytes of a response of the control plane
    #[arg(long, env, default_value_t = 4 << 20, value_name = "BYTES")]
    pub(crate) xds_client_max_msg_size_in_bytes: usize,
}
