//! The options of a server as its parts read them, with their defaults.
//! Users set them in `builder.rs`.

use std::time::Duration;

/// The options of a server.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) max_connection_age: Duration,
    pub(super) max_connection_age_grace: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) max_connections: usize,
    pub(super) max_streams: u32,
    pub(super) drain_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_connection_age: Duration::from_secs(24 * 3_600),
            max_connection_age_grace: Duration::from_secs(3_600),
            idle_timeout: Duration::from_secs(15 * 60),
            max_connections: 10_000,
            max_streams: 1_024,
            drain_timeout: Duration::from_secs(20),
        }
    }
}
