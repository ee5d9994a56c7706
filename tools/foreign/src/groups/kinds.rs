//! Kinds of requests, asked directly and through Envoy.

use serde_json::json;

use crate::{
    clients::Clients,
    envoy::{self, Envoy, Listener},
    servers::{Hosted, kinds},
};

pub(crate) fn run(clients: &Clients, is_quick: bool) {
    let server = Hosted::start(kinds::router());
    // It reads the body before it asks the server.
    let buffer = envoy::filter(
        "buffer",
        "buffer.v3.Buffer",
        json!({"max_request_bytes": 16_777_216}),
    );
    let to_server = || Listener::to(server.address());
    let listeners = [to_server(), to_server().grpc(), to_server().filter(buffer)];
    let _envoy = Envoy::start(&clients.envoy, &listeners);
    let [proxied, proxied_in_http2, buffered] =
        listeners.map(|listener| listener.address().to_string());
    let arguments = json!({
        "direct": server.address().to_string(),
        "proxied": proxied,
        "proxied_in_http2": proxied_in_http2,
        "buffered": buffered,
        "uploads": if is_quick { 3 } else { 20 },
    });
    clients.run("kinds.py", &arguments);
}
