//! A replica of the service that ends under load.

use serde_json::json;
use tollgate_tests::RateLimitService;

use super::{PATIENT, RULES, filter::Filter, routes};
use crate::{
    case::Line,
    clients::Clients,
    envoy::{Envoy, Listener},
    servers::{Hosted, plain},
};

/// Ends one of two replicas under load.
pub(super) fn run(clients: &Clients) -> Vec<Line> {
    let app = Hosted::start(plain::router("first"));
    let replicas = [(); 2].map(|()| RateLimitService::start(RULES, &["--use-statsd=false"]));
    let filter = Filter::of(&replicas.each_ref().map(RateLimitService::grpc))
        .timeout(PATIENT)
        .deny_on_failure();
    let action = json!([{"request_headers": {"header_name": "x-tenant", "descriptor_key": "tenant"}},
        {"generic_key": {"descriptor_key": "tier", "descriptor_value": "unlimited"}}]);
    let listener = filter
        .add_to(Listener::to(app.address()))
        .route(routes::route("/", &[action]));
    let address = listener.address().to_string();
    let _envoy = Envoy::start(&clients.envoy, &[listener]);
    let [ended, _] = &replicas;
    clients.run(
        "ratelimit_ending.py",
        &json!({"address": address, "pid": ended.pid(), "grpc": ended.grpc().to_string()}),
    )
}
