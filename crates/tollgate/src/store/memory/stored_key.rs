use std::fmt;

use crate::model::key::{KeyLevel, PADDING};

/// Stores a key, or outer levels of a key, beside the state. Most fit in place, a longer one is one allocation.
pub(super) enum StoredKey {
    /// The bytes of the key, with the key's own padding.
    Short {
        len: u8,
        text: [u8; SHORT],
    },
    Long(Box<[u8]>),
}

/// A key that is looked for. It is prepared once, and then compared with the keys of all entries that may be meant.
#[derive(Clone, Copy)]
pub(super) struct KeyProbe<'a> {
    bytes: &'a [u8],
    /// A short whole key with its padding. Two of them are compared without a loop.
    padded: Option<&'a [u8; SHORT]>,
}

impl<'a> KeyProbe<'a> {
    #[inline]
    pub(super) fn of(key: KeyLevel<'a>) -> Self {
        Self { bytes: key.as_bytes(), padded: key.padded() }
    }
}

/// The longest key that is stored in place, in bytes. The key of an IPv6 /64 network takes up to 25.
const SHORT: usize = 30;

impl StoredKey {
    pub(super) fn of(key: KeyLevel<'_>) -> Self {
        let bytes = key.as_bytes();
        if bytes.len() > SHORT {
            return Self::Long(bytes.into());
        }
        let mut text = [PADDING; SHORT];
        text[..bytes.len()].copy_from_slice(bytes);
        Self::Short { len: bytes.len() as u8, text }
    }

    /// Returns `true` when this is the key of the probe.
    #[inline]
    pub(super) fn is(&self, probe: KeyProbe<'_>) -> bool {
        match (self, probe.padded) {
            (Self::Short { len, text }, Some(other)) => usize::from(*len) == probe.bytes.len() && text == other,
            _ => self.as_bytes() == probe.bytes,
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, text } => &text[..usize::from(*len).min(SHORT)],
            Self::Long(text) => text,
        }
    }
}

impl fmt::Debug for StoredKey {
    /// Omits the key: it may identify a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    #[test]
    fn a_stored_key_equals_only_its_own_key() {
        // Keys around the longest short one, and keys that equal another one plus its padding.
        let texts = ["a", "a0", "a00", &"x".repeat(29), &"x".repeat(30), &"x".repeat(31), &"x".repeat(64)];
        for (at, text) in texts.iter().enumerate() {
            let key = Key::from(*text);
            let stored = StoredKey::of(key.level(0));
            assert_eq!(stored.as_bytes(), text.as_bytes());
            for (other_at, other) in texts.iter().enumerate() {
                assert_eq!(stored.is(KeyProbe::of(Key::from(*other).level(0))), at == other_at, "{text} {other}");
                let nested = Key::from(*other).child("inner");
                assert_eq!(stored.is(KeyProbe::of(nested.level(1))), at == other_at, "{text} around inner: {other}");
                assert!(!stored.is(KeyProbe::of(nested.level(2))), "{text} {other}");
                assert_eq!(
                    StoredKey::of(nested.level(1)).is(KeyProbe::of(key.level(0))),
                    at == other_at,
                    "{text} {other}"
                );
            }
        }
    }
}
