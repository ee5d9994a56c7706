//! The bound of what a server sends: of each message, and of each reply. No text is read here, and
//! no stream is.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio_postgres::types::Type;
use tollgate_core::ErrorKind;

use crate::error::Known;

/// The memory that a message takes beside its bytes, rounded up. Every message of a reply counts as
/// so many bytes more: a row without columns has seven.
const MESSAGE: usize = 128;

/// The longest reply before the store has asked for states: what a session begins with, the answer
/// about the table, an error.
const MAX_REPLY: usize = 128 * 1024;

/// The longest reply to a read of states: a batch is far shorter, but processes tell each other of
/// their limits and their customers in a few long values.
const STATES: usize = 8 * 1024 * 1024;

/// The longest state of an algorithm other than a log, with the memory around it.
const STATE: usize = 2 * 1024;

/// The longest message of those that are held back until they are whole.
const HELD: usize = 64 * 1024;

/// What the client library keeps of settings as long as the connection lives. A server reports some
/// fifteen of them, and again what changes.
const SETTINGS: usize = 1024 * 1024;

/// Bytes in front of a message: its kind, and its length, which counts itself.
const HEAD: usize = 5;

pub(crate) const TOO_LONG: Known = Known {
    kind: ErrorKind::Protocol,
    words: "postgres sent a reply that is longer than any that the rate limiter asks for",
};

pub(crate) const NOT_VALID: Known = Known {
    kind: ErrorKind::Protocol,
    words: "postgres sent a message that is not valid",
};

pub(crate) const OTHER_TYPE: Known = Known {
    kind: ErrorKind::Protocol,
    words: "postgres described values of a type that is not built in",
};

/// The greatest length of a reply on the connections of a store. It grows with what the store asks
/// for.
#[derive(Clone, Debug)]
pub(crate) struct ReplyBound(Arc<Bound>);

#[derive(Debug)]
struct Bound {
    reply: AtomicUsize,
    /// The longest value that the store was announced.
    value: AtomicUsize,
}

impl Default for ReplyBound {
    fn default() -> Self {
        Self(Arc::new(Bound {
            reply: AtomicUsize::new(MAX_REPLY),
            value: AtomicUsize::new(STATE),
        }))
    }
}

impl ReplyBound {
    /// Notes that a value may have so many bytes.
    pub(crate) fn expect(&self, bytes: usize) {
        self.0
            .value
            .fetch_max(STATE.saturating_add(bytes), Ordering::Relaxed);
    }

    /// Admits a reply with so many values.
    pub(crate) fn admit(&self, values: usize) {
        let each = self.0.value.load(Ordering::Relaxed);
        self.admit_bytes(values.saturating_mul(each));
    }

    /// Admits a reply with values of so many bytes together.
    pub(crate) fn admit_bytes(&self, bytes: usize) {
        self.0
            .reply
            .fetch_max(STATES.saturating_add(bytes), Ordering::Relaxed);
    }

    fn reply(&self) -> usize {
        self.0.reply.load(Ordering::Relaxed)
    }
}

/// Follows the messages of a connection, and refuses one before it is kept.
///
/// The client library keeps whatever a server announces or sends: a message of 2 GB, notices
/// without an end before the session has begun, settings with ever new names. It asks the server
/// for every type that is not built in, and for the types in that one, until its stack is full. So
/// this stands in front of it. It reads lengths and types alone.
#[derive(Debug)]
pub(crate) struct MessageScanner {
    bound: ReplyBound,
    /// The bytes of the message that are still to come.
    body: usize,
    /// The bytes of the reply so far.
    spent: usize,
    /// The bytes of all reports of settings so far.
    settings: usize,
    /// The number of the server's process, once it is known.
    pub(crate) process: Option<i32>,
}

impl MessageScanner {
    pub(crate) fn new(bound: ReplyBound) -> Self {
        Self {
            bound,
            body: 0,
            spent: 0,
            settings: 0,
            process: None,
        }
    }

    /// Looks at the next bytes of the connection. Returns how many of them the client library may
    /// have, and why it may not have what follows them. The rest is to be shown again, with more.
    pub(crate) fn scan(&mut self, bytes: &[u8]) -> (usize, Result<(), Known>) {
        let mut passed = 0;
        loop {
            let body = self.body.min(bytes.len() - passed);
            (passed, self.body) = (passed + body, self.body - body);
            let rest = &bytes[passed..];
            let Some(&[kind, ref length @ ..]) = rest.first_chunk::<HEAD>() else {
                return (passed, Ok(()));
            };
            // The length counts itself.
            let length = u32::from_be_bytes(*length) as usize;
            match self.begin(kind, length, rest) {
                Ok(true) => (passed, self.body) = (passed + HEAD, length - (HEAD - 1)),
                Ok(false) => return (passed, Ok(())),
                Err(refusal) => return (passed, Err(refusal)),
            }
        }
    }

