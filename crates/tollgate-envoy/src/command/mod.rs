//! The program: reads the settings, starts the parts, and ends them.

mod arguments;
mod descriptors;
mod environment;
mod failure;
mod file;
mod log;
mod metrics;
mod redis_url;
mod run;
mod signals;
mod start;
mod store;
mod values;

pub(crate) use run::main;
