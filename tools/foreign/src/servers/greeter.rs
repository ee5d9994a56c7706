//! The greeter of the examples: without limits, and with pushback, of one call each two seconds for
//! the key in `x-key`. `x-cost` is the cost.

use axum::{Router, http::request::Parts};
use tollgate::{Cost, Limiter, MemoryStore};
use tollgate_examples_grpc::{Greeting, helloworld::greeter_server::GreeterServer};
use tollgate_tonic::{
    GrpcStatus,
    key::Metadata,
    messages::{MessageCharge, MessageLayer},
};
use tonic::service::Routes;

use super::waits::{SLOW, Seen};

/// Returns the greeter alone.
pub(crate) fn plain() -> Router {
    Routes::new(GreeterServer::new(Greeting)).into_axum_router()
}

pub(crate) fn router() -> Router {
    let limiter = Limiter::new(MemoryStore::new(), SLOW);
    let layer = tollgate_tonic::builder(limiter, Metadata::new("x-key"))
        .respond_with(GrpcStatus::new().pushback(true))
        .cost(cost)
        .build();
    Seen::default().watch(plain().layer(layer))
}

/// Returns the greeter with each message of its streams charged.
pub(crate) fn charged() -> Router {
    let limiter = Limiter::new(MemoryStore::new(), SLOW);
    let calls = tollgate_tonic::builder(limiter, Metadata::new("x-key"));
    plain().layer(MessageLayer::new(calls, MessageCharge::sent()))
}

fn cost(request: &Parts) -> Cost {
    let cost = request.headers.get("x-cost");
    let cost = cost.and_then(|cost| cost.to_str().ok()?.parse().ok());
    Cost::new(cost.unwrap_or(1))
}
