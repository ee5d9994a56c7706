//! Clients that read the fields of a denial: parsers, and Envoy, grpcio and the clients of
//! language-model services, which send a denied request again when its wait is over.

use serde_json::{Value, json};

use crate::{
    clients::Clients,
    envoy::{Envoy, Listener},
    servers::{Hosted, formats, greeter, waits},
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

pub(crate) fn run(clients: &Clients, _is_quick: bool) {
    let server = Hosted::start(waits::router());
    let (mut listeners, mut rows) = (Vec::new(), Vec::new());
    for (format, field, unit) in FIELDS {
        let back_off =
            json!({"reset_headers": [{"name": field, "format": unit}], "max_interval": "30s"});
        let listener = Listener::to(server.address()).retrying(policy(&back_off));
        rows.push(json!({"port": listener.port(), "format": format, "field": field, "unit": unit}));
        listeners.push(listener);
    }
    // Without the back-off Envoy retries after 25 ms: the case shows that the others can fail.
    let hasty = Listener::to(server.address()).retrying(policy(&Value::Null));
    let arguments = json!({
        "server": server.address().to_string(),
        "formats": formats().map(|(name, _)| name),
        "rows": rows,
        "hasty": hasty.port(),
    });
    listeners.push(hasty);
    let _envoy = Envoy::start(&clients.envoy, &listeners);
    clients.run("fields.py", &arguments);
    clients.run("retries.py", &arguments);
    let [greeter, charged] = [greeter::router(), greeter::charged()].map(Hosted::start);
    let [greeter, charged] = [&greeter, &charged].map(|server| server.address().to_string());
    clients.run(
        "grpcio_retries.py",
        &json!({"greeter": greeter, "charged": charged}),
    );
}

/// Returns a policy with one retry of a 429.
fn policy(back_off: &Value) -> Value {
    json!({
        "retry_on": "retriable-status-codes",
        "retriable_status_codes": [429],
        "num_retries": 1,
        "rate_limited_retry_back_off": back_off,
    })
}
