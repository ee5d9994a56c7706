//! The headers that say how much of a quota is left.

mod header_format;
mod names;
mod seconds;
mod text;
mod update;
mod writer;

pub use header_format::{HeaderFormat, ResetFormat};
pub(crate) use names::RATELIMIT_POLICY;
pub(crate) use seconds::round_up;
pub(crate) use text::number_value;
pub(crate) use update::{HeaderUpdate, MissingHeaders};
pub(crate) use writer::HeaderWriter;
