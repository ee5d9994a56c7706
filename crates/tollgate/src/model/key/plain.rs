//! Parts of a key that are stored as they are.

use super::{
    Key,
    tables::PLAIN,
    text::{KEY_BYTES, PADDING},
};

/// The size of the pieces in which a part is copied.
///
/// The hash of a key reads pieces of the same size at the same places. A processor can then pass them on from the writes
/// to the reads, and the hash does not wait until they have reached the cache.
const WORD: usize = 8;

impl Key {
    /// Copies a part into this empty key. Returns `false` when the part is too long or needs escapes.
    pub(super) fn set_plain(&mut self, part: &[u8]) -> bool {
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
            word.iter_mut().zip(part).for_each(|(target, &byte)| *target = byte);
            word
        }
    }
}

#[inline]
fn is_plain(word: &[u8; WORD]) -> bool {
    word.iter().fold(true, |plain, &byte| plain & PLAIN[usize::from(byte)])
}
