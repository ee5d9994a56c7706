//! The scripts, called directly on a server: they decide as the Rust functions do, to the byte.

mod agreement;
mod batches;
mod decimal_arguments;
mod large_quotas;
mod largest_sets;
mod leases;
mod mistakes;
mod mixed;
mod mutations;
mod plots;
mod reservations;
mod sliding_log;
