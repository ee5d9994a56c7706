//! The service as its operators meet it: files that are swapped, hostile names, and a replica that
//! ends. More connections than it has descriptors are a row of `cargo xtask faults`.

use std::{fs, os::unix::fs::symlink};

use serde_json::json;
use tollgate_tests::RateLimitService;

use super::{PATIENT, RULES, filter::Filter, routes};
use crate::{
    case::Line,
    clients::Clients,
    envoy::{Envoy, Listener},
    servers::{Hosted, plain},
};

pub(super) fn run(clients: &Clients) -> Vec<Line> {
    let mut lines = files(clients);
    lines.extend(requests(clients));
    lines.extend(ending(clients));
    lines
}

/// Swaps and replaces the files of the rules.
fn files(clients: &Clients) -> Vec<Line> {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let config = directory.path().join("first/ratelimit/config");
    fs::create_dir_all(&config).expect("the directory is ours");
    fs::write(config.join("rules.yaml"), RULES).expect("the directory is ours");
    symlink("first", directory.path().join("current")).expect("the directory is ours");
    let service = RateLimitService::start_at(directory, &["--use-statsd=false"]);
    clients.run(
        "ratelimit_files.py",
        &json!({"json": service.place("HTTP"), "directory": service.directory()}),
    )
}

/// Sends requests as no honest client does.
fn requests(clients: &Clients) -> Vec<Line> {
    let service = RateLimitService::start(RULES, &["--use-statsd=false", "--compat", "envoy"]);
    let places = json!({
        "json": service.place("HTTP"), "stats": service.place("debug pages"), "metrics": service.place("metrics"),
        "pid": service.pid(),
    });
    clients.run("ratelimit_requests.py", &places)
}

/// Ends one of two replicas under load.
fn ending(clients: &Clients) -> Vec<Line> {
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
