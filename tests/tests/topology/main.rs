//! Clusters and Sentinels whose servers move, stand still and die.

mod by_url;
mod cluster_killed;
mod cluster_moves;
mod cluster_stalled;
mod cluster_tls;
mod credentials;
mod leases;
mod moving_scripts;
mod open_slots;
mod postgres;
mod sentinel;

/// Runs a scene in which servers agree on another master. They do not, for half a minute, after
/// they stood still.
fn undisturbed(scene: impl AsyncFn()) {
    tollgate_tests::machine::undisturbed_async(std::time::Duration::from_secs(1), 2, scene);
}
