use std::time::Duration;

/// The options of the gRPC server.
#[derive(Clone, Debug)]
pub(super) struct GrpcOptions {
    pub(super) max_connection_age: Duration,
    pub(super) max_connection_age_grace: Duration,
    pub(super) max_streams: u32,
    pub(super) drain_timeout: Duration,
}

impl Default for GrpcOptions {
    fn default() -> Self {
        Self {
            max_connection_age: Duration::from_secs(24 * 3_600),
            max_connection_age_grace: Duration::from_secs(3_600),
            max_streams: 1_024,
            drain_timeout: Duration::from_secs(20),
        }
    }
}
