use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use crate::{
    redis::{backend::Backend, dispatch::Sender},
    store::{health::Probed, presence::ReplicaCounter},
};

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

/// Is true: gauges are set.
pub(in crate::redis) const IS_ON: bool = true;

/// Sets all gauges.
pub(in crate::redis) fn record(backend: &Backend, replicas: &ReplicaCounter) {
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
        gauge!(metric, "store" => backend.prefix.clone()).set(value)
    };
    let servers = backend.known_servers();
    let count = |is: fn(&Sender) -> bool| servers.iter().filter(|sender| is(sender)).count() as f64;
    set(SERVERS, servers.len() as f64);
    set(CONNECTED, count(|sender| sender.server.is_connected()));
    set(BREAKERS, count(|sender| sender.server.breaker().is_open()));
    set(
        QUEUED,
        servers.iter().map(|sender| sender.queued()).sum::<usize>() as f64,
    );
    if let Some(round_trip) = replicas.round_trip() {
        set(ROUND_TRIP, round_trip.as_secs_f64());
    }
    if let Some(replicas) = replicas.last() {
        set(REPLICAS, f64::from(replicas.get()));
    }
    record_leases(backend);
}

/// Sets the series of leases, once a unit was granted.
fn record_leases(backend: &Backend) {
    let counts = backend.leased_units.counts();
    if counts.is_empty() {
        return;
    }
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
        counter!(metric, "store" => backend.prefix.clone()).absolute(value)
    };
    gauge!(HELD, "store" => backend.prefix.clone()).set(counts.held as f64);
    set(GRANTED, counts.granted);
    set(RETURNED, counts.returned);
    set(LAPSED, counts.lapsed);
    set(TRIPS_SAVED, counts.trips_saved);
}
