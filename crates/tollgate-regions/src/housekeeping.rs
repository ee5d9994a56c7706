//! Sets the series of a region while its store is in use, and gives leased units back that nobody asks
//! for.
//! The series count what `ask.rs` and the calls in `carrier.rs` have noted.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, timeout};
use tollgate_core::raw::{metrics, runtime::Running};
use tollgate_redis::raw;

use crate::{ask::give_back_all, carrier::Servers};

/// The duty to set the series, from the first check on.
const SERIES: u32 = if metrics::IS_ON { 1 } else { 0 };

/// The duty to look for units that nobody asks for.
const SWEEP: u32 = 2;

/// The time between two samples, and between two sweeps.
const TICK: Duration = Duration::from_secs(1);

/// Starts the task that a check needs. Without a runtime, the next check does.
pub(crate) fn serve(servers: &Arc<Servers>) {
    if !servers.task.has(SERIES | SWEEP) {
        servers.task.ask(SERIES | SWEEP);
        let weak = Arc::downgrade(servers);
        servers.task.start(|running| keep_house(weak, running));
    }
}

/// Does what is due as long as somebody holds the store. Ends when there are no duties.
async fn keep_house(servers: Weak<Servers>, mut running: Running) {
    let (mut sample_at, mut sweep_at) = (None, None);
    while let Some(servers) = servers.upgrade() {
        let now = Instant::now();
        if running.is_asked(SERIES) && sample_at.is_none_or(|at| at <= now) {
            sample(&servers);
            sample_at = Some(now + TICK);
        }
        if sweep_at.is_some_and(|at| at <= now) {
            // Units that cannot be given back lapse.
            let _ = timeout(TICK, give_back_all(&servers, servers.leases.idle())).await;
            sweep_at = None;
            running.finish(SWEEP, || !servers.leases.is_empty());
        }
        if running.is_asked(SWEEP) {
            sweep_at.get_or_insert(Instant::now() + TICK);
        }
        drop(servers);
        match [sample_at, sweep_at].into_iter().flatten().min() {
            Some(next) => running.rest(next).await,
            None if running.end() => return,
            None => {}
        }
    }
}

fn sample(servers: &Servers) {
    let figures = servers.figures();
    let series = metrics::RegionFigures {
        held: figures.held,
        answered: figures.answered,
        given_up: figures.given_up,
        resent: figures.resent,
        granted: figures.granted,
        lost: figures.lost,
        round_trip: servers.measured(),
    };
    let store = raw::prefix(&servers.local);
    metrics::record_region(store, &series);
    let leases = servers.leases.counts();
    if !leases.is_empty() {
        metrics::record_leases(store, &leases);
    }
}
