//! Finds where messages begin in a body.
//!
//! A message has a prefix of five bytes: one byte of flags, then the length of the content in four
//! bytes, big-endian ("Length-Prefixed-Message" of the gRPC protocol).
//! Knows neither limits nor bodies: `body.rs` charges by it, and `counter.rs` counts by it.

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
