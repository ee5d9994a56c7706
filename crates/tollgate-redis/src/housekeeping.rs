//! Does what a store does on its own: counts the processes, shows limits to operators, reports to
//! others who spends much, sets its gauges, and returns units that nobody asks for.
//! When each of these is due is decided in `tollgate-remote/src/presence/`; the calls are in `replicas.rs`.

use std::{num::NonZeroU32, sync::Arc};

use super::{backend::Backend, dispatch::Sender, replicas};
use tollgate_core::{
    Error,
    raw::metrics::{self, Figures},
    store::{Publication, ReplicaGroup},
};
use tollgate_remote::{
    health::Probed,
    presence::{ExceptionNews, Presence, Present, ReportCall, Share},
};

/// Keeps what all clones of a store share: its backend, and what the task needs that looks after
/// it.
pub(super) struct Inner {
    pub(super) backend: Backend,
    pub(super) presence: Presence,
}

impl Present for Inner {
    fn presence(&self) -> &Presence {
        &self.presence
    }

    async fn count(self: &Arc<Self>, groups: &[ReplicaGroup]) -> Result<Vec<NonZeroU32>, Error> {
        replicas::count(&self.backend, groups).await
    }

    async fn show(self: &Arc<Self>, limits: &[Publication]) -> Result<Vec<Share>, Error> {
        replicas::publish(&self.backend, limits).await
    }

    async fn exceptions(self: &Arc<Self>, known: String) -> Result<ExceptionNews, Error> {
        replicas::exceptions(&self.backend, &known).await
    }

    async fn report(self: &Arc<Self>, report: &ReportCall) -> Result<(), Error> {
        replicas::report(&self.backend, report).await
    }

    async fn tell(
        self: &Arc<Self>,
        reports: &[(ReplicaGroup, String)],
    ) -> Result<Vec<String>, Error> {
        replicas::tell(&self.backend, reports).await
    }

    fn sample(&self) {
        let servers = self.backend.known_servers();
        let count = |is: fn(&Sender) -> bool| servers.iter().filter(|server| is(server)).count();
        let figures = Figures {
            servers: servers.len(),
            connected: count(|sender| sender.server.is_connected()),
            breakers_open: count(|sender| sender.server.health.breaker.is_open()),
            queued: servers.iter().map(|sender| sender.queued()).sum(),
            round_trip: self.presence.round_trip(),
            replicas: self.presence.last(),
        };
        metrics::record(&self.backend.prefix, &figures);
        let leases = self.backend.leased_units.counts();
        if !leases.is_empty() {
            metrics::record_leases(&self.backend.prefix, &leases);
        }
    }

    /// Returns units that nobody asks for.
    async fn sweep(&self) {
        let idle = self.backend.leased_units.sweep();
        if !idle.is_empty() {
            // Units that cannot be returned lapse.
            let _ = self.backend.release(idle).await;
        }
    }

    fn has_to_sweep(&self) -> bool {
        !self.backend.leased_units.is_empty()
    }
}
