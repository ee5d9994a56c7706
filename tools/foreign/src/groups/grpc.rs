//! The example `grpc_server` behind Envoy, for gRPC and gRPC-Web.

use std::net::SocketAddr;

use serde_json::json;
use tollgate_tests::{Process, ports};

use crate::{
    case::Line,
    clients::Clients,
    envoy::{Envoy, Listener},
    servers::{Hosted, greeter},
};

pub(crate) fn run(clients: &Clients, _is_quick: bool) -> Vec<Line> {
    let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let mut command = Process::example("grpc_server");
    command.env("LISTEN", address.to_string());
    let _server = Process::start(command, "Listening on");
    let greeter = Hosted::start(greeter::router());
    let listeners = [
        Listener::to(address).grpc(),
        Listener::to(greeter.address()).grpc(),
    ];
    let _envoy = Envoy::start(&clients.envoy, &listeners);
    clients.run(
        "grpc_proxy.py",
        &json!({
            "direct": address.to_string(),
            "example": listeners[0].address().to_string(),
            "pushback": listeners[1].address().to_string(),
        }),
    )
}
