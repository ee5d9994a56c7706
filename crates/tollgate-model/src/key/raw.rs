//! Gives stores the parts of a key.
//! How its levels and branches are made is in `combined.rs`.

use super::{KEY_BYTES, Key, KeyLevel, MAX_LEVELS};

/// Reads the levels and the branches of a key.
pub trait KeyParts: Sized {
    /// Returns the text of all levels, as it is in the names of states.
    fn as_bytes(&self) -> &[u8];

    /// Returns `true` when the key has several branches.
    fn has_branches(&self) -> bool;

    /// Returns the branch at this place, counted from 0. A key without branches returns itself.
    fn branch(&self, at: u8) -> &Self;

    /// Returns the number of levels of a key without branches, and 0 for a key with branches.
    fn reach(&self) -> u8;

    /// Returns the first `count` levels. Returns all levels when `count` is 0, or when the key has
    /// no more.
    fn level(&self, count: u8) -> KeyLevel<'_>;

    /// Returns the text of the outermost level.
    fn outermost(&self) -> &[u8];

    /// Reads an [encoded](Key::encoded) key without branches. `None` for a text that no key has.
    fn read(encoded: &str) -> Option<Self>;
}

impl KeyParts for Key {
    #[inline]
    fn as_bytes(&self) -> &[u8] {
        match self.text.get(..usize::from(self.len)) {
            Some(text) => text,
            None => self.long_text(),
        }
    }

    #[inline]
    fn has_branches(&self) -> bool {
        self.levels == 0
    }

    #[inline]
    fn branch(&self, at: u8) -> &Self {
        if self.has_branches() {
            self.long_branches().get(usize::from(at)).unwrap_or(self)
        } else {
            self
        }
    }

    #[inline]
    fn reach(&self) -> u8 {
        self.levels
    }

    #[inline]
    fn level(&self, count: u8) -> KeyLevel<'_> {
        if count == 0 || count >= self.levels {
            return KeyLevel {
                bytes: self.as_bytes(),
                whole: Some(self),
            };
        }
        KeyLevel {
            bytes: &self.as_bytes()[..self.end(count)],
            whole: None,
        }
    }

    #[inline]
    fn outermost(&self) -> &[u8] {
        self.level(1).bytes
    }

    fn read(encoded: &str) -> Option<Self> {
        let is_sign = |byte: u8| byte.is_ascii_graphic() && !b"{}^".contains(&byte);
        let levels: Vec<_> = encoded.split('>').map(str::as_bytes).collect();
        let is_level = |level: &&[u8]| (1..=KEY_BYTES).contains(&level.len());
        let is_key = levels.len() <= MAX_LEVELS
            && levels.iter().all(is_level)
            && encoded.bytes().all(is_sign);
        let (outermost, inner) = levels.split_first().filter(|_| is_key)?;
        let outermost = Self::of(outermost);
        Some(inner.iter().fold(outermost, |key, level| key.below(level)))
    }
}
