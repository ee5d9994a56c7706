use std::{fmt, sync::OnceLock, time::Duration};

use metrics::{Gauge, Label, Unit, describe_gauge, gauge};

const SERVERS: &str = "tollgate_store_servers";
const CONNECTED: &str = "tollgate_store_connected";
const BREAKERS: &str = "tollgate_store_breakers_open";
const QUEUED: &str = "tollgate_store_queued";
const ROUND_TRIP: &str = "tollgate_store_round_trip_seconds";
const REPLICAS: &str = "tollgate_store_replicas";

/// Stores the series of one store. They are registered when the state is first recorded.
#[derive(Default)]
pub(crate) struct StoreMetrics(OnceLock<Gauges>);

/// Describes the servers of a store at one time.
#[derive(Debug, Default)]
pub(crate) struct StoreState {
    pub(crate) servers: usize,
    /// The servers to which there is a connection.
    pub(crate) connected: usize,
    /// The servers whose circuit breaker is open.
    pub(crate) breakers_open: usize,
    /// The checks that wait to be sent.
    pub(crate) queued: usize,
    pub(crate) round_trip: Option<Duration>,
    pub(crate) replicas: Option<u32>,
}

struct Gauges {
    servers: Gauge,
    connected: Gauge,
    breakers_open: Gauge,
    queued: Gauge,
    round_trip: Gauge,
    replicas: Gauge,
}

impl StoreMetrics {
    /// Sets all gauges. `name` is the prefix of the store.
    pub(crate) fn record(&self, name: &str, state: &StoreState) {
        let gauges = self.0.get_or_init(|| Gauges::new(name));
        gauges.servers.set(state.servers as f64);
        gauges.connected.set(state.connected as f64);
        gauges.breakers_open.set(state.breakers_open as f64);
        gauges.queued.set(state.queued as f64);
        if let Some(round_trip) = state.round_trip {
            gauges.round_trip.set(round_trip);
        }
        if let Some(replicas) = state.replicas {
            gauges.replicas.set(replicas);
        }
    }
}

impl Gauges {
    fn new(name: &str) -> Self {
        describe_gauge!(SERVERS, Unit::Count, "Servers that the store sends checks to, by the prefix of the store.");
        describe_gauge!(CONNECTED, Unit::Count, "Servers to which the store has a connection.");
        describe_gauge!(BREAKERS, Unit::Count, "Servers whose circuit breaker is open.");
        describe_gauge!(QUEUED, Unit::Count, "Checks that wait to be sent to a server.");
        describe_gauge!(ROUND_TRIP, Unit::Seconds, "Time of the last call that counted the replicas.");
        describe_gauge!(REPLICAS, Unit::Count, "Processes of the prefix that were counted last.");
        let gauge = |metric: &'static str| gauge!(metric, [Label::new("store", name.to_owned())].to_vec());
        Self {
            servers: gauge(SERVERS),
            connected: gauge(CONNECTED),
            breakers_open: gauge(BREAKERS),
            queued: gauge(QUEUED),
            round_trip: gauge(ROUND_TRIP),
            replicas: gauge(REPLICAS),
        }
    }
}

impl fmt::Debug for StoreMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreMetrics").finish_non_exhaustive()
    }
}
