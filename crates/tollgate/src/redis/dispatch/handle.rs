use std::{sync::Arc, time::Duration};

use super::dispatcher::Dispatcher;
use crate::{
    Clock,
    redis::{
        connect::SharedConnection,
        deny_cache::DenyCache,
        pots::Pots,
        server::{Server, ServerConfig},
    },
};

/// Represents one server and the queue before it.
#[derive(Clone, Debug)]
pub(in crate::redis) struct ServerHandle {
    pub(in crate::redis) server: Arc<Server>,
    pub(super) dispatcher: Arc<Dispatcher>,
}

/// Holds the settings that all servers of a store share, and the deny cache.
#[derive(Clone)]
pub(in crate::redis) struct StoreConfig {
    pub(in crate::redis) server: ServerConfig,
    pub(in crate::redis) deny_cache: Option<Arc<DenyCache>>,
    /// The units of leased policies that this process holds.
    pub(in crate::redis) pots: Arc<Pots>,
}

impl StoreConfig {
    /// Creates the settings. Denials are remembered for at most `deny_cache_cap`.
    pub(in crate::redis) fn new(prefix: String, clock: Option<Clock>, deny_cache_cap: Duration) -> Self {
        // A clock that the caller moves does not tell how long a denial holds.
        let remembers = clock.is_none() && deny_cache_cap > Duration::ZERO;
        Self {
            deny_cache: remembers.then(|| Arc::new(DenyCache::new(deny_cache_cap))),
            pots: Pots::new(clock.clone().unwrap_or_else(Clock::since_boot)),
            server: ServerConfig { prefix, clock },
        }
    }
}

impl ServerHandle {
    pub(in crate::redis) fn new(shared: Arc<SharedConnection>, config: &StoreConfig, is_in_cluster: bool) -> Self {
        let server = Server::new(shared, config.server.clone(), is_in_cluster);
        let dispatcher = Arc::new(Dispatcher::new(Arc::clone(&server), config.deny_cache.clone()));
        Self { server, dispatcher }
    }

    /// Returns the number of checks that wait to be sent.
    #[cfg(feature = "metrics")]
    pub(in crate::redis) fn queued(&self) -> usize {
        self.dispatcher.queued()
    }

    /// Returns whether both are the same server, not only servers at the same address.
    pub(in crate::redis) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.server, &other.server)
    }
}
