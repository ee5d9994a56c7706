//! The headers that say how much of a quota is left.

mod details;
mod formats;
mod go_duration;
mod header_format;
mod lines;
mod list;
mod names;
mod numbers;
mod parse;
mod permits;
mod quota_unit;
mod seconds;
mod stack;
mod strictness;
mod text;
pub(crate) mod timestamp;
mod unit_format;
mod update;
mod writer;

pub(crate) use details::{ResponseDetails, partition_key};
pub(crate) use formats::HeaderFormats;
pub use header_format::{HeaderFormat, ResetFormat};
pub(crate) use names::{RATELIMIT_POLICY, RETRY_AFTER_MS};
pub(crate) use numbers::number_value;
pub(crate) use parse::{parse_number, retry_after_millis};
pub(crate) use permits::PermitHeaders;
pub use quota_unit::QuotaUnit;
pub(crate) use seconds::{from_now, round_up, round_up_to_millis};
pub(crate) use unit_format::UnitFormat;
pub(crate) use update::{HeaderUpdate, MissingHeaders};
pub(crate) use writer::{HeaderOptions, HeaderWriter};
