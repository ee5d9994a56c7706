//! Envoy asks `tollgate-envoy` before each request: over HTTP and gRPC, in both modes, and while
//! parts are away.

use std::{net::TcpListener, path::Path, process::Command};

use serde_json::{Value, json};
use tollgate_tests::{RateLimitService, RedisServer, ports};

use crate::{
    case::{Case, Line},
    clients::Clients,
    envoy::{self, Envoy, Listener},
    servers::{Hosted, plain},
};

mod ending;
mod filter;
mod routes;

use filter::Filter;

const RULES: &str = include_str!("../../../rules/ratelimit.yaml");

/// The time that Envoy waits for an answer, where a case does not try that time. The default, 20
/// ms, is too short for a machine with other work.
const PATIENT: &str = "10s";

pub(crate) fn run(clients: &Clients, _is_quick: bool) -> Vec<Line> {
    let mut lines = vec![example(clients)];
    for mode in ["native", "envoy"] {
        lines.extend(answers(clients, mode));
    }
    lines.extend(failures(clients));
    lines.extend(ending::run(clients));
    lines
}

/// Lets Envoy check the configuration of the example.
fn example(clients: &Clients) -> Line {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/envoy/envoy.yaml");
    let mut check = Command::new(&clients.envoy);
    let output = check
        .args(["--mode", "validate", "--config-path"])
        .arg(path)
        .output();
    let output = output
        .unwrap_or_else(|error| panic!("{} cannot be started: {error}", clients.envoy.display()));
    let is_passed = output.status.success();
    // The reason is on the last line.
    let said = String::from_utf8_lossy(&output.stderr);
    let found = if is_passed {
        "valid"
    } else {
        said.lines().last().unwrap_or_default()
    };
    let versions = clients.versions();
    let client = versions
        .iter()
        .find(|version| version.starts_with("envoy"))
        .cloned()
        .unwrap_or_default();
    Line::Case(Case {
        row: "the configuration of the example".to_owned(),
        client,
        name: "examples/envoy/envoy.yaml".to_owned(),
        expected: "valid".to_owned(),
        found: found.to_owned(),
        is_passed,
    })
}

/// Tries the answers in one mode.
fn answers(clients: &Clients, mode: &str) -> Vec<Line> {
    let service = RateLimitService::start(
        RULES,
        &[
            "--use-statsd=false",
            "--compat",
            mode,
            "--response-dynamic-metadata",
            "--limit-response-headers-enabled",
            "--limit-limit-header=X-Shop-Limit",
            "--limit-remaining-header=X-Shop-Left",
            "--limit-reset-header=X-Shop-Reset",
        ],
    );
    let (first, second) = (
        Hosted::start(plain::router("first")),
        Hosted::start(plain::router("second")),
    );
    let greeter = Hosted::start(plain::greeter());
    let patient = || Filter::new(service.grpc()).timeout(PATIENT);

    let http = patient().x_ratelimit_headers().retry_after();
    let mut web =
        http.add_to(Listener::to(first.address()).with(json!({"use_remote_address": true})));
    web = filter::add_metadata_header(web)
        .with_cluster(envoy::cluster("first", first.address()))
        .with_cluster(routes::by_service(first.address(), second.address()));
    for route in routes::all() {
        web = web.route(route);
    }
    let other = patient()
        .status(403)
        .without_ratelimited_header()
        .add_to(Listener::to(first.address()));
    let custom = patient()
        .status(503)
        .without_ratelimited_header()
        .add_to(Listener::to(first.address()));
    let grpc = patient().add_to(Listener::to(greeter.address()).grpc());
    let exhausted = patient()
        .with_resource_exhausted()
        .add_to(Listener::to(greeter.address()).grpc());
    let by_address = || routes::route("/", &[json!([{"remote_address": {}}])]);
    let by_header = || {
        routes::route(
            "/",
            &[
                json!([{"request_headers": {"header_name": "x-method", "descriptor_key": "method"}}]),
            ],
        )
    };
    let listeners = [
        web,
        other.route(by_address()),
        custom.route(by_header()),
        grpc.route(by_header()),
        exhausted.route(by_header()),
    ];
    let _envoy = Envoy::start(&clients.envoy, &listeners);
    let addresses: Vec<_> = listeners
        .iter()
        .map(|listener| listener.address().to_string())
        .collect();
    let [web, other, custom, grpc, exhausted] = &*addresses else {
        return Vec::new();
    };
    let places = json!({
        "mode": mode, "web": web, "other": other, "custom": custom, "grpc": grpc, "exhausted": exhausted,
        "stats": service.place("debug pages"), "metrics": service.place("metrics"),
    });
    let mut lines = clients.run("ratelimit.py", &places);
    lines.extend(clients.run("ratelimit_grpc.py", &places));
    lines
}