    /// Begins a message, of which `rest` has the first bytes. Returns whether the client library may
    /// have it: not before its types were read, if it has any.
    fn begin(&mut self, kind: u8, length: usize, rest: &[u8]) -> Result<bool, Known> {
        if length < HEAD - 1 || !is_known(kind) {
            return Err(NOT_VALID);
        }
        if matches!(kind, b'K' | b'T' | b't') {
            if length > HELD {
                return Err(TOO_LONG);
            }
            let Some(body) = rest.get(HEAD..=length) else {
                return Ok(false);
            };
            match kind {
                b'K' => {
                    self.process = body.first_chunk().map(|number| i32::from_be_bytes(*number));
                }
                b'T' => types(body, column)?,
                _ => types(body, number)?,
            }
        }
        let bytes = MESSAGE.saturating_add(length);
        self.spent = self.spent.saturating_add(bytes);
        if kind == b'S' {
            self.settings = self.settings.saturating_add(bytes);
        }
        if self.spent > self.bound.reply() || self.settings > SETTINGS {
            return Err(TOO_LONG);
        }
        // The reply ends, and the server waits for the next statement.
        if kind == b'Z' {
            self.spent = 0;
        }
        Ok(true)
    }
}

/// Returns whether the store expects messages of this kind. Nothing is copied.
fn is_known(kind: u8) -> bool {
    matches!(
        kind,
        b'1' | b'2'
            | b'3'
            | b'A'
            | b'C'
            | b'D'
            | b'E'
            | b'I'
            | b'K'
            | b'N'
            | b'R'
            | b'S'
            | b'T'
            | b'Z'
            | b'n'
            | b's'
            | b't'
    )
}

/// Looks at the types that a message describes. `next` takes one description off its bytes.
fn types(body: &[u8], next: impl Fn(&[u8]) -> Option<(u32, &[u8])>) -> Result<(), Known> {
    let (count, mut rest) = body.split_first_chunk().ok_or(NOT_VALID)?;
    for _ in 0..u16::from_be_bytes(*count) {
        let (number, after) = next(rest).ok_or(NOT_VALID)?;
        if Type::from_oid(number).is_none() {
            return Err(OTHER_TYPE);
        }
        rest = after;
    }
    match rest {
        [] => Ok(()),
        _ => Err(NOT_VALID),
    }
}

/// Takes the number of a type.
fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*number), rest))
}

