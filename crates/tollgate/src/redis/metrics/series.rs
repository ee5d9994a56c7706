use std::{fmt, sync::OnceLock};

use metrics::{Counter, Gauge, Label, Unit, counter, describe_counter, describe_gauge, gauge};

use super::StoreState;
use crate::model::lease::LeaseCounts;

const SERVERS: &str = "tollgate_store_servers";
const CONNECTED: &str = "tollgate_store_connected";
const BREAKERS: &str = "tollgate_store_breakers_open";
const QUEUED: &str = "tollgate_store_queued";
const ROUND_TRIP: &str = "tollgate_store_round_trip_seconds";
const REPLICAS: &str = "tollgate_store_replicas";
const HELD: &str = "tollgate_lease_held";
const GRANTED: &str = "tollgate_lease_granted_total";
const RETURNED: &str = "tollgate_lease_returned_total";
const LAPSED: &str = "tollgate_lease_lapsed_total";
const TRIPS_SAVED: &str = "tollgate_lease_trips_saved_total";

/// Stores the series of one store. They are registered when the state is first recorded.
#[derive(Default)]
pub(crate) struct StoreMetrics {
    gauges: OnceLock<Gauges>,
    /// Registered with the first grant.
    leases: OnceLock<LeaseSeries>,
}

struct LeaseSeries {
    held: Gauge,
    granted: Counter,
    returned: Counter,
    lapsed: Counter,
    trips_saved: Counter,
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
    pub(crate) const IS_ON: bool = true;

    /// Sets all gauges. `name` is the prefix of the store.
    pub(crate) fn record(&self, name: &str, state: &StoreState) {
        let gauges = self.gauges.get_or_init(|| Gauges::new(name));
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

    /// Sets the series of leases, once a unit was granted.
    pub(crate) fn record_leases(&self, name: &str, counts: &LeaseCounts) {
        if counts.is_empty() {
            return;
        }
        let series = self.leases.get_or_init(|| LeaseSeries::new(name));
        series.held.set(counts.held as f64);
        series.granted.absolute(counts.granted);
        series.returned.absolute(counts.returned);
        series.lapsed.absolute(counts.lapsed);
        series.trips_saved.absolute(counts.trips_saved);
    }
}

impl LeaseSeries {
    fn new(name: &str) -> Self {
        describe_gauge!(HELD, Unit::Count, "Leased units that this process may spend, by the prefix of the store.");
        describe_counter!(GRANTED, Unit::Count, "Units that the server has granted to this process.");
        describe_counter!(RETURNED, Unit::Count, "Leased units that this process gave back to the server.");
        describe_counter!(LAPSED, Unit::Count, "Leased units of this process that ended unspent.");
        describe_counter!(TRIPS_SAVED, Unit::Count, "Checks that leased units decided without a trip.");
        let labels = || [Label::new("store", name.to_owned())].to_vec();
        let counter = |metric: &'static str| counter!(metric, labels());
        Self {
            held: gauge!(HELD, labels()),
            granted: counter(GRANTED),
            returned: counter(RETURNED),
            lapsed: counter(LAPSED),
            trips_saved: counter(TRIPS_SAVED),
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
