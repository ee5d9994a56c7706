use std::fmt;

use crate::Key;

/// A key as it is held beside its state: most fit, the others are one allocation.
pub(super) enum Subject {
    /// The first bytes of a key, padded as the key is.
    Short {
        len: u8,
        text: [u8; SHORT],
    },
    Long(Box<[u8]>),
}

/// A network of IPv6 addresses takes 25.
const SHORT: usize = 30;

impl Subject {
    pub(super) fn of(key: &Key) -> Self {
        match key.padded::<SHORT>() {
            Some(text) => Self::Short { len: key.as_bytes().len() as u8, text: *text },
            None => Self::Long(key.as_bytes().into()),
        }
    }

    /// Whether this is the key. Two short ones are compared whole, padding and all, without a loop.
    #[inline]
    pub(super) fn is(&self, key: &Key) -> bool {
        match (self, key.padded::<SHORT>()) {
            (Self::Short { len, text }, Some(other)) => usize::from(*len) == key.as_bytes().len() && text == other,
            (Self::Long(text), None) => **text == *key.as_bytes(),
            _ => false,
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, text } => &text[..usize::from(*len).min(SHORT)],
            Self::Long(text) => text,
        }
    }
}

impl fmt::Debug for Subject {
    /// It tells who it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subject(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_its_key_and_no_other() {
        // The longest that fits and the next, and one that is another's beginning with its padding.
        let texts = ["a", "a0", "a00", &"x".repeat(29), &"x".repeat(30), &"x".repeat(31), &"x".repeat(64)];
        for (at, text) in texts.iter().enumerate() {
            let subject = Subject::of(&Key::from(*text));
            assert_eq!(subject.as_bytes(), text.as_bytes());
            for (other_at, other) in texts.iter().enumerate() {
                assert_eq!(subject.is(&Key::from(*other)), at == other_at, "{text} {other}");
            }
        }
    }
}
