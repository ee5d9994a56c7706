//! A key: its text, kept in place, its levels and branches, and its hash.
//! How a state is named by its key in a store is in `store/names.rs`; how the key of a request is
//! found, in tollgate-tower.

mod combined;
mod parts;
mod raw;
mod secret;
#[cfg(test)]
mod tests;

use std::{
    cmp::Ordering,
    fmt::{self, Write as _},
    hash::{BuildHasher, Hash, Hasher},
    slice,
    sync::Arc,
};

use foldhash::fast::RandomState;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

pub use raw::KeyParts;
pub use secret::KeySecret;

/// Identifies the client, tenant or resource whose quota is spent.
///
/// A key is built from one or more parts. Two keys are equal only when they were built from equal
/// parts: `("ab", "c")` differs from `("a", "bc")`, and the text `"7"` from the number `7`. A part
/// may hold any bytes and have any length.
///
/// The store holds a key as readable text of at most 64 bytes. A longer text is replaced by a
/// digest of it: 160 bits of its SHA-256.
///
/// # Length
///
/// So a key takes no more than 64 bytes for each of its four levels at most, in the store and in the
/// process, however long its parts are. Every byte of a part is read once, and one that is not plain
/// is written as three.
///
/// - **Below 64 bytes** a key stays readable for operators, and costs least: prefer identifiers to
///   paths, agents and URLs.
/// - **What a client chooses** needs a bound of its own where the server has none. Servers bound the
///   head of a request, and not a field of its body. Refuse what is longer than any value of yours
///   before it becomes a key: the digest reads all of it.
///
/// ```
/// use tollgate::Key;
///
/// assert_eq!(Key::new("x".repeat(64)).encoded().len(), 64);
/// assert_eq!(Key::new("x".repeat(1_000_000)).encoded().len(), 41);
/// ```
///
/// # Levels and branches
///
/// A key may be nested in levels, for example a user within a tenant: see [`child`](Self::child).
/// Each level then has a text of at most 64 bytes. A key may also have branches side by side, for
/// example an address and an API key: see [`beside`](Self::with_branch).
///
/// ```
/// use tollgate::Key;
///
/// let key = Key::new("tenant 42").join("/export").join(7_u64);
/// assert_eq!(key, Key::from(("tenant 42", "/export", 7_u64)));
/// assert_eq!(key.encoded(), "tenant%2042,/export,#7");
/// ```
///
/// The text never contains a brace or a control character, so a client that chooses a part cannot
/// choose the slot in a Redis Cluster. Use [`Key::secret`] for API keys and tokens, because
/// everybody with access to the store can read the text.
///
/// Neither `Debug` nor an error message of this crate shows a key.
// The order of the fields is fixed: the words of the text are aligned, and the hash reads them as
// they were written.
#[doc(alias = "user")]
#[doc(alias = "identifier")]
#[derive(Clone)]
#[repr(C)]
pub struct Key {
    /// The text, padded with [`PADDING`].
    text: [u8; INLINE_BYTES],
    /// The length of the text; the mark of a long text when the text is not stored in place.
    len: u8,
    /// The number of levels, 1 to [`MAX_LEVELS`]. 0 for a key with branches, so that one comparison
    /// finds both.
    levels: u8,
    /// The end of each level in the text, except the innermost level.
    ends: [u8; MAX_LEVELS - 1],
    /// The text of a nested key that does not fit in place, or branches.
    long: Option<Arc<LongKey>>,
}

/// Stores what does not fit into a key in place. The size is fixed, so the pointer to it is thin
/// and a key stays small.
#[allow(
    clippy::large_enum_variant,
    reason = "it is behind a pointer, and a nested key is one allocation"
)]
enum LongKey {
    /// The text of a nested key.
    Nested { len: u16, text: [u8; LONG_BYTES] },
    /// The keys of a key with branches, and the text of all.
    Branches { text: Box<[u8]>, keys: Box<[Key]> },
}

const _: () = assert!(size_of::<Key>() <= 88);

impl Key {
    /// The most levels of a key: see [`child`](Self::child).
    pub const MAX_LEVELS: usize = MAX_LEVELS;

    /// The most branches of a key: see [`with_branch`](Self::with_branch).
    pub const MAX_BRANCHES: usize = MAX_BRANCHES;

    /// A key without text, which no function returns.
    const EMPTY: Self = Self {
        len: 0,
        levels: 1,
        ends: [0; MAX_LEVELS - 1],
        text: [PADDING; INLINE_BYTES],
        long: None,
    };

    /// Creates a key of one part.
    ///
    /// The part may be a text, bytes, a number, an address or another key.
    #[must_use]
    pub fn new(part: impl Into<Self>) -> Self {
        part.into()
    }

    /// Creates a key of one part from any bytes.
    ///
    /// Bytes other than ASCII letters, digits and a few signs are written as `%` and two hex
    /// digits.
    // Inlined, so that the key is built where the caller needs it instead of being copied there.
    #[must_use]
    #[inline]
    pub fn bytes(part: &[u8]) -> Self {
        // Nearly every part is short and needs no escapes.
        let mut key = Self::EMPTY;
        if !key.set_plain(part) {
            key.set_escaped(part);
        }
        key
    }

