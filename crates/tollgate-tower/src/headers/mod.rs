//! The headers that say how much of a quota is left.
//! Formats are listed in `header_format.rs`, written in `writer.rs`, and joined with those of other
//! layers in `stack.rs`.

mod go_duration;
mod header_format;
mod reader;
pub mod received;
mod stack;
mod text;
pub(crate) mod timestamp;
mod writer;

use std::{cmp::Reverse, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue};
use tollgate_core::{Key, KeySecret};

pub(crate) use header_format::HeaderFormats;
pub use header_format::{HeaderFormat, ResetFormat};
pub use text::QuotaUnit;
pub(crate) use text::{number_value, round_up, round_up_to_millis, wait_began};
pub(crate) use writer::{HeaderOptions, HeaderUpdate, HeaderWriter, MissingHeaders, PermitHeaders};

pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-after");
const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");
pub(crate) const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// Has the name of this project, because the draft has no such header.
const DEGRADED: &str = "tollgate-degraded";

/// Stores headers with single values, which stay or go as a whole.
struct HeaderLines {
    format: HeaderFormat,
    lines: Vec<(HeaderName, HeaderValue)>,
    remaining: u64,
    /// The time until the limit is full again, where the format has that. Else it is that until
    /// there are more units.
    reset: Option<Duration>,
}

/// Stores what the headers of one response report besides the decision. All of its headers report
/// the same.
#[derive(Clone, Copy, Default)]
pub(crate) struct ResponseDetails {
    /// A random addition to the time at which the client comes back.
    pub(crate) jitter: Duration,
    /// The base64 text of the partition key.
    pub(crate) partition_key: Option<[u8; PARTITION_KEY_BYTES]>,
}

/// The length of a partition key as text.
const PARTITION_KEY_BYTES: usize = 12;

/// Returns the partition key of a request: the first 9 bytes of a keyed digest, as base64.
pub(crate) fn partition_key(key: &Key, secret: &KeySecret) -> [u8; PARTITION_KEY_BYTES] {
    let mut text = [b'A'; PARTITION_KEY_BYTES];
    let digest = key.digest(secret);
    // 9 bytes are 12 letters of base64, without padding.
    let written = STANDARD.encode_slice(&digest[..9], &mut text);
    debug_assert_eq!(written, Ok(PARTITION_KEY_BYTES));
    text
}

/// Compares the states of two limits: a longer wait is stricter, and then fewer remaining units.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Strictness {
    /// The time until there are more units. It is zero when units are left.
    wait: Duration,
    remaining: Reverse<u64>,
}

impl Strictness {
    fn new(remaining: u64, until_more: Duration) -> Self {
        Self {
            wait: if remaining == 0 {
                until_more
            } else {
                Duration::ZERO
            },
            remaining: Reverse(remaining),
        }
    }

    /// Returns whether no unit is left and the client has to wait.
    fn waits(&self) -> bool {
        !self.wait.is_zero()
    }
}
