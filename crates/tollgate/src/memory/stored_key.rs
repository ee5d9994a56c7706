use std::fmt;

use crate::key::KeyLevel;

/// Stores a key, or outer levels of a key, beside the state. Most fit in place, a longer one is one allocation.
pub(super) enum StoredKey {
    /// The bytes of the key, with the key's own padding.
    Short {
        len: u8,
        text: [u8; SHORT],
    },
    Long(Box<[u8]>),
}

/// The longest key that is stored in place, in bytes. The key of an IPv6 /64 network takes up to 25.
const SHORT: usize = 30;

impl StoredKey {
    pub(super) fn of(key: KeyLevel<'_>) -> Self {
        let bytes = key.as_bytes();
        if bytes.len() > SHORT {
            return Self::Long(bytes.into());
        }
        let mut text = [b'0'; SHORT];
        text[..bytes.len()].copy_from_slice(bytes);
        Self::Short { len: bytes.len() as u8, text }
    }

    /// Returns `true` when this is `key`. Two short whole keys are compared with their padding, without a loop.
    #[inline]
    pub(super) fn is(&self, key: KeyLevel<'_>) -> bool {
        match (self, key.padded::<SHORT>()) {
            (Self::Short { len, text }, Some(other)) => usize::from(*len) == key.as_bytes().len() && text == other,
            _ => self.as_bytes() == key.as_bytes(),
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
                assert_eq!(stored.is(Key::from(*other).level(0)), at == other_at, "{text} {other}");
                let nested = Key::from(*other).child("inner");
                assert_eq!(stored.is(nested.level(1)), at == other_at, "{text} around inner: {other}");
                assert!(!stored.is(nested.level(2)), "{text} {other}");
                assert_eq!(StoredKey::of(nested.level(1)).is(key.level(0)), at == other_at, "{text} {other}");
            }
        }
    }
}
