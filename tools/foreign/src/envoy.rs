//! Envoy: its configuration, and the process.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::Path, process::Command};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_tests::{Process, ports};

/// The start of the names of types.
const TYPES: &str = "type.googleapis.com/envoy.extensions";

/// The address from which Envoy asks its servers. Envoy does not append 127.0.0.1 to
/// `X-Forwarded-For`: it takes the address of the machine instead.
pub(crate) const SOURCE: &str = "127.0.0.9";

/// A port of Envoy, and the server behind it.
#[derive(Debug)]
pub(crate) struct Listener {
    port: u16,
    /// Tells whether the server behind it is asked in HTTP/2, as gRPC needs.
    is_http2: bool,
    connection_manager: Value,
    retry_policy: Value,
    /// The filters before the router.
    filters: Vec<Value>,
    /// The routes. Without any, every request is passed on.
    routes: Vec<Value>,
    /// The cluster of the server, and those of the filters and routes.
    clusters: Vec<Value>,
}

impl Listener {
    /// Passes requests on to `upstream`, in HTTP/1.1.
    pub(crate) fn to(upstream: SocketAddr) -> Self {
        let port = ports::free();
        let mut cluster = cluster(&name(port), upstream);
        cluster["upstream_bind_config"] =
            json!({"source_address": {"address": SOURCE, "port_value": 0}});
        Self {
            port,
            is_http2: false,
            connection_manager: json!({}),
            retry_policy: Value::Null,
            filters: Vec::new(),
            routes: Vec::new(),
            clusters: vec![cluster],
        }
    }

    /// Sets options of the connection manager, such as `use_remote_address`.
    pub(crate) fn with(mut self, connection_manager: Value) -> Self {
        self.connection_manager = connection_manager;
        self
    }

    /// Sets the policy by which requests are sent again.
    pub(crate) fn retrying(mut self, retry_policy: Value) -> Self {
        self.retry_policy = retry_policy;
        self
    }

    /// Asks the server in HTTP/2, and translates gRPC-Web.
    pub(crate) fn grpc(mut self) -> Self {
        self.is_http2 = true;
        in_http2(&mut self.clusters[0]);
        self.filter(filter("grpc_web", "grpc_web.v3.GrpcWeb", json!({})))
    }

    /// Adds a filter before the router.
    pub(crate) fn filter(mut self, filter: Value) -> Self {
        self.filters.push(filter);
        self
    }

    /// Adds a route. One without a cluster leads to the server behind the listener.
    pub(crate) fn route(mut self, route: Value) -> Self {
        self.routes.push(route);
        self
    }

    /// Adds a cluster that a filter or a route names.
    pub(crate) fn with_cluster(mut self, cluster: Value) -> Self {
        self.clusters.push(cluster);
        self
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    fn listener(&self) -> Value {
        let mut filters = self.filters.clone();
        filters.push(filter("router", "router.v3.Router", json!({})));
        let manager =
            format!("{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager");
        let mut manager = json!({
            "@type": manager,
            "stat_prefix": name(self.port),
            "codec_type": "AUTO",
            "upgrade_configs": [{"upgrade_type": "websocket"}],
            "http_filters": filters,
            "route_config": {"virtual_hosts": [{
                "name": "all",
                "domains": ["*"],
                "include_attempt_count_in_response": true,
                "routes": self.routes(),
            }]},
        });
        for (name, value) in self.connection_manager.as_object().into_iter().flatten() {
            manager[name] = value.clone();
        }
        json!({
            "name": name(self.port),
            "address": address(self.address()),
            "filter_chains": [{"filters": [
                {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager},
            ]}],
        })
    }

    fn routes(&self) -> Vec<Value> {
        let mut routes = self.routes.clone();
        if routes.is_empty() {
            routes.push(json!({"match": {"prefix": "/"}}));
        }
        for route in &mut routes {
            let action = &mut route["route"];
            if action["cluster"].is_null() {
                action["cluster"] = name(self.port).into();
            }
            action["timeout"] = "60s".into();
            action["retry_policy"] = self.retry_policy.clone();
        }
        routes
    }
}

fn name(port: u16) -> String {
    format!("port {port}")
}

/// Returns a filter of requests with these settings.
pub(crate) fn filter(name: &str, kind: &str, mut settings: Value) -> Value {
    settings["@type"] = format!("{TYPES}.filters.http.{kind}").into();
    json!({"name": format!("envoy.filters.http.{name}"), "typed_config": settings})
}

/// Returns a cluster of one server.
pub(crate) fn cluster(name: &str, server: SocketAddr) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(server)}}]}],
        },
    })
}

/// Makes the cluster one that is asked in HTTP/2, as gRPC needs.
pub(crate) fn in_http2(cluster: &mut Value) {
    let options = format!("{TYPES}.upstreams.http.v3.HttpProtocolOptions");
    cluster["typed_extension_protocol_options"] = json!({
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions":
            {"@type": options, "explicit_http_config": {"http2_protocol_options": {}}},
    });
}

/// Returns an address in Envoy's form.
pub(crate) fn address(at: SocketAddr) -> Value {
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
        // Listeners may share a cluster.
        let clusters = listeners.iter().flat_map(|listener| &listener.clusters);
        let clusters: BTreeMap<_, _> = clusters
            .map(|cluster| (cluster["name"].to_string(), cluster))
            .collect();
        let configuration = json!({"static_resources": {
            "listeners": listeners.iter().map(Listener::listener).collect::<Vec<_>>(),
            "clusters": clusters.into_values().collect::<Vec<_>>(),
        }});
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("envoy.json");
        fs::write(&path, configuration.to_string()).expect("the directory is ours");
        let mut command = Command::new(program);
        // The action `source_cluster` tells the name of the service cluster.
        command.args(["--service-node", "foreign", "--service-cluster", "proxy"]);
        command.args(["--concurrency", "1", "--disable-hot-restart"]);
        // The line that is waited for has the level `info`.
        command
            .args(["--log-level", "info", "--config-path"])
            .arg(&path);
        Self {
            _process: Process::start(command, "starting workers"),
            _directory: directory,
        }
    }
}
