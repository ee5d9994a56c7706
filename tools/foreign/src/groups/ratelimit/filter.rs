//! The filter of Envoy that asks a rate limit service, and the routes that make descriptors.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::envoy::{self, Listener};

/// The time that Envoy waits for an answer, where a case does not try that time. The default, 20
/// ms, is too short for a machine with other work.
const PATIENT: &str = "10s";

/// The settings of the filter. Without more, they are Envoy's defaults.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    services: Vec<SocketAddr>,
    settings: Value,
}

impl Filter {
    /// Asks the replicas at these addresses about the domain `shop`. Envoy checks the health of
    /// several each 0.3 seconds.
    pub(super) fn hasty(services: &[SocketAddr]) -> Self {
        let cluster = cluster_name(services);
        let settings = json!({
            "domain": "shop",
            "rate_limit_service": {
                // Envoy sends the name of the cluster as the authority, unless another one is set.
                // Servers in Rust refuse an authority with such characters.
                "grpc_service": {"envoy_grpc": {"cluster_name": cluster, "authority": "ratelimit"}},
                "transport_api_version": "V3",
            },
        });
        Self {
            services: services.to_vec(),
            settings,
        }
    }

    /// Asks them, and waits for the answer.
    pub(super) fn new(services: &[SocketAddr]) -> Self {
        Self::hasty(services).set("timeout", PATIENT)
    }

    /// Sets a field of Envoy's `RateLimit`.
    pub(super) fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.settings[name] = value.into();
        self
    }

    /// Adds the filter, and the cluster of the service, to a listener.
    pub(super) fn add_to(self, listener: Listener) -> Listener {
        let mut cluster = envoy::cluster(&cluster_name(&self.services), self.services[0]);
        envoy::in_http2(&mut cluster);
        if self.services.len() > 1 {
            let endpoint =
                |service: &SocketAddr| json!({"endpoint": {"address": envoy::address(*service)}});
            cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] =
                self.services.iter().map(endpoint).collect();
            cluster["health_checks"] = json!([{
                "timeout": "1s", "interval": "0.3s", "no_traffic_interval": "0.3s",
                "unhealthy_threshold": 1, "healthy_threshold": 1,
                "grpc_health_check": {"service_name": "ratelimit", "authority": "ratelimit"},
            }]);
        }
        let filter = envoy::filter("ratelimit", "ratelimit.v3.RateLimit", self.settings);
        listener.filter(filter).with_cluster(cluster)
    }
}

/// Returns a name in the form of Istio.
fn cluster_name(services: &[SocketAddr]) -> String {
    let ports = services.iter().map(|service| service.port().to_string());
    format!(
        "outbound|{}||ratelimit",
        ports.collect::<Vec<_>>().join("-")
    )
}

/// Returns a route with these lists of actions. Each list makes a descriptor, unless one of its
/// actions finds nothing.
pub(super) fn route(prefix: &str, actions: &[Value]) -> Value {
    let limits: Vec<_> = actions
        .iter()
        .map(|actions| json!({"actions": actions}))
        .collect();
    json!({"match": {"prefix": prefix}, "route": {"rate_limits": limits}})
}

/// Returns the action that makes an entry of a header field.
pub(super) fn header(name: &str) -> Value {
    json!({"request_headers": {"header_name": format!("x-{name}"), "descriptor_key": name}})
}

/// Returns the action that makes the same entry of each request.
pub(super) fn generic(key: &str, value: &str) -> Value {
    json!({"generic_key": {"descriptor_key": key, "descriptor_value": value}})
}

