//! Kinds of requests, asked directly and through Envoy.

use serde_json::json;

use crate::{
    clients::Clients,
    envoy::{Envoy, Listener},
    report::Line,
    servers::{Hosted, kinds},
};

pub(crate) fn run(clients: &Clients, is_quick: bool) -> Vec<Line> {
    let server = Hosted::start(kinds::router());
    let listeners = [Listener::to(server.address()), Listener::to(server.address()).grpc()];
    let _envoy = Envoy::start(&clients.envoy, &listeners);
    let [proxied, proxied_in_http2] = listeners.map(|listener| listener.address().to_string());
    let arguments = json!({
        "direct": server.address().to_string(),
        "proxied": proxied,
        "proxied_in_http2": proxied_in_http2,
        "uploads": if is_quick { 3 } else { 20 },
    });
    clients.run("kinds.py", &arguments)
}
