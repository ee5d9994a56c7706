//! Envoy, grpcio and the clients of language-model services, which send a denied request again when
//! its wait is over.

use serde_json::{Value, json};

use crate::{
    case::Line,
    clients::Clients,
    envoy::{Envoy, Listener},
    servers::{Hosted, greeter, waits},
};

/// The header formats that tell a wait in a way that Envoy reads: the format, the field, and
/// Envoy's name for its unit.
const FIELDS: [(&str, &str, &str); 8] = [
    ("ietf08", "retry-after", "SECONDS"),
    ("none", "retry-after", "SECONDS"),
    ("ietf06", "ratelimit-reset", "SECONDS"),
    ("envoy03", "x-ratelimit-reset", "SECONDS"),
    ("legacy-seconds", "x-ratelimit-reset", "SECONDS"),
    ("legacy-epoch", "x-ratelimit-reset", "UNIX_TIMESTAMP"),
    ("retry-after", "x-ratelimit-retry-after", "SECONDS"),
    ("spring", "retry-after", "SECONDS"),
];

pub(crate) fn run(clients: &Clients, _is_quick: bool) -> Vec<Line> {
    let (server, hosted) = (
        Hosted::start(waits::router()),
        Hosted::start(greeter::router()),
    );
    let mut listeners = Vec::new();
    let mut rows = Vec::new();
    for (format, field, unit) in FIELDS {
        let back_off =
            json!({"reset_headers": [{"name": field, "format": unit}], "max_interval": "30s"});
        let listener = Listener::to(server.address()).retrying(policy(Some(&back_off)));
        rows.push(json!({"port": listener.port(), "format": format, "field": field, "unit": unit}));
        listeners.push(listener);
    }
    // Without the back-off Envoy retries after 25 ms: the case shows that the others can fail.
    let hasty = Listener::to(server.address()).retrying(policy(None));
    let hasty_port = hasty.port();
    listeners.push(hasty);
    let _envoy = Envoy::start(&clients.envoy, &listeners);

    let mut lines = clients.run("retries.py", &json!({"rows": rows, "hasty": hasty_port}));
    lines.extend(clients.run(
        "sdk_retries.py",
        &json!({"server": server.address().to_string()}),
    ));
    let charged = Hosted::start(greeter::charged());
    lines.extend(clients.run(
        "grpcio_retries.py",
        &json!({"greeter": hosted.address().to_string(), "charged": charged.address().to_string()}),
    ));
    lines
}

/// Returns a policy with one retry of a 429.
fn policy(back_off: Option<&Value>) -> Value {
    let mut policy = json!({
        "retry_on": "retriable-status-codes",
        "retriable_status_codes": [429],
        "num_retries": 1,
    });
    if let Some(back_off) = back_off {
        policy["rate_limited_retry_back_off"] = back_off.clone();
    }
    policy
}
