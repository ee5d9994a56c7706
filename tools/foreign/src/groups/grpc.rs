//! The example `grpc_server` behind Envoy, for gRPC and gRPC-Web.

use std::net::SocketAddr;

use serde_json::json;
use tollgate_tests::{Process, ports};

use crate::{
    clients::Clients,
    envoy::{Envoy, Listener},
    servers::{Hosted, greeter},
};

pub(crate) fn run(clients: &Clients, _is_quick: bool) {
    let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let mut command = Process::example("grpc_server");
    command.env("LISTEN", address.to_string());
    let _server = Process::start(command, "Listening on");
    let greeter = Hosted::start(greeter::router());
    let listeners = [address, greeter.address()].map(|server| Listener::to(server).grpc());
    let _envoy = Envoy::start(&clients.envoy, &listeners);
    let [example, pushback] = listeners.map(|listener| listener.address().to_string());
    let servers = json!({"direct": address.to_string(), "example": example, "pushback": pushback});
    clients.run("grpc_proxy.py", &servers);
}
