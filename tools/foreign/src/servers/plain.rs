//! Servers without limits: the limits are Envoy's.

use axum::Router;
use tollgate_examples_grpc::{Greeting, helloworld::greeter_server::GreeterServer};
use tonic::service::Routes;

/// Answers every request with this text.
pub(crate) fn router(text: &'static str) -> Router {
    Router::new().fallback(move || async move { text })
}

/// Returns the greeter of the examples.
pub(crate) fn greeter() -> Router {
    Routes::new(GreeterServer::new(Greeting)).into_axum_router()
}
