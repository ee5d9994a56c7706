//! The sizes of a key's text, and the text that does not fit into the key.

use smallvec::SmallVec;

/// The greatest number of levels of a key.
pub(crate) const MAX_LEVELS: usize = 4;

/// The greatest length of a level in bytes. A longer text becomes a digest, so a key of one level never allocates.
pub(super) const KEY_BYTES: usize = 64;

/// The longest text that is stored in place. It holds three nested IPv6 networks of up to 64 bits.
pub(super) const INLINE_BYTES: usize = 75;

/// Fills the rest of a text that is stored in place. It needs no escape, as the text itself.
pub(crate) const PADDING: u8 = b'0';

/// Marks a text that is not stored in place.
pub(super) const LONG: u8 = u8::MAX;

pub(super) type Buffer = SmallVec<[u8; 2 * KEY_BYTES]>;

/// Stores the text of a nested key that does not fit in place. The size is fixed, so the pointer to it is thin and a key
/// stays small.
pub(super) struct LongText {
    pub(super) len: u16,
    pub(super) text: [u8; LONG_BYTES],
}

/// The greatest length of a nested key in bytes.
pub(super) const LONG_BYTES: usize = MAX_LEVELS * (KEY_BYTES + 1) - 1;
