//! Tests that start other programs: several processes at one server, processes with wrong clocks, the quickstart, the log-in example and the example
//! whose limits come from a database.

mod bound;
mod clocks;
mod linear;
mod login;
mod queue;
mod quickstart;
mod tenants;
