//! Serves gRPC on open connections.

use std::{future::Future, io, time::Duration};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_stream::Stream;
use tonic::{
    service::Routes,
    transport::{Server as Transport, server::Connected},
};
use tonic_health::{pb::health_server::HealthServer, server::HealthService};

use super::{ServerError, options::GrpcOptions};
use crate::{Health, RateLimitService, proto::DESCRIPTORS};

/// The time after which a silent client is asked whether it is there, and in which it must answer.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(20));

/// Returns the services: rate limits, health and reflection.
pub(super) async fn routes(service: RateLimitService, health: &Health) -> Result<Routes, ServerError> {
    let reflection = |error| ServerError::with("cannot serve reflection", error);
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let mut routes = Routes::builder();
    routes.add_service(service.into_server());
    routes.add_service(HealthServer::new(HealthService::from_health_reporter(health.reporter().await)));
    routes.add_service(builder().build_v1().map_err(reflection)?);
    routes.add_service(builder().build_v1alpha().map_err(reflection)?);
    Ok(routes.routes())
}

/// Serves the connections of `incoming` until `end`, and then until all calls have ended.
pub(super) async fn serve<C>(
    routes: Routes,
    options: &GrpcOptions,
    incoming: impl Stream<Item = io::Result<C>>,
    end: impl Future<Output = ()>,
) -> Result<(), ServerError>
where
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    // Many services close their connections at one moment otherwise, if they started at one moment.
    let age = options.max_connection_age.mul_f64(0.9 + 0.2 * fastrand::f64());
    let server = Transport::builder()
        .max_concurrent_streams(options.max_streams)
        .max_connection_age(age)
        .max_connection_age_grace(options.max_connection_age_grace)
        .http2_keepalive_interval(Some(KEEPALIVE.0))
        .http2_keepalive_timeout(Some(KEEPALIVE.1))
        .add_routes(routes);
    server.serve_with_incoming_shutdown(incoming, end).await.map_err(|error| ServerError::with("gRPC failed", error))
}
