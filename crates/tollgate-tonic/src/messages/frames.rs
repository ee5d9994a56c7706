//! Where messages begin.

/// How far a sequence of messages has been read, each five bytes of prefix (a flag, and the length
/// in four bytes) and its content. The bytes may come cut in any way.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// Bytes of the prefix, while it is not whole.
    prefix: u8,
    /// The length, as far as it is known; then what is still to come of the content.
    left: u32,
}

const PREFIX: u8 = 5;

impl Frames {
    /// Whether the next byte is a message's first.
    pub(super) fn is_between(&self) -> bool {
        self.prefix == 0
    }

    /// How many of `bytes` belong to the message that they begin with or go on with.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut read = 0;
        while self.prefix < PREFIX {
            let Some(&byte) = bytes.get(read) else { return read };
            if self.prefix > 0 {
                self.left = self.left << 8 | u32::from(byte);
            }
            self.prefix += 1;
            read += 1;
        }
        let content = bytes.len() - read;
        match u32::try_from(content) {
            Ok(content) if content < self.left => {
                self.left -= content;
                bytes.len()
            }
            _ => {
                let read = read + self.left as usize;
                *self = Self::default();
                read
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// A message of this length, its content full of what could be a prefix.
    fn message(length: usize, flag: u8) -> Vec<u8> {
        let mut message = vec![flag];
        message.extend((length as u32).to_be_bytes());
        message.extend((0..length).map(|at| (at % 3) as u8));
        message
    }

    /// Where messages begin, read in these pieces.
    fn beginnings<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<usize> {
        let (mut frames, mut beginnings, mut at) = (Frames::default(), Vec::new(), 0);
        for mut piece in pieces {
            while !piece.is_empty() {
                if frames.is_between() {
                    beginnings.push(at);
                }
                let read = frames.advance(piece);
                assert!((1..=piece.len()).contains(&read), "{read} of {}", piece.len());
                at += read;
                piece = &piece[read..];
            }
        }
        beginnings
    }

    proptest! {
        #[test]
        fn messages_are_found_however_they_are_cut(
            messages in vec((0..600_usize, 0..2_u8), 0..20),
            cuts in vec(any::<prop::sample::Index>(), 0..40),
        ) {
            let mut bytes = Vec::new();
            let mut expected = Vec::new();
            for (length, flag) in messages {
                expected.push(bytes.len());
                bytes.extend(message(length, flag));
            }
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]);
            prop_assert_eq!(beginnings(pieces), expected.clone());
            prop_assert_eq!(beginnings(bytes.chunks(1)), expected);
        }

        #[test]
        fn no_bytes_are_too_strange(pieces in vec(vec(any::<u8>(), 0..30), 0..30)) {
            beginnings(pieces.iter().map(Vec::as_slice));
        }
    }

    #[test]
    fn the_longest_message_there_can_be_is_one() {
        let mut frames = Frames::default();
        assert_eq!(frames.advance(&[0, 0xff, 0xff, 0xff, 0xff]), 5);
        assert!(!frames.is_between());
        assert_eq!(frames.advance(&[0; 1000]), 1000);
        assert!(!frames.is_between());
    }
}
