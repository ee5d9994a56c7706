//! Kinds of requests, asked directly and through Envoy.

use serde_json::json;

use crate::{
    clients::Clients,
    envoy::{Envoy, Listener},
    report::Line,
    servers::{Hosted, kinds},
};

pub(crate) fn run(clients: &Clients, _is_quick: bool) -> Vec<Line> {
    let server = Hosted::start(kinds::router());
    // A denied body is not read, so the server closes its connection. Envoy may send the next request on it just before.
    let listeners = [Listener::to(server.address()).retrying(json!({"retry_on": "reset", "num_retries": 1}))];
    let _envoy = Envoy::start(&clients.envoy, &listeners);
    let (direct, proxied) = (server.address().to_string(), listeners[0].address().to_string());
    clients.run("kinds.py", &json!({"direct": direct, "proxied": proxied}))
}
