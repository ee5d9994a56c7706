//! Reads event logs: the lines that `LogLine` of the core writes.
//! What a denial meant is explained in `denial.rs`.

mod denial;
mod reader;

pub(crate) use denial::{Answer, Moment, Question};
pub(crate) use reader::{EventLog, Logged};