    /// Makes this the key of one part that needs escapes or is too long.
    #[cold]
    fn set_escaped(&mut self, part: &[u8]) {
        let mut text = Buffer::new();
        if part.is_empty() {
            text.push(b'%');
        }
        for &byte in part {
            if PLAIN[usize::from(byte)] {
                text.push(byte);
            } else {
                text.push(b'%');
                text.extend_from_slice(&hex(byte));
            }
        }
        *self = Self::from_text(&text);
    }

    /// Returns the text of the key in the store: printable ASCII without braces, 1 to 64 bytes for
    /// each level.
    ///
    /// A `>` separates two levels, and a `^` two branches.
    #[must_use]
    pub fn encoded(&self) -> &str {
        // The text is always ASCII, so the conversion cannot fail.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// Creates a key of one level from a text of at most [`KEY_BYTES`].
    fn of(text: &[u8]) -> Self {
        let mut key = Self {
            len: text.len() as u8,
            ..Self::EMPTY
        };
        key.text[..text.len()].copy_from_slice(text);
        key
    }

    /// Creates a key of formatted text that needs no escapes.
    fn written(text: fmt::Arguments<'_>) -> Self {
        let mut buffer = KeyText(Buffer::new());
        // Writing to memory cannot fail.
        let _ = buffer.write_fmt(text);
        Self::from_text(&buffer.0)
    }

    /// Creates a key of one level from encoded text. Text longer than a level becomes a digest.
    fn from_text(text: &[u8]) -> Self {
        if text.len() <= KEY_BYTES {
            return Self::of(text);
        }
        let mut digest = Buffer::new();
        digest.push(b'!');
        // The digest of several parts is marked, so that it differs from a key to which a part is
        // appended.
        if text.contains(&b',') {
            digest.push(b'!');
        }
        for &byte in &Sha256::digest(text)[..20] {
            digest.extend_from_slice(&hex(byte));
        }
        Self::of(&digest)
    }
}

/// Reads the levels and the branches of a key.
impl Key {
    /// Returns the branches, 1 to 4. A key without branches is its only branch.
    #[must_use]
    #[inline]
    pub fn branches(&self) -> &[Self] {
        if self.has_branches() {
            self.long_branches()
        } else {
            slice::from_ref(self)
        }
    }

    #[cold]
    fn long_branches(&self) -> &[Self] {
        match self.long.as_deref() {
            Some(LongKey::Branches { keys, .. }) => keys,
            _ => slice::from_ref(self),
        }
    }

    /// Returns the number of levels, 1 to 4. If the key has branches, counts the levels of the
    /// first branch.
    #[must_use]
    #[inline]
    pub fn levels(&self) -> usize {
        if self.has_branches() {
            self.branch(0).levels.into()
        } else {
            self.levels.into()
        }
    }

    #[cold]
    fn long_text(&self) -> &[u8] {
        match self.long.as_deref() {
            Some(LongKey::Nested { len, text }) => &text[..usize::from(*len)],
            Some(LongKey::Branches { text, .. }) => text,
            None => &[],
        }
    }

    /// Returns the end of an outer level, which is counted from 1.
    #[inline]
    fn end(&self, level: u8) -> usize {
        self.ends[usize::from(level) - 1].into()
    }
}

/// Borrows the part of a key that a policy meters: all levels, or the outer ones.
#[derive(Clone, Copy)]
pub struct KeyLevel<'a> {
    bytes: &'a [u8],
    /// The key, when it is metered whole.
    whole: Option<&'a Key>,
}

