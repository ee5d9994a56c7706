//! Finds where messages begin in a body.
//!
//! A message has a prefix of five bytes: one byte of flags, then the length of the content in four
//! bytes, big-endian ("Length-Prefixed-Message" of the gRPC protocol).

pub(super) const PREFIX_LENGTH: usize = 5;

/// Marks the trailers of gRPC-Web among the flags: there, trailers have the form of a message.
pub(super) const TRAILERS_FLAG: u8 = 0x80;

/// Remembers the position in a sequence of messages. The bytes may arrive in pieces of any size.
#[derive(Debug, Default)]
pub(super) struct MessageBoundaries {
    /// Number of bytes of the prefix that were read.
    prefix_read: usize,
    /// While the prefix is read: its last four bytes so far. Then: the bytes of content that are
    /// still to come.
    remaining: u32,
}

impl MessageBoundaries {
    /// Returns whether the next byte is the first of a message.
    pub(super) fn is_at_start(&self) -> bool {
        self.prefix_read == 0
    }

    /// Reads a piece of a body, and returns how many messages begin in it. Trailers of gRPC-Web are
    /// no message.
    pub(super) fn count(&mut self, mut bytes: &[u8]) -> u64 {
        let mut messages = 0;
        while let Some(&flags) = bytes.first() {
            messages += u64::from(self.is_at_start() && flags & TRAILERS_FLAG == 0);
            bytes = &bytes[self.advance(bytes)..];
        }
        messages
    }

    /// Reads up to the end of the message at hand, and returns how many of `bytes` belong to it.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut read = 0;
        while self.prefix_read < PREFIX_LENGTH {
            let Some(&byte) = bytes.get(read) else {
                return read;
            };
            // The flags are read first. The four bytes of the length shift them out.
            self.remaining = self.remaining << 8 | u32::from(byte);
            self.prefix_read += 1;
            read += 1;
        }
        let content = bytes.len() - read;
        match u32::try_from(content) {
            Ok(content) if content < self.remaining => {
                self.remaining -= content;
                bytes.len()
            }
            _ => {
                let read = read + self.remaining as usize;
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

    /// Encodes a message of this length. Its content could be taken for a prefix.
    fn message(length: usize, flag: u8) -> Vec<u8> {
        let mut message = vec![flag];
        message.extend((length as u32).to_be_bytes());
        message.extend((0..length).map(|at| (at % 3) as u8));
        message
    }

    /// Returns where messages begin when they arrive in these pieces.
    fn beginnings<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<usize> {
        let (mut boundaries, mut beginnings, mut at) =
            (MessageBoundaries::default(), Vec::new(), 0);
        for mut piece in pieces {
            while !piece.is_empty() {
                if boundaries.is_at_start() {
                    beginnings.push(at);
                }
                let read = boundaries.advance(piece);
                assert!(
                    (1..=piece.len()).contains(&read),
                    "{read} of {}",
                    piece.len()
                );
                at += read;
                piece = &piece[read..];
            }
        }
        beginnings
    }

    proptest! {
        #[test]
        fn messages_are_found_in_pieces_of_any_size(
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
        fn no_bytes_make_the_reader_panic_or_stop(pieces in vec(vec(any::<u8>(), 0..30), 0..30)) {
            beginnings(pieces.iter().map(Vec::as_slice));
        }
    }

    #[test]
    fn a_message_of_the_greatest_length_is_one_message() {
        let mut boundaries = MessageBoundaries::default();
        assert_eq!(boundaries.advance(&[0, 0xff, 0xff, 0xff, 0xff]), 5);
        assert!(!boundaries.is_at_start());
        assert_eq!(boundaries.advance(&[0; 1000]), 1000);
        assert!(!boundaries.is_at_start());
    }
}
