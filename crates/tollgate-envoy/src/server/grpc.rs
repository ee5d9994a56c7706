//! Makes the services of the gRPC port.
//! What they answer is decided in `service/` and `health.rs`.

use axum::Router;
use tonic::service::Routes;
use tonic_health::{pb::health_server::HealthServer, server::HealthService};

use super::ServerError;
use crate::{Health, RateLimitService, proto::DESCRIPTORS};

/// Returns the services: rate limits in both protocols, health and reflection.
pub(super) async fn routes(
    service: RateLimitService,
    health: &Health,
) -> Result<Router, ServerError> {
    let reflection = |error| ServerError::with("cannot serve reflection", error);
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let mut routes = Routes::builder();
    routes.add_service(service.clone().into_server());
    routes.add_service(service.into_kuadrant_server());
    routes.add_service(HealthServer::new(HealthService::from_health_reporter(
        health.reporter().await,
    )));
    routes.add_service(builder().build_v1().map_err(reflection)?);
    routes.add_service(builder().build_v1alpha().map_err(reflection)?);
    Ok(routes.routes().prepare().into_axum_router())
}
