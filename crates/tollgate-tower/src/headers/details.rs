//! The details of a response that do not come from the decision.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use tollgate::{Key, KeySecret};

/// Stores what the headers of one response report besides the decision. All of its headers report the same.
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
