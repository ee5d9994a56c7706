//! Reads event logs: the lines that `LogLine` of the core writes.
//! See `denial.rs` for what a denial meant.

mod denial;
mod reader;

pub(crate) use denial::{Answer, Moment, Question};
pub(crate) use reader::{EventLog, Logged};
