//! The routes of Envoy, which make descriptors of requests.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::envoy::{self, TYPES};

/// Returns a route with these lists of actions. Each list makes a descriptor, unless one of its
/// actions finds nothing.
pub(super) fn route(prefix: &str, actions: &[Value]) -> Value {
    let limits: Vec<_> = actions
        .iter()
        .map(|actions| json!({"actions": actions}))
        .collect();
    json!({"match": {"prefix": prefix}, "route": {"rate_limits": limits}})
}

/// Returns the routes of the requests over HTTP.
pub(super) fn all() -> Vec<Value> {
    let pair = |first, second| json!([header(first), header(second)]);
    let mut to_first = route(
        "/clusters",
        &[json!([{"source_cluster": {}}, {"destination_cluster": {}}])],
    );
    to_first["route"]["cluster"] = "first".into();
    let quota = |value| json!({"actions": [generic("quota", value)]});
    let spent_at_end = |value: Value, hits: u32| json!({"actions": [value], "hits_addend": {"number": hits}, "apply_on_stream_done": hits > 0});
    let locality = json!({"metadata": {
        "descriptor_key": "service",
        "source": "CLUSTER_LOCALITY_ENTRY",
        "metadata_key": {"key": "shop.locality", "path": [{"key": "name"}]},
    }});
    let mut services = per_route(
        "/services",
        &[
            spent_at_end(generic("service", "first"), 0),
            spent_at_end(generic("service", "second"), 0),
            spent_at_end(locality, 1),
        ],
    );
    services["route"]["cluster"] = BY_SERVICE.into();
    vec![
        route("/address", &[json!([{"remote_address": {}}])]),
        route("/hasty", &[json!([header("hasty")])]),
        route(
            "/pairs",
            &[pair("tenant", "tier"), pair("tenant", "region")],
        ),
        route("/four", &[pair("tenant", "region"), pair("from", "to")]),
        route(
            "/five",
            &[
                pair("tenant", "region"),
                pair("from", "to"),
                json!([header("category")]),
            ],
        ),
        route("/campaign", &[json!([header("campaign")])]),
        per_route("/quota", &[quota("one"), quota("two")]),
        per_route(
            "/tokens",
            &[
                spent_at_end(generic("tokens", "all"), 0),
                spent_at_end(generic("tokens", "all"), 1),
            ],
        ),
        to_first,
        services,
        json!({"match": {"prefix": "/"}}),
    ]
}

/// Returns a route whose limits are those of the filter's own settings, which have units and the
/// moment when they are spent.
fn per_route(prefix: &str, limits: &[Value]) -> Value {
    json!({
        "match": {"prefix": prefix},
        "typed_per_filter_config": {"envoy.filters.http.ratelimit": {
            "@type": format!("{TYPES}.filters.http.ratelimit.v3.RateLimitPerRoute"),
            "rate_limits": limits,
        }},
    })
}

fn header(name: &str) -> Value {
    json!({"request_headers": {"header_name": format!("x-{name}"), "descriptor_key": name}})
}

fn generic(key: &str, value: &str) -> Value {
    json!({"generic_key": {"descriptor_key": key, "descriptor_value": value}})
}

const BY_SERVICE: &str = "by service";

/// Returns a cluster of two servers, of which the metadata of a request selects one.
pub(super) fn by_service(first: SocketAddr, second: SocketAddr) -> Value {
    let endpoints = [("first", first), ("second", second)].map(|(name, server)| {
        json!({
            "locality": {"region": name},
            "metadata": {"filter_metadata": {"shop.locality": {"name": name}}},
            "lb_endpoints": [{
                "endpoint": {"address": envoy::address(server)},
                "metadata": {"filter_metadata": {"envoy.lb": {"service": name}}},
            }],
        })
    });
    let mut cluster = envoy::cluster(BY_SERVICE, first);
    cluster["load_assignment"]["endpoints"] = endpoints.to_vec().into();
    cluster["lb_subset_config"] =
        json!({"fallback_policy": "ANY_ENDPOINT", "subset_selectors": [{"keys": ["service"]}]});
    cluster
}