/// Takes a column: its name and a zero, its table and its place there, its type, three numbers more.
fn column(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let name = bytes.iter().position(|byte| *byte == 0)?;
    let (number, rest) = number(bytes.get(name + 1 + 4 + 2..)?)?;
    Some((number, rest.get(2 + 4 + 2..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32 + 4).to_be_bytes();
        [&[kind], &length[..], body].concat()
    }

    /// Announces a message without its bytes.
    fn announced(kind: u8, length: u32) -> Vec<u8> {
        [&[kind], &length.to_be_bytes()[..]].concat()
    }

    fn columns(types: &[u32]) -> Vec<u8> {
        let mut body = (types.len() as u16).to_be_bytes().to_vec();
        for number in types {
            body.extend(b"name\0\0\0\0\0\0\0");
            body.extend(number.to_be_bytes());
            body.extend([0; 8]);
        }
        message(b'T', &body)
    }

    fn parameters(types: &[u32]) -> Vec<u8> {
        let mut body = (types.len() as u16).to_be_bytes().to_vec();
        types
            .iter()
            .for_each(|number| body.extend(number.to_be_bytes()));
        message(b't', &body)
    }

    /// Shows the bytes in parts of `step`, as they come. Returns those that were passed.
    fn passed(scanner: &mut MessageScanner, bytes: &[u8], step: usize) -> Result<Vec<u8>, Known> {
        let (mut shown, mut passed) = (Vec::new(), Vec::new());
        for part in bytes.chunks(step) {
            shown.extend(part);
            let (count, outcome) = scanner.scan(&shown);
            passed.extend(shown.drain(..count));
            outcome?;
        }
        Ok(passed)
    }

    fn scanner() -> MessageScanner {
        MessageScanner::new(ReplyBound::default())
    }

    #[test]
    fn what_a_server_sends_passes_however_it_is_cut() {
        let session = [
            message(b'R', &[0; 4]),
            message(b'S', b"server_version\x0017.2\0"),
            message(b'K', &[0, 0, 0, 77, 1, 2, 3, 4]),
            message(b'N', b"SNOTICE\0C00000\0Mhello\0\0"),
            message(b'Z', b"I"),
            message(b'1', b""),
            parameters(&[1001, 1005, 20]),
            columns(&[20, 1001, 1007, 25, 16]),
            message(b'Z', b"I"),
            message(b'2', b""),
            message(b'D', &[0; 9_000]),
            message(b'C', b"SELECT 1\0"),
            message(b'Z', b"I"),
        ]
        .concat();
        for step in [1, 2, 3, 5, 7, 4_096, session.len()] {
            let mut scanner = scanner();
            assert_eq!(
                passed(&mut scanner, &session, step),
                Ok(session.clone()),
                "in parts of {step}"
            );
            assert_eq!(scanner.process, Some(77));
        }
    }

    #[test]
    fn a_message_beyond_the_bound_is_refused_by_its_head_alone() {
        let within = MAX_REPLY - MESSAGE;
        for kind in [b'R', b'N', b'E', b'D', b'S', b'A', b'C'] {
            let head = announced(kind, within as u32);
            assert_eq!(passed(&mut scanner(), &head, 1), Ok(head), "{kind}");
            for length in [within + 1, 2_000_000_000, u32::MAX as usize] {
                let head = announced(kind, length as u32);
                assert_eq!(passed(&mut scanner(), &head, 1), Err(TOO_LONG), "{length}");
            }
        }
        for kind in [b'T', b't', b'K'] {
            let head = announced(kind, HELD as u32 + 1);
            assert_eq!(passed(&mut scanner(), &head, 1), Err(TOO_LONG), "{kind}");
        }
    }

    #[test]
    fn messages_without_an_end_are_refused_and_each_reply_counts_for_itself() {
        let rows = message(b'D', &[0, 0]).repeat(MAX_REPLY / MESSAGE);
        assert_eq!(passed(&mut scanner(), &rows, 1_000), Err(TOO_LONG));
        let notices = message(b'N', &[b'x'; 500]).repeat(MAX_REPLY / 500);
        assert_eq!(passed(&mut scanner(), &notices, 1_000), Err(TOO_LONG));

        let reply = [message(b'D', &[0; MAX_REPLY / 2]), message(b'Z', b"I")].concat();
        assert!(passed(&mut scanner(), &reply.repeat(50), 5_000).is_ok());
        // The client library keeps settings for as long as it is connected.
        let settings = [message(b'S', &[b'x'; 5_000]), message(b'Z', b"I")].concat();
        assert!(passed(&mut scanner(), &settings.repeat(190), 5_000).is_ok());
        assert_eq!(
            passed(&mut scanner(), &settings.repeat(220), 5_000),
            Err(TOO_LONG)
        );
    }

    #[test]
    fn a_reply_may_be_as_long_as_what_was_asked_for() {
        let bound = ReplyBound::default();
        let reply = announced(b'D', 100_000_000);
        let scan = |bound: &ReplyBound| {
            passed(&mut MessageScanner::new(bound.clone()), &reply, 5).map(drop)
        };
        assert_eq!(scan(&bound), Err(TOO_LONG));
        bound.admit(100);
        assert_eq!(scan(&bound), Err(TOO_LONG));
        bound.expect(1_000_000);
        assert_eq!(scan(&bound), Err(TOO_LONG), "nothing was asked for yet");
        bound.admit(100);
        assert_eq!(scan(&bound), Ok(()));
    }

    #[test]
    fn a_type_that_is_not_built_in_is_refused() {
        for other in [
            columns(&[20, 99_999]),
            parameters(&[99_999]),
            columns(&[u32::MAX]),
        ] {
            for step in [1, 8, other.len()] {
                assert_eq!(passed(&mut scanner(), &other, step), Err(OTHER_TYPE));
            }
        }
    }

    #[test]
    fn what_no_server_writes_is_refused() {
        for bytes in [
            b"HTTP/1.1 400\r\n".to_vec(),
            b"+OK\r\n".to_vec(),
            announced(b'd', 8),
            announced(b'G', 8),
            announced(b'D', 3),
            announced(b'D', 0),
            message(b'T', &[0]),
            message(b'T', &[0, 1, b'x']),
            message(b'T', &[0, 0, 7]),
            message(b't', &[0, 2, 0, 0, 0, 20]),
        ] {
            assert_eq!(passed(&mut scanner(), &bytes, 1), Err(NOT_VALID));
        }
    }
}
