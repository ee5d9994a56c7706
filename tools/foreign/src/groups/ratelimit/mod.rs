//! Envoy asks `tollgate-envoy` before each request: over HTTP and gRPC, in both modes, and while
//! parts are away. A gateway of Kuadrant reserves before, and settles after.

use std::{net::TcpListener, path::Path, process::Command, slice};

use serde_json::{Value, json};
use tollgate_tests::{RateLimitService, RedisServer, ports};

use crate::{
    clients::Clients,
    envoy::{Envoy, Listener},
    servers::{Hosted, greeter},
};

mod filter;

use filter::{Filter, generic, header, route, with_routes};

const RULES: &str = include_str!("../../../rules/ratelimit.yaml");

pub(crate) fn run(clients: &Clients, _is_quick: bool) {
    let mut check = Command::new(&clients.envoy);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/envoy/envoy.yaml");
    check.args([
        "--mode",
        "validate",
        "--log-level",
        "error",
        "--config-path",
    ]);
    let checked = check.arg(example).status().expect("it can be started");
    assert!(checked.success(), "examples/envoy/envoy.yaml is not valid");
    for mode in ["native", "envoy"] {
        answers(clients, mode);
        let service = RateLimitService::start(RULES, &["--use-statsd=false", "--compat", mode]);
        let places = json!({"mode": mode, "grpc": service.grpc().to_string()});
        clients.run("kuadrant.py", &places);
    }
    failures(clients);
    ending(clients);
}

/// Tries the answers in one mode.
fn answers(clients: &Clients, mode: &str) {
    let options = [
        "--use-statsd=false",
        "--compat",
        mode,
        "--response-dynamic-metadata",
        "--limit-response-headers-enabled",
        "--limit-limit-header=X-Shop-Limit",
        "--limit-remaining-header=X-Shop-Left",
        "--limit-reset-header=X-Shop-Reset",
    ];
    let service = RateLimitService::start(RULES, &options);
    let [first, second] = ["first", "second"].map(Hosted::saying);
    let greeter = Hosted::start(greeter::plain());
    let patient = || Filter::new(&[service.grpc()]);
    let to_first = || Listener::to(first.address());
    let to_greeter = || Listener::to(greeter.address()).grpc();
    let web = patient()
        .set("enable_x_ratelimit_headers", "DRAFT_VERSION_03")
        .set("enable_retry_after_header", true)
        .add_to(to_first().with(json!({"use_remote_address": true})));
    let servers = [("first", first.address()), ("second", second.address())];
    let by_method = || route("/", &[json!([header("method")])]);
    let with_status = patient()
        .set("rate_limited_status", json!({"code": 403}))
        .set("disable_x_envoy_ratelimited_header", true);
    let exhausted = patient().set("rate_limited_as_resource_exhausted", true);
    let listeners = [
        with_routes(web, servers),
        with_status.add_to(to_first()).route(by_method()),
        patient().add_to(to_greeter()).route(by_method()),
        exhausted.add_to(to_greeter()).route(by_method()),
    ];
    let _envoy = Envoy::start(&clients.envoy, &listeners);
    let [web, other, grpc, exhausted] = listeners.map(|listener| listener.address().to_string());
    let places = json!({
        "mode": mode, "web": web, "other": other, "grpc": grpc, "exhausted": exhausted,
        "stats": service.place("debug pages"),
    });
    clients.run("ratelimit.py", &places);
}

/// Tries what Envoy does while the service or its Redis is away.
fn failures(clients: &Clients) {
    let app = Hosted::saying("first");
    let nobody = ([127, 0, 0, 1], ports::free()).into();
    // It accepts connections, and never reads from them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let silence = silent.local_addr().expect("the listener is bound");
    // The replicas at one server share the limits of an outage. The service that answers alone has
    // a server of its own.
    let (shared, own) = (RedisServer::start(), RedisServer::start());
    let on = |redis: &RedisServer, answer| {
        let url = redis.url();
        let mut options = vec!["--use-statsd=false", "--store", &url, "--deadline", "1s"];
        options.extend(["--on-outage", answer]);
        RateLimitService::start(RULES, &options)
    };
    let (fails, allows, local) = (on(&shared, "fail"), on(&shared, "allow"), on(&own, "local"));
    let descriptor = json!([header("tenant"), generic("tier", "gold")]);

    let (mut listeners, mut cases) = (Vec::new(), Vec::new());
    let mut add = |row: &str, filter: Filter, denies: bool, expected: [u16; 5]| {
        let filter = filter.set("failure_mode_deny", denies);
        let listener = filter.add_to(Listener::to(app.address()));
        let listener = listener.route(route("/", slice::from_ref(&descriptor)));
        let row = format!("{row}, `failure_mode_deny: {denies}`");
        let address = listener.address().to_string();
        cases.push(json!({"row": row, "address": address, "expected": expected}));
        listeners.push(listener);
    };
    for denies in [false, true] {
        // 500 is what Envoy answers, unless its `status_on_error` is another one.
        let failed = if denies { [500; 5] } else { [200; 5] };
        add(
            "the service is gone",
            Filter::new(&[nobody]),
            denies,
            failed,
        );
        add(
            "the service does not answer",
            Filter::hasty(&[silence]),
            denies,
            failed,
        );
        let redis = |service: &RateLimitService| Filter::new(&[service.grpc()]);
        add(
            "Redis is gone, `on_outage: fail`",
            redis(&fails),
            denies,
            failed,
        );
        add(
            "Redis is gone, `on_outage: allow`",
            redis(&allows),
            denies,
            [200; 5],
        );
    }
    let local = Filter::new(&[local.grpc()]);
    let once_more = [200, 200, 200, 429, 429];
    add(
        "its own Redis is gone, `on_outage: local`",
        local,
        true,
        once_more,
    );
    let status = Filter::new(&[nobody]).set("status_on_error", json!({"code": 503}));
    add(
        "the service is gone, `status_on_error: 503`",
        status,
        true,
        [503; 5],
    );
    let _envoy = Envoy::start(&clients.envoy, &listeners);
    // Before the outage, services at one Redis share the counters.
    let is_shared = |case: &&Value| case["row"].to_string().starts_with("\"Redis");
    let sharing: Vec<_> = cases.iter().filter(is_shared).collect();
    clients.run("outage.py", &json!({"shared": sharing}));
    shared.kill();
    own.kill();
    clients.run("outage.py", &json!({"cases": cases}));
}

/// Ends one of two replicas under load.
fn ending(clients: &Clients) {
    let app = Hosted::saying("first");
    let replicas = [(); 2].map(|()| RateLimitService::start(RULES, &["--use-statsd=false"]));
    let filter = Filter::new(&replicas.each_ref().map(RateLimitService::grpc))
        .set("failure_mode_deny", true);
    let descriptor = json!([header("tenant"), generic("tier", "unlimited")]);
    let listener = filter
        .add_to(Listener::to(app.address()))
        .route(route("/", &[descriptor]));
    let address = listener.address().to_string();
    let _envoy = Envoy::start(&clients.envoy, &[listener]);
    let ended = &replicas[0];
    let (pid, grpc) = (ended.pid(), ended.grpc().to_string());
    clients.run(
        "outage.py",
        &json!({"address": address, "pid": pid, "grpc": grpc}),
    );
}
