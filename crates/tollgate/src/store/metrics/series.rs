//! Sets the gauges of a store, with the feature `metrics`.
//! What they show is read by the housekeeping of each store, and named in `mod.rs`.

use metrics::{Unit, describe_gauge, gauge};

use super::Figures;

const SERVERS: &str = "tollgate_store_servers";
const CONNECTED: &str = "tollgate_store_connected";
const BREAKERS: &str = "tollgate_store_breakers_open";
const QUEUED: &str = "tollgate_store_queued";
const ROUND_TRIP: &str = "tollgate_store_round_trip_seconds";
const REPLICAS: &str = "tollgate_store_replicas";

/// Is true: gauges are set.
pub(crate) const IS_ON: bool = true;

/// Sets the gauges of the store with this label.
pub(crate) fn record(store: &str, figures: &Figures) {
    describe_gauge!(
        SERVERS,
        Unit::Count,
        "Servers that the store sends checks to, by the prefix of the store."
    );
    describe_gauge!(
        CONNECTED,
        Unit::Count,
        "Servers to which the store has a connection."
    );
    describe_gauge!(
        BREAKERS,
        Unit::Count,
        "Servers whose circuit breaker is open."
    );
    describe_gauge!(
        QUEUED,
        Unit::Count,
        "Checks that wait to be sent to a server."
    );
    describe_gauge!(
        ROUND_TRIP,
        Unit::Seconds,
        "Time of the last call that counted the replicas."
    );
    describe_gauge!(
        REPLICAS,
        Unit::Count,
        "Processes of the prefix that were counted last."
    );
    let set = |metric: &'static str, value: f64| {
        gauge!(metric, "store" => store.to_owned()).set(value);
    };
    set(SERVERS, figures.servers as f64);
    set(CONNECTED, figures.connected as f64);
    set(BREAKERS, figures.breakers_open as f64);
    set(QUEUED, figures.queued as f64);
    if let Some(round_trip) = figures.round_trip {
        set(ROUND_TRIP, round_trip.as_secs_f64());
    }
    if let Some(replicas) = figures.replicas {
        set(REPLICAS, f64::from(replicas.get()));
    }
}
