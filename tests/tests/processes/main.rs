//! Tests that start other programs: several processes at one server, processes with wrong clocks, the quickstart.

mod bound;
mod clocks;
mod linear;
mod queue;
mod quickstart;