// Leaves out the text: it may identify a person.
crate::debug_fields! { KeyLevel<'a>: .. }

impl<'a> KeyLevel<'a> {
    /// Returns the text of the levels.
    #[inline]
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the first `N` bytes of a whole key with its padding, when the key is not longer.
    #[inline]
    #[must_use]
    pub fn padded<const N: usize>(self) -> Option<&'a [u8; N]> {
        let key = self.whole?;
        if usize::from(key.len) <= N {
            key.text.first_chunk()
        } else {
            None
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

/// A buffer to which formatted text can be written.
struct KeyText(Buffer);

impl fmt::Write for KeyText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The greatest number of levels of a key.
pub(crate) const MAX_LEVELS: usize = 4;

/// The greatest number of branches of a key. A decision holds the lock of each branch in process,
/// and the text of a key stays below 1100 bytes.
pub const MAX_BRANCHES: usize = 4;

/// The greatest length of a level in bytes. A longer text becomes a digest, so a key of one level
/// never allocates.
const KEY_BYTES: usize = 64;

/// The longest text that is stored in place. It holds three nested IPv6 networks of up to 64 bits.
const INLINE_BYTES: usize = 75;

/// Fills the rest of a text that is stored in place. It needs no escape, as the text itself.
pub const PADDING: u8 = b'0';

/// Marks a text that is not stored in place.
const LONG: u8 = u8::MAX;

type Buffer = SmallVec<[u8; 2 * KEY_BYTES]>;

/// The greatest length of a nested key in bytes.
const LONG_BYTES: usize = MAX_LEVELS * (KEY_BYTES + 1) - 1;

/// The bytes that need no escape. All others are written as `%` and two hex digits, among them the
/// bytes with a meaning in the encoded text (`, ( ) % * # ~ ! > ^`) and in Redis (`{ }`).
static PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        plain[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let marks = b"-_./:@+=|$&;?";
    let mut at = 0;
    while at < marks.len() {
        plain[marks[at] as usize] = true;
        at += 1;
    }
    plain
};

/// Returns the two hex digits of a byte.
fn hex(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ]
}

/// The size of the pieces in which a part is copied.
///
/// The hash of a key reads pieces of the same size at the same places. A processor can then pass
/// them on from the writes to the reads, and the hash does not wait until they have reached the
/// cache.
const WORD: usize = 8;

impl Key {
    /// Copies a part into this empty key. Returns `false` when the part is too long or needs
    /// escapes.
    fn set_plain(&mut self, part: &[u8]) -> bool {
        if !(1..=KEY_BYTES).contains(&part.len()) {
            return false;
        }
        self.len = part.len() as u8;
        let (words, rest) = part.as_chunks::<WORD>();
        let (targets, _) = self.text.as_chunks_mut::<WORD>();
        for (target, word) in targets.iter_mut().zip(words) {
            if !is_plain(word) {
                return false;
            }
            *target = *word;
        }
        match targets.get_mut(words.len()) {
            Some(target) if !rest.is_empty() => {
                let word = padded(part, rest.len());
                *target = word;
                is_plain(&word)
            }
            _ => true,
        }
    }
}

/// Returns the last `rest` bytes of a part, which are 1 to 7, and padding behind them.
#[inline]
fn padded(part: &[u8], rest: usize) -> [u8; WORD] {
    match part.last_chunk::<WORD>() {
        Some(last) => {
            let padding = u64::from_le_bytes([PADDING; WORD]) << (8 * rest);
            (u64::from_le_bytes(*last) >> (8 * (WORD - rest)) | padding).to_le_bytes()
        }
        None => {
            let mut word = [PADDING; WORD];
            word.iter_mut()
                .zip(part)
                .for_each(|(target, &byte)| *target = byte);
            word
        }
    }
}

#[inline]
fn is_plain(word: &[u8; WORD]) -> bool {
    word.iter()
        .fold(true, |plain, &byte| plain & PLAIN[usize::from(byte)])
}

/// The size of the block that is hashed for a short text.
const BLOCK: usize = 32;

impl KeyLevel<'_> {
    /// Returns the hash of this level. It equals the hash of a key that has this level alone.
    #[inline]
    #[must_use]
    pub fn hash(self, hasher: &RandomState) -> u64 {
        match self.padded::<BLOCK>() {
            Some(block) if self.as_bytes().len() < BLOCK => {
                hash_block(hasher, block, self.as_bytes().len())
            }
            _ => hash_text(hasher, self.as_bytes()),
        }
    }
}

/// Returns the hash of the text of a key, as [`KeyLevel::hash`] does.
#[must_use]
pub fn hash_text(hasher: &RandomState, text: &[u8]) -> u64 {
    let mut block = [PADDING; BLOCK];
    match block.get_mut(..text.len()) {
        Some(start) if text.len() < BLOCK => {
            start.copy_from_slice(text);
            hash_block(hasher, &block, text.len())
        }
        _ => {
            let mut state = hasher.build_hasher();
            state.write(text);
            state.finish()
        }
    }
}

/// Returns the hash of a text that is shorter than the block, together with its padding.
///
/// A block of a fixed size is hashed without a loop and without a branch for the length. Most keys
/// are that short.
#[inline]
fn hash_block(hasher: &RandomState, block: &[u8; BLOCK], len: usize) -> u64 {
    let mut state = hasher.build_hasher();
    if let [first, second] = block.as_chunks().0 {
        state.write_u128(u128::from_le_bytes(*first));
        // The last byte is padding. The length changes it, so that a text and the same text with
        // padding differ.
        state.write_u128(u128::from_le_bytes(*second) ^ (len as u128) << 120);
    }
    state.finish()
}

#[cfg(test)]
mod hash_tests {
    use std::collections::HashSet;

    use super::*;
    use crate::Key;

    #[test]
    fn a_level_has_one_hash_wherever_it_stands_and_every_length_has_its_own() {
        let hasher = RandomState::default();
        let mut hashes = HashSet::new();
        for len in 1..=64 {
            // The padding is a valid text too.
            for text in ["0".repeat(len), "x".repeat(len)] {
                let key = Key::from(text.as_str());
                let hash = key.level(1).hash(&hasher);
                assert_eq!(hash, hash_text(&hasher, text.as_bytes()), "{text}");
                assert_eq!(
                    hash,
                    key.clone().child("inner").level(1).hash(&hasher),
                    "{text}"
                );
                assert_eq!(hash, key.level(0).hash(&hasher), "{text}");
                assert!(hashes.insert(hash), "{text}");
            }
        }
    }
}