/// Adds the routes of the requests over HTTP, and what they lead to.
pub(super) fn with_routes(listener: Listener, servers: [(&str, SocketAddr); 2]) -> Listener {
    let pair = |first, second| json!([header(first), header(second)]);
    let clusters = json!([{"source_cluster": {}}, {"destination_cluster": {}}]);
    let quota = |value| json!({"actions": [generic("quota", value)]});
    let tokens = generic("tokens", "all");
    let services = [
        at_end(&generic("service", "first"), 0),
        at_end(&generic("service", "second"), 0),
        at_end(
            &json!({"metadata": {
                "descriptor_key": "service",
                "source": "CLUSTER_LOCALITY_ENTRY",
                "metadata_key": {"key": "shop.locality", "path": [{"key": "name"}]},
            }}),
            1,
        ),
    ];
    let routes = [
        route("/address", &[json!([{"remote_address": {}}])]),
        route(
            "/pairs",
            &[pair("tenant", "tier"), pair("tenant", "region")],
        ),
        route("/four", &[pair("tenant", "region"), pair("from", "to")]),
        to("first", route("/clusters", &[clusters])),
        per_route("/quota", &[quota("one"), quota("two")]),
        per_route("/tokens", &[at_end(&tokens, 0), at_end(&tokens, 1)]),
        to(BY_SERVICE, per_route("/services", &services)),
        json!({"match": {"prefix": "/"}}),
    ];
    let listener = add_metadata_header(listener)
        .with_cluster(envoy::cluster("first", servers[0].1))
        .with_cluster(by_service(servers));
    routes.into_iter().fold(listener, Listener::route)
}

/// Leads a route to another cluster than that of the listener.
fn to(cluster: &str, mut route: Value) -> Value {
    route["route"]["cluster"] = cluster.into();
    route
}

/// Spends units after the response, or looks at them before.
fn at_end(action: &Value, hits: u32) -> Value {
    json!({
        "actions": [action],
        "hits_addend": {"number": hits},
        "apply_on_stream_done": hits > 0,
    })
}

/// Returns a route whose limits are those of the filter's own settings, which have units and the
/// moment when they are spent.
fn per_route(prefix: &str, limits: &[Value]) -> Value {
    let limits = json!({"rate_limits": limits});
    let filter = envoy::filter("ratelimit", "ratelimit.v3.RateLimitPerRoute", limits);
    json!({
        "match": {"prefix": prefix},
        "typed_per_filter_config": {"envoy.filters.http.ratelimit": filter["typed_config"]},
    })
}

const BY_SERVICE: &str = "by service";

/// Returns a cluster of two servers, of which the metadata of a request selects one.
fn by_service(servers: [(&str, SocketAddr); 2]) -> Value {
    let mut cluster = envoy::cluster(BY_SERVICE, servers[0].1);
    let endpoints = servers.map(|(name, server)| {
        json!({
            "locality": {"region": name},
            "metadata": {"filter_metadata": {"shop.locality": {"name": name}}},
            "lb_endpoints": [{
                "endpoint": {"address": envoy::address(server)},
                "metadata": {"filter_metadata": {"envoy.lb": {"service": name}}},
            }],
        })
    });
    cluster["load_assignment"]["endpoints"] = endpoints.to_vec().into();
    cluster["lb_subset_config"] =
        json!({"fallback_policy": "ANY_ENDPOINT", "subset_selectors": [{"keys": ["service"]}]});
    cluster
}

/// Passes the metadata of the rules that have units left on to the choice of the server: first as a
/// header field of the request, and then as metadata of Envoy's load balancer.
fn add_metadata_header(listener: Listener) -> Listener {
    const NAME: &str = "x-service-with-quota";
    let value = "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:metadata:service_with_quota:name)%";
    let mutation = json!({"mutations": {"request_mutations": [{"append": {
        "header": {"key": NAME, "value": value},
        "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
    }}]}});
    let balancer = json!({"request_rules": [{
        "header": NAME,
        "on_header_present": {"metadata_namespace": "envoy.lb", "key": "service", "type": "STRING"},
    }]});
    let (to_header, to_metadata) = ("header_mutation", "header_to_metadata");
    let mutation = envoy::filter(to_header, "header_mutation.v3.HeaderMutation", mutation);
    let balancer = envoy::filter(to_metadata, "header_to_metadata.v3.Config", balancer);
    listener.filter(mutation).filter(balancer)
}
