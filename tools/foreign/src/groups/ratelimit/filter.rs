//! The filter of Envoy that asks a rate limit service.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::envoy::{self, Listener, TYPES};

/// The settings of the filter. Without more, they are Envoy's defaults.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    services: Vec<SocketAddr>,
    settings: Value,
}

impl Filter {
    /// Asks the service at this address about the domain `shop`.
    pub(super) fn new(service: SocketAddr) -> Self {
        Self::of(&[service])
    }

    /// Asks several replicas. Envoy checks their health each 0.3 seconds.
    pub(super) fn of(services: &[SocketAddr]) -> Self {
        let settings = json!({
            "@type": format!("{TYPES}.filters.http.ratelimit.v3.RateLimit"),
            "domain": "shop",
            "rate_limit_service": {
                // Envoy sends the name of the cluster as the authority, unless another one is set.
                // Servers in Rust refuse an authority with such characters.
                "grpc_service": {"envoy_grpc": {"cluster_name": cluster_name(services), "authority": "ratelimit"}},
                "transport_api_version": "V3",
            },
        });
        Self {
            services: services.to_vec(),
            settings,
        }
    }

    /// Waits this long for an answer.
    pub(super) fn timeout(self, time: &str) -> Self {
        self.set("timeout", time)
    }

    /// Denies requests while the service fails.
    pub(super) fn deny_on_failure(self) -> Self {
        self.set("failure_mode_deny", true)
    }

    /// Sets the status of a request that is denied because the service fails.
    pub(super) fn status_on_error(self, status: u16) -> Self {
        self.set("status_on_error", json!({"code": status}))
    }

    /// Sets the status of a request over its limit.
    pub(super) fn status(self, status: u16) -> Self {
        self.set("rate_limited_status", json!({"code": status}))
    }

    /// Leaves out the field `x-envoy-ratelimited`.
    pub(super) fn without_ratelimited_header(self) -> Self {
        self.set("disable_x_envoy_ratelimited_header", true)
    }

    /// Adds the fields `x-ratelimit-limit`, `-remaining` and `-reset`, which Envoy makes of the
    /// statuses.
    pub(super) fn x_ratelimit_headers(self) -> Self {
        self.set("enable_x_ratelimit_headers", "DRAFT_VERSION_03")
    }

    /// Adds `retry-after` to denials, which Envoy makes of the statuses.
    pub(super) fn retry_after(self) -> Self {
        self.set("enable_retry_after_header", true)
    }

    /// Denies gRPC calls with `RESOURCE_EXHAUSTED` in place of `UNAVAILABLE`.
    pub(super) fn with_resource_exhausted(self) -> Self {
        self.set("rate_limited_as_resource_exhausted", true)
    }

    fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.settings[name] = value.into();
        self
    }

    /// Adds the filter, and the cluster of the service, to a listener.
    pub(super) fn add_to(&self, listener: Listener) -> Listener {
        let mut cluster = envoy::in_http2(envoy::cluster(
            &cluster_name(&self.services),
            self.services[0],
        ));
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
        let filter = json!({"name": "envoy.filters.http.ratelimit", "typed_config": self.settings});
        listener.filter(filter).with_cluster(cluster)
    }
}

/// Returns a name in the form of Istio.
fn cluster_name(services: &[SocketAddr]) -> String {
    let ports: Vec<_> = services
        .iter()
        .map(|service| service.port().to_string())
        .collect();
    format!("outbound|{}||ratelimit", ports.join("-"))
}

/// Passes the metadata of the rules that have units left on to the choice of the server: first as a
/// header field of the request, and then as metadata of Envoy's load balancer.
pub(super) fn add_metadata_header(listener: Listener) -> Listener {
    const NAME: &str = "x-service-with-quota";
    let mutation = json!({
        "@type": format!("{TYPES}.filters.http.header_mutation.v3.HeaderMutation"),
        "mutations": {"request_mutations": [{"append": {
            "header": {
                "key": NAME,
                "value": "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:metadata:service_with_quota:name)%",
            },
            "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
        }}]},
    });
    let balancer = json!({
        "@type": format!("{TYPES}.filters.http.header_to_metadata.v3.Config"),
        "request_rules": [{
            "header": NAME,
            "on_header_present": {"metadata_namespace": "envoy.lb", "key": "service", "type": "STRING"},
        }],
    });
    listener
        .filter(json!({"name": "envoy.filters.http.header_mutation", "typed_config": mutation}))
        .filter(json!({"name": "envoy.filters.http.header_to_metadata", "typed_config": balancer}))
}
