//! The sizes of a key's text, and the text that does not fit into the key.

use smallvec::SmallVec;

/// The greatest number of levels of a key.
pub(crate) const MAX_LEVELS: usize = 4;

/// The greatest number of branches of a key. A decision holds the lock of each branch in process, and the text of a key
/// stays below 1100 bytes.
pub(crate) const MAX_BRANCHES: usize = 4;

/// The greatest length of a level in bytes. A longer text becomes a digest, so a key of one level never allocates.
pub(super) const KEY_BYTES: usize = 64;

/// The longest text that is stored in place. It holds three nested IPv6 networks of up to 64 bits.
pub(super) const INLINE_BYTES: usize = 75;

/// Fills the rest of a text that is stored in place. It needs no escape, as the text itself.
pub(crate) const PADDING: u8 = b'0';

/// Marks a text that is not stored in place.
pub(super) const LONG: u8 = u8::MAX;

pub(super) type Buffer = SmallVec<[u8; 2 * KEY_BYTES]>;

/// The greatest length of a nested key in bytes.
pub(super) const LONG_BYTES: usize = MAX_LEVELS * (KEY_BYTES + 1) - 1;
