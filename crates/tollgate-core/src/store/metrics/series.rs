//! Sets the gauges of a store, of its leased units and of a region, with the feature `metrics`.
//! What they show is read by the housekeeping of each store, and named in `mod.rs`.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use super::{Figures, LeaseFigures, RegionFigures};

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
const REGION_HELD: &str = "tollgate_region_held";
const REGION_CALLS: &str = "tollgate_region_calls_total";
const REGION_RESENT: &str = "tollgate_region_resent_total";
const REGION_GRANTED: &str = "tollgate_region_granted_total";
const REGION_LOST: &str = "tollgate_region_lost_total";
const REGION_ROUND_TRIP: &str = "tollgate_region_round_trip_seconds";

/// Is true: gauges are set.
pub const IS_ON: bool = true;

/// Sets the gauges of the store with this label.
pub fn record(store: &str, figures: &Figures) {
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

/// Sets the series of the leased units of the store with this label.
pub fn record_leases(store: &str, figures: &LeaseFigures) {
    describe_gauge!(
        HELD,
        Unit::Count,
        "Leased units that this process may spend, by the prefix of the store."
    );
    describe_counter!(
        GRANTED,
        Unit::Count,
        "Units that the server has granted to this process."
    );
    describe_counter!(
        RETURNED,
        Unit::Count,
        "Leased units that this process gave back to the server."
    );
    describe_counter!(
        LAPSED,
        Unit::Count,
        "Leased units of this process that ended unspent."
    );
    describe_counter!(
        TRIPS_SAVED,
        Unit::Count,
        "Checks that leased units decided without a trip."
    );
    let set = |metric: &'static str, value| {
        counter!(metric, "store" => store.to_owned()).absolute(value);
    };
    gauge!(HELD, "store" => store.to_owned()).set(figures.held as f64);
    set(GRANTED, figures.granted);
    set(RETURNED, figures.returned);
    set(LAPSED, figures.lapsed);
    set(TRIPS_SAVED, figures.trips_saved);
}

/// Sets the series of a region, whose store has this label.
pub fn record_region(store: &str, figures: &RegionFigures) {
    describe_gauge!(
        REGION_HELD,
        Unit::Count,
        "Units of shared limits that the region held when this process saw them last."
    );
    describe_counter!(
        REGION_CALLS,
        Unit::Count,
        "Calls of the home that this process has carried, by their outcome."
    );
    describe_counter!(
        REGION_RESENT,
        Unit::Count,
        "Calls of the home that were sent again, because no answer came in time."
    );
    describe_counter!(
        REGION_GRANTED,
        Unit::Count,
        "Units that the home has granted to this process for its region."
    );
    describe_counter!(
        REGION_LOST,
        Unit::Count,
        "Units of the region that nobody could spend: they came too late, lapsed, or were voided by a fail-over."
    );
    describe_gauge!(
        REGION_ROUND_TRIP,
        Unit::Seconds,
        "Longest of the last round trips to the home."
    );
    let set = |metric: &'static str, value| {
        counter!(metric, "store" => store.to_owned()).absolute(value);
    };
    let calls = |outcome: &'static str, value| {
        counter!(REGION_CALLS, "store" => store.to_owned(), "outcome" => outcome).absolute(value);
    };
    gauge!(REGION_HELD, "store" => store.to_owned()).set(figures.held as f64);
    calls("answered", figures.answered);
    calls("given_up", figures.given_up);
    set(REGION_RESENT, figures.resent);
    set(REGION_GRANTED, figures.granted);
    set(REGION_LOST, figures.lost);
    gauge!(REGION_ROUND_TRIP, "store" => store.to_owned()).set(figures.round_trip.as_secs_f64());
}
