//! The hash of a level of a key, for tables in the process.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;

use super::{level::KeyLevel, text::PADDING};

/// The size of the block that is hashed for a short text.
const BLOCK: usize = 32;

impl KeyLevel<'_> {
    /// Returns the hash of this level. It equals the hash of a key that has this level alone.
    #[inline]
    pub(crate) fn hash(self, hasher: &RandomState) -> u64 {
        match self.padded::<BLOCK>() {
            Some(block) if self.as_bytes().len() < BLOCK => hash_block(hasher, block, self.as_bytes().len()),
            _ => hash_text(hasher, self.as_bytes()),
        }
    }
}

/// Returns the hash of a level with this text.
pub(crate) fn hash_text(hasher: &RandomState, text: &[u8]) -> u64 {
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
/// A block of a fixed size is hashed without a loop and without a branch for the length. Most keys are that short.
#[inline]
fn hash_block(hasher: &RandomState, block: &[u8; BLOCK], len: usize) -> u64 {
    let mut state = hasher.build_hasher();
    if let [first, second] = block.as_chunks().0 {
        state.write_u128(u128::from_le_bytes(*first));
        // The last byte is padding. The length changes it, so that a text and the same text with padding differ.
        state.write_u128(u128::from_le_bytes(*second) ^ (len as u128) << 120);
    }
    state.finish()
}

#[cfg(test)]
mod tests {
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
                assert_eq!(hash, key.clone().child("inner").level(1).hash(&hasher), "{text}");
                assert_eq!(hash, key.level(0).hash(&hasher), "{text}");
                assert!(hashes.insert(hash), "{text}");
            }
        }
    }
}
