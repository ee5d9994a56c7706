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
    let listeners = [Listener::to(server.address())];
    let _envoy = Envoy::start(&clients.envoy, &listeners);
    let (direct, proxied) = (server.address().to_string(), listeners[0].address().to_string());
    clients.run("kinds.py", &json!({"direct": direct, "proxied": proxied}))
}
