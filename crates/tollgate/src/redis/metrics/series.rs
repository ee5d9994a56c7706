//! The series of leased units, with the feature `metrics`.
//! What is counted comes from `redis/lease/leased_units.rs`.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use crate::redis::backend::Backend;

const HELD: &str = "tollgate_lease_held";
const GRANTED: &str = "tollgate_lease_granted_total";
const RETURNED: &str = "tollgate_lease_returned_total";
const LAPSED: &str = "tollgate_lease_lapsed_total";
const TRIPS_SAVED: &str = "tollgate_lease_trips_saved_total";

/// Sets the series of leases, once a unit was granted.
pub(in crate::redis) fn record(backend: &Backend) {
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
        counter!(metric, "store" => backend.prefix.clone()).absolute(value);
    };
    gauge!(HELD, "store" => backend.prefix.clone()).set(counts.held as f64);
    set(GRANTED, counts.granted);
    set(RETURNED, counts.returned);
    set(LAPSED, counts.lapsed);
    set(TRIPS_SAVED, counts.trips_saved);
}