/// Tries what Envoy does while the service or its Redis is away.
fn failures(clients: &Clients) -> Vec<Line> {
    let app = Hosted::start(plain::router("first"));
    let nobody = ([127, 0, 0, 1], ports::free()).into();
    // It accepts connections, and never reads from them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let silent = (silent.local_addr().expect("the listener is bound"), silent);
    // The replicas at one server share the limits of an outage. The service that answers alone has
    // a server of its own.
    let (shared, own) = (RedisServer::start(), RedisServer::start());
    let on = |redis: &RedisServer, answer| {
        let url = redis.url();
        let options = [
            "--use-statsd=false",
            "--store",
            &url,
            "--deadline",
            "1s",
            "--on-outage",
            answer,
        ];
        RateLimitService::start(RULES, &options)
    };
    let (fails, allows, local) = (on(&shared, "fail"), on(&shared, "allow"), on(&own, "local"));

    let (mut listeners, mut cases) = (Vec::new(), Vec::new());
    let mut add = |row: &str, filter: Filter, denies: bool, expected: &[u16]| {
        let filter = if denies {
            filter.deny_on_failure()
        } else {
            filter
        };
        let listener = filter.add_to(Listener::to(app.address()));
        let action = json!([{"request_headers": {"header_name": "x-tenant", "descriptor_key": "tenant"}},
            {"generic_key": {"descriptor_key": "tier", "descriptor_value": "gold"}}]);
        let listener = listener.route(routes::route("/", &[action]));
        cases.push(json!({
            "row": format!("{row}, `failure_mode_deny: {denies}`"), "address": listener.address().to_string(),
            "expected": expected,
        }));
        listeners.push(listener);
    };
    for denies in [false, true] {
        // 500 is what Envoy answers, unless its `status_on_error` is another one.
        let failed = if denies { [500; 5] } else { [200; 5] };
        add(
            "the service is gone",
            Filter::new(nobody).timeout(PATIENT),
            denies,
            &failed,
        );
        add(
            "the service does not answer",
            Filter::new(silent.0),
            denies,
            &failed,
        );
        let redis = |service: &RateLimitService| Filter::new(service.grpc()).timeout(PATIENT);
        add(
            "Redis is gone, `on_outage: fail`",
            redis(&fails),
            denies,
            &failed,
        );
        add(
            "Redis is gone, `on_outage: allow`",
            redis(&allows),
            denies,
            &[200; 5],
        );
    }
    add(
        "Redis is gone, `on_outage: local`",
        Filter::new(local.grpc()).timeout(PATIENT),
        true,
        &[200, 200, 200, 429, 429],
    );
    add(
        "the service is gone, `status_on_error: 503`",
        Filter::new(nobody).timeout(PATIENT).status_on_error(503),
        true,
        &[503; 5],
    );
    let _envoy = Envoy::start(&clients.envoy, &listeners);
    // Before the outage, services at one Redis share the counters.
    let before: Vec<Value> = cases
        .iter()
        .filter(|case| {
            case["row"]
                .as_str()
                .is_some_and(|row| row.starts_with("Redis") && !row.contains("local"))
        })
        .map(|case| json!({"address": case["address"]}))
        .collect();
    let mut lines = clients.run("ratelimit_outage.py", &json!({"shared": before}));
    shared.kill();
    own.kill();
    lines.extend(clients.run("ratelimit_outage.py", &json!({"cases": cases})));
    lines
}
