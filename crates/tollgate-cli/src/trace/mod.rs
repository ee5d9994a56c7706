//! Reads traces of requests: access logs in several formats.
//! What becomes of the requests is decided in `simulate/`.

mod common;
mod csv;
mod fields;
mod json;
mod lines;
mod reader;
mod sorter;

pub(crate) use fields::{Alias, Fields};
pub(crate) use lines::{Lines, TraceLine};
pub(crate) use reader::{Request, Skipped, Trace, TraceFormat};
pub(crate) use sorter::Sorter;
