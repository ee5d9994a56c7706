//! One of several processes that lease the units of one key; see `tests/processes/leases.rs`. Reads
//! `URL` and the settings of [`LeaseReplicas`](tollgate_test_support::LeaseReplicas) from its
//! environment.

fn main() {
    tollgate_test_support::run_lease_replica(&std::env::var("URL").expect("URL is set"));
}
