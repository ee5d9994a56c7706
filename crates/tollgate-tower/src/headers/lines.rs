use http::{HeaderName, HeaderValue};

use super::header_format::HeaderFormat;

/// Stores headers with single values.
pub(super) struct HeaderLines {
    pub(super) format: HeaderFormat,
    /// The list of `RateLimit-Policy`, where the format has it.
    pub(super) policies: Option<HeaderValue>,
    pub(super) lines: Vec<(HeaderName, HeaderValue)>,
    pub(super) remaining: u64,
}
