//! Cuts the bytes of a body into items: frames as they come, or events of `text/event-stream`.
//! Knows neither limits nor bodies: `body.rs` counts the items.

use bytes::{Bytes, BytesMut};

/// The most bytes of an event that are kept until its end comes. A longer one passes in pieces.
const LONGEST: usize = 1 << 20;

/// Holds the bytes that have come, until an item is whole.
#[derive(Debug)]
pub(crate) enum Items {
    Frames(Bytes),
    Events(EventBuffer),
}

/// Finds the ends of events: a line without a byte. A line ends with LF, CR, or both (HTML, section
/// 9.2.6).
#[derive(Debug, Default)]
pub(crate) struct EventBuffer {
    bytes: BytesMut,
    /// The bytes that were looked at.
    seen: usize,
    /// The line at hand has a byte.
    has_begun: bool,
    /// The byte before was a CR, so that an LF belongs to it.
    is_after_cr: bool,
}

impl Items {
    /// Adds bytes. Empty ones are no item.
    pub(crate) fn push(&mut self, data: Bytes) {
        match self {
            Self::Frames(frame) => *frame = data,
            Self::Events(events) => events.bytes.extend_from_slice(&data),
        }
    }

    /// Takes the next item that is whole.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        match self {
            Self::Frames(_) => self.rest(),
            Self::Events(events) => events.next(),
        }
    }

    /// Takes what is left, after the last byte has come.
    pub(crate) fn rest(&mut self) -> Option<Bytes> {
        let rest = match self {
            Self::Frames(frame) => std::mem::take(frame),
            Self::Events(events) => std::mem::take(events).bytes.freeze(),
        };
        (!rest.is_empty()).then_some(rest)
    }
}

impl EventBuffer {
    fn next(&mut self) -> Option<Bytes> {
        while let Some(&byte) = self.bytes.get(self.seen) {
            self.seen += 1;
            let is_of_cr = std::mem::replace(&mut self.is_after_cr, byte == b'\r') && byte == b'\n';
            let is_end = matches!(byte, b'\r' | b'\n') && !is_of_cr;
            let is_empty_line = is_end && !self.has_begun;
            if !is_of_cr {
                self.has_begun = !is_end;
            }
            if is_empty_line || self.seen == LONGEST {
                // The LF of a last CR is part of the event, if it is here.
                let ends_with_both = self.is_after_cr && self.bytes.get(self.seen) == Some(&b'\n');
                if ends_with_both {
                    self.seen += 1;
                    self.is_after_cr = false;
                }
                let seen = std::mem::take(&mut self.seen);
                return Some(self.bytes.split_to(seen).freeze());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the items of a text that comes in pieces of so many bytes.
    fn events(text: &str, piece: usize) -> Vec<String> {
        let mut items = Items::Events(EventBuffer::default());
        let mut found = Vec::new();
        for piece in text.as_bytes().chunks(piece) {
            items.push(Bytes::copy_from_slice(piece));
            found.extend(std::iter::from_fn(|| items.next()));
        }
        found.extend(items.rest());
        let texts = found
            .iter()
            .map(|item| String::from_utf8_lossy(item).into_owned());
        texts.collect()
    }

    #[test]
    fn events_end_with_an_empty_line_in_any_pieces() {
        for end in ["\n", "\r\n", "\r"] {
            let lines = [
                "data: one",
                "",
                "event: two",
                "data: 2",
                "",
                ": ping",
                "",
                "data: rest",
            ];
            let text = lines.join(end);
            let whole = [
                format!("data: one{end}{end}"),
                format!("event: two{end}data: 2{end}{end}"),
                format!(": ping{end}{end}"),
                "data: rest".to_owned(),
            ];
            for piece in 1..=text.len() {
                let found = events(&text, piece);
                assert_eq!(found.concat(), text, "{end:?} {piece}");
                if end != "\r\n" || piece == text.len() {
                    assert_eq!(found, whole, "{end:?} {piece}");
                }
                // The LF of a last CR may come late: it then begins the next item.
                let starts: Vec<_> = found.iter().map(|item| item.trim_start()).collect();
                let expected: Vec<_> = whole.iter().map(|item| item.trim_end()).collect();
                let starts: Vec<_> = starts.iter().map(|item| item.trim_end()).collect();
                assert_eq!(starts, expected, "{end:?} {piece}");
            }
        }
    }

    #[test]
    fn an_event_that_does_not_end_passes_in_pieces() {
        let text = "a".repeat(2 * LONGEST + 3);
        let lengths: Vec<_> = events(&text, 1 << 16).iter().map(String::len).collect();
        assert_eq!(lengths, [LONGEST, LONGEST, 3]);
    }
}
