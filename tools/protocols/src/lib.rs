//! Explores protocols that give units away: each order of their messages and faults, at small sizes.
//!
//! A protocol stands in a folder: its rules, what may happen, what has to hold, and mistakes that
//! have to be found. `explorer/` visits the states. The tests explore the short rows, and
//! `cargo xtask model` all of them.

pub mod explorer;
pub mod leases;
pub mod regions;
pub mod table;
