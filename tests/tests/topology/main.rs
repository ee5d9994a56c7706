//! Clusters and Sentinels whose servers move, stand still and die.

mod by_url;
mod cluster_killed;
mod cluster_moves;
mod cluster_stalled;
mod cluster_tls;
mod leases;
mod moving_scripts;
mod open_slots;
mod sentinel;
