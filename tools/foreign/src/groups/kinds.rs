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
    // A denied body of more than 64 KiB is not read, so the server closes its connection. Envoy may send the next request on
    // it just before. A shorter body needs no retry.
    let retry_policy = json!({"retry_on": "reset", "num_retries": 1});
    let listeners = [Listener::to(server.address()).retrying(retry_policy), Listener::to(server.address())];
    let _envoy = Envoy::start(&clients.envoy, &listeners);
    let [proxied, unretried] = listeners.map(|listener| listener.address().to_string());
    clients
        .run("kinds.py", &json!({"direct": server.address().to_string(), "proxied": proxied, "unretried": unretried}))
}
