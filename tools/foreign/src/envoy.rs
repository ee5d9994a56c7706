//! Envoy: its configuration, and the process.

use std::{fs, net::SocketAddr, path::Path, process::Command};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_tests::{Process, ports};

const TYPES: &str = "type.googleapis.com/envoy.extensions";

/// The address from which Envoy asks its servers. Envoy does not append 127.0.0.1 to `X-Forwarded-For`: it takes the address
/// of the machine instead.
pub(crate) const SOURCE: &str = "127.0.0.9";

/// A port of Envoy, and the server behind it.
#[derive(Debug)]
pub(crate) struct Listener {
    port: u16,
    upstream: SocketAddr,
    /// Tells whether the server behind it is asked in HTTP/2, as gRPC needs.
    is_http2: bool,
    connection_manager: Value,
    retry_policy: Value,
}

impl Listener {
    /// Passes requests on to `upstream`, in HTTP/1.1.
    pub(crate) fn to(upstream: SocketAddr) -> Self {
        Self {
            port: ports::free(),
            upstream,
            is_http2: false,
            connection_manager: json!({}),
            retry_policy: Value::Null,
        }
    }

    /// Sets options of the connection manager, such as `use_remote_address`.
    pub(crate) fn with(mut self, connection_manager: Value) -> Self {
        self.connection_manager = connection_manager;
        self
    }

    /// Sets the policy by which denied requests are sent again.
    pub(crate) fn retrying(mut self, retry_policy: Value) -> Self {
        self.retry_policy = retry_policy;
        self
    }

    /// Asks the server in HTTP/2, and translates gRPC-Web.
    pub(crate) fn grpc(mut self) -> Self {
        self.is_http2 = true;
        self
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    fn name(&self) -> String {
        format!("port {}", self.port)
    }

    fn listener(&self) -> Value {
        let mut filters = vec![json!({
            "name": "envoy.filters.http.router",
            "typed_config": {"@type": format!("{TYPES}.filters.http.router.v3.Router")},
        })];
        if self.is_http2 {
            filters.insert(
                0,
                json!({
                    "name": "envoy.filters.http.grpc_web",
                    "typed_config": {"@type": format!("{TYPES}.filters.http.grpc_web.v3.GrpcWeb")},
                }),
            );
        }
        let mut route = json!({"cluster": self.name(), "timeout": "60s"});
        if !self.retry_policy.is_null() {
            route["retry_policy"] = self.retry_policy.clone();
        }
        let mut manager = json!({
            "@type": format!("{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager"),
            "stat_prefix": self.name(),
            "codec_type": "AUTO",
            "upgrade_configs": [{"upgrade_type": "websocket"}],
            "http_filters": filters,
            "route_config": {"virtual_hosts": [{
                "name": "all",
                "domains": ["*"],
                "include_attempt_count_in_response": true,
                "routes": [{"match": {"prefix": "/"}, "route": route}],
            }]},
        });
        for (name, value) in self.connection_manager.as_object().into_iter().flatten() {
            manager[name] = value.clone();
        }
        json!({
            "name": self.name(),
            "address": address(self.address()),
            "filter_chains": [{"filters": [
                {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager},
            ]}],
        })
    }

    fn cluster(&self) -> Value {
        let mut cluster = json!({
            "name": self.name(),
            "type": "STATIC",
            "connect_timeout": "5s",
            "upstream_bind_config": {"source_address": {"address": SOURCE, "port_value": 0}},
            "load_assignment": {
                "cluster_name": self.name(),
                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(self.upstream)}}]}],
            },
        });
        if self.is_http2 {
            let options = format!("{TYPES}.upstreams.http.v3.HttpProtocolOptions");
            cluster["typed_extension_protocol_options"]["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"] =
                json!({"@type": options, "explicit_http_config": {"http2_protocol_options": {}}});
        }
        cluster
    }
}

fn address(at: SocketAddr) -> Value {
    json!({"socket_address": {"address": at.ip().to_string(), "port_value": at.port()}})
}

/// A running Envoy. Dropping the value ends it.
#[derive(Debug)]
pub(crate) struct Envoy {
    _process: Process,
    _directory: TempDir,
}

impl Envoy {
    /// Starts the program with these listeners, and waits until it accepts connections.
    ///
    /// # Panics
    ///
    /// When it does not start. The message contains its output.
    pub(crate) fn start(program: &Path, listeners: &[Listener]) -> Self {
        let configuration = json!({"static_resources": {
            "listeners": listeners.iter().map(Listener::listener).collect::<Vec<_>>(),
            "clusters": listeners.iter().map(Listener::cluster).collect::<Vec<_>>(),
        }});
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("envoy.json");
        fs::write(&path, configuration.to_string()).expect("the directory is ours");
        let mut command = Command::new(program);
        command.arg("--config-path").arg(&path).args(["--concurrency", "1", "--disable-hot-restart"]);
        // The line that is waited for has the level `info`.
        command.args(["--log-level", "info"]);
        let process = Process::start(command, "starting workers");
        Self { _process: process, _directory: directory }
    }
}
