//! Reads lines of a bounded length.
//! What stands in a line is read by its format, from `reader.rs` on.

use std::io::{self, BufRead};

/// The longest line that is read, in bytes. The rest of a longer line is dropped.
pub(super) const MAX_BYTES: usize = 64 << 10;

/// Reads lines in bounded memory.
pub(crate) struct Lines<R> {
    reader: R,
    number: u64,
    line: Vec<u8>,
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TraceLine<'a> {
    /// Its bytes, without the end of the line.
    Whole(&'a [u8]),
    /// It is longer than [`MAX_BYTES`].
    TooLong,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader,
            number: 0,
            line: Vec::new(),
        }
    }

    /// Returns the number of the last line, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Reads the next line, and returns `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<TraceLine<'_>>> {
        self.line.clear();
        let (mut is_too_long, mut has_begun) = (false, false);
        loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if chunk.is_empty() {
                if !has_begun {
                    return Ok(None);
                }
                break;
            }
            has_begun = true;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            is_too_long |= self.line.len() + part.len() > MAX_BYTES;
            if !is_too_long {
                self.line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                break;
            }
        }
        self.number += 1;
        if is_too_long {
            return Ok(Some(TraceLine::TooLong));
        }
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        // A mark at the start of a text file.
        let line = if self.number == 1 {
            line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line)
        } else {
            line
        };
        Ok(Some(TraceLine::Whole(line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_dropped_in_bounded_memory() {
        let text = format!("one\r\n{}\n\nlast", "x".repeat(10 << 20));
        let mut lines = Lines::new(io::BufReader::new(text.as_bytes()));
        assert_eq!(lines.next().unwrap(), Some(TraceLine::Whole(b"one")));
        assert_eq!(lines.next().unwrap(), Some(TraceLine::TooLong));
        assert!(lines.line.capacity() <= 2 * MAX_BYTES);
        assert_eq!(lines.next().unwrap(), Some(TraceLine::Whole(b"")));
        assert_eq!(lines.next().unwrap(), Some(TraceLine::Whole(b"last")));
        assert_eq!((lines.number(), lines.next().unwrap()), (4, None));
    }
}
