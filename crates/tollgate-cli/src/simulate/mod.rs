//! Tries rules on a trace in simulated time.
//! Logs are read in `trace/`, rules decide as they do in a service.

mod missing;
mod plot;
mod report;
mod series;
mod simulator;
mod source;
mod suggest;
mod svg;
mod tally;

pub(crate) use plot::plot;
pub(crate) use report::SimulationReport;
pub(crate) use simulator::Simulator;
pub(crate) use source::{Source, Template};
