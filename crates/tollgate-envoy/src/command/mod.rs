//! The program: reads the settings, starts the parts, and ends them.
//! Nothing of this folder is part of the library. Whatever a server of one's own could use is
//! beside it.

mod arguments;
#[cfg(feature = "console")]
mod console;
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
