//! The headers that say how much of a quota is left.

mod details;
mod header_format;
mod lines;
mod list;
mod names;
mod numbers;
mod quota_unit;
mod seconds;
mod stack;
mod text;
mod update;
mod writer;

pub(crate) use details::{ResponseDetails, partition_key};
pub use header_format::{HeaderFormat, ResetFormat};
pub(crate) use names::RATELIMIT_POLICY;
pub(crate) use numbers::number_value;
pub use quota_unit::QuotaUnit;
pub(crate) use seconds::round_up;
pub(crate) use update::{HeaderUpdate, MissingHeaders};
pub(crate) use writer::{HeaderOptions, HeaderWriter};
