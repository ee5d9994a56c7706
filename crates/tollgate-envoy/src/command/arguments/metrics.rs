//! The flags and variables for statsd and Prometheus, and which of both is on.
//! What is counted is decided in `metrics/` of the library.

use std::time::Duration;

use clap::{Args, ValueEnum};
use tollgate_envoy::StatsdProtocol;

use crate::command::values::{Pairs, boolean, duration, pairs};

/// The settings of metrics.
#[derive(Args)]
pub(crate) struct MetricsArguments {
    /// Sends and serves no metrics
    #[arg(long, env, value_parser = boolean, default_value = "false")]
    pub(crate) disable_stats: bool,

    /// Sends metrics to statsd [default: true, or false with --use-prometheus]
    #[arg(long, env, value_parser = boolean)]
    pub(crate) use_statsd: Option<bool>,

    /// Sets the host of statsd
    #[arg(long, env, default_value = "localhost", value_name = "HOST")]
    pub(crate) statsd_host: String,

    /// Sets the port of statsd
    #[arg(long, env, default_value_t = 8125, value_name = "PORT")]
    pub(crate) statsd_port: u16,

    /// Sets the protocol for statsd
    #[arg(long, env, default_value = "tcp", ignore_case = true)]
    #[arg(value_name = "PROTOCOL")]
    pub(crate) statsd_protocol: Protocol,

    /// Adds tags to the names of metrics for statsd
    #[arg(long, env, default_value = "", value_parser = pairs, value_name = "NAME:VALUE,…")]
    pub(crate) extra_tags: Pairs,

    /// Sets the time between two sends to statsd
    #[arg(long, env, default_value = "10s", value_parser = duration)]
    pub(crate) stats_flush_interval: Duration,

    /// Serves metrics for Prometheus
    #[arg(long, env, value_parser = boolean, default_value = "false")]
    pub(crate) use_prometheus: bool,

    /// Sets the address for Prometheus. The host may be left out
    #[arg(long, env, default_value = ":9090", value_name = "HOST:PORT")]
    pub(crate) prometheus_addr: String,

    /// Sets the path for Prometheus
    #[arg(long, env, default_value = "/metrics", value_name = "PATH")]
    pub(crate) prometheus_path: String,
}

impl MetricsArguments {
    /// Returns whether metrics are sent to statsd.
    ///
    /// Envoy's service sends them by default, and refuses to start with both exporters.
    pub(crate) fn sends_to_statsd(&self) -> bool {
        !self.disable_stats && self.use_statsd.unwrap_or(!self.use_prometheus)
    }
}

/// Selects how metrics are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// On one connection
    Tcp,
    /// In datagrams
    Udp,
}

impl From<Protocol> for StatsdProtocol {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::Tcp,
            Protocol::Udp => Self::Udp,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::command::arguments::Arguments;

    #[test]
    fn statsd_is_on_unless_prometheus_takes_its_place() {
        for (flags, expected) in [
            (vec![], true),
            (vec!["--use-prometheus"], false),
            (vec!["--use-prometheus", "--use-statsd"], true),
            (vec!["--use-statsd=false"], false),
            (vec!["--use-statsd", "--disable-stats"], false),
        ] {
            let arguments =
                Arguments::parse_from(["tollgate-envoy"].into_iter().chain(flags.iter().copied()));
            assert_eq!(arguments.metrics.sends_to_statsd(), expected, "{flags:?}");
        }
    }
}
