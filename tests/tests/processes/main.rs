//! Tests that start other programs: several processes at one server, processes with wrong clocks, the quickstart and the log-in example.

mod bound;
mod clocks;
mod linear;
mod login;
mod queue;
mod quickstart;
