use crate::Clock;

/// Holds the settings that all servers of a store share.
#[derive(Clone)]
pub(in crate::redis) struct ServerConfig {
    /// The first part of every key.
    pub(in crate::redis) prefix: String,
    /// The clock that decides instead of the server's.
    pub(in crate::redis) clock: Option<Clock>,
}
