//! Tests that start other programs: several processes at one server, processes with wrong clocks, the quickstart, the log-in
//! example, the examples whose limits come from a database, that defers jobs, and with metrics for Prometheus.

mod bound;
mod clocks;
mod deferred_jobs;
mod linear;
mod login;
mod prometheus;
mod queue;
mod quickstart;
mod tenants;
