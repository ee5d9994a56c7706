//! Watches a running prefix: `tollgate top` on a terminal.
//!
//! `collector` reads Redis (`tracker`) and pages of metrics (`endpoint`, `exposition`, `figures`)
//! into a `snapshot`. `sections` lays it out as lines, which `screen` draws and `plain` prints.
//! `session` runs them until it is ended.
//! Commands that look once, without a refresh, need only `redis/`.

mod collector;
mod endpoint;
mod exposition;
mod figures;
mod metrics;
#[cfg(test)]
mod panic_tests;
mod plain;
mod screen;
mod sections;
mod session;
mod snapshot;
mod tracker;

pub(crate) use collector::Collector;
pub(crate) use endpoint::EndpointOptions;
pub(crate) use plain::Plain;
pub(crate) use screen::Screen;
pub(crate) use session::{Pace, View, run};
