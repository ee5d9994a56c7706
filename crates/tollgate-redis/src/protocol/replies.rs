//! Bounds the length of replies while they arrive, so that no server can fill the memory.
//! What a reply means is read elsewhere, by the client library and the other files of this folder.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::error::StreamError;
use tollgate_core::{ErrorKind, raw::TAG_BYTES};

/// The memory that a value takes beside its bytes, rounded up. Every value of a reply counts as so
/// many bytes more: an array of a million empty values has three bytes for each.
const VALUE: usize = 64;

/// The longest reply, its values included: twice the 8 000 numbers that a script packs into one
/// text at most.
const LONGEST_REPLY: usize = 128 * 1024;

/// The longest element in a list of entries: its time, its tag, and the lines around them.
const ENTRY: usize = VALUE + size_of::<f64>() + TAG_BYTES + 16;

/// The longest list of slots: a range for each slot, with three servers. A list of a healthy
/// cluster is far shorter.
const SLOTS: usize = super::hash_slot::SLOTS * 2 * 1024;

/// The longest reports of a group of limits: `spending.lua` bounds the lines and their length.
const REPORTS: usize = 1_024 * 2_048;

/// The longest list of exceptions: the lines of all that a store keeps.
const EXCEPTIONS: usize = 4_096 * 2_048;

/// The lists inside of lists that a reply may have. `CLUSTER SLOTS` and `HELLO` have four.
const DEPTH: usize = 8;

/// The greatest length of a reply of one server. It grows with what the store asks for.
#[derive(Clone, Debug)]
pub(crate) struct ReplyBound(Arc<AtomicUsize>);

impl Default for ReplyBound {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(LONGEST_REPLY)))
    }
}

impl ReplyBound {
    /// Admits lists of so many entries of a log.
    pub(crate) fn admit_entries(&self, count: usize) {
        self.admit(count.saturating_mul(ENTRY));
    }

    /// Admits the reports of so many groups of limits.
    pub(crate) fn admit_reports(&self, groups: usize) {
        self.admit(groups.saturating_mul(REPORTS));
    }

    /// Admits the exceptions of a store.
    pub(crate) fn admit_exceptions(&self) {
        self.admit(EXCEPTIONS);
    }

    /// Admits lists of the slots of a cluster.
    pub(crate) fn admit_slots(&self) {
        self.admit(SLOTS);
    }

    fn admit(&self, bytes: usize) {
        self.0
            .fetch_max(LONGEST_REPLY.saturating_add(bytes), Ordering::Relaxed);
    }
}

/// Follows the replies of a connection, and refuses one that is too long before it is kept.
///
/// The parser of the client library keeps whatever a server announces or sends: a text of 2 GB, a
/// line without an end, an array of a billion values. So this stands in front of it. It reads the
/// lengths alone, and skips the texts.
///
/// A line that is whole and right is read at once. All others are read byte by byte: those that are cut
/// by the end of a read, and those in which there is something to refuse.
///
/// Where it is stricter than the parser, no server writes what it refuses: lengths with signs or
/// spaces, and lines that contain half of a line end.
#[derive(Debug)]
pub(crate) struct ReplyScanner {
    bound: ReplyBound,
    step: ScanStep,
    /// The bytes that the reply may still have.
    left: usize,
    /// The number of values that are still to come, of each list that is open.
    open: [usize; DEPTH],
    depth: usize,
}

/// The part of a value that comes next.
#[derive(Clone, Copy, Debug)]
enum ScanStep {
    /// The byte that shows what kind of value it is.
    Kind,
    /// The rest of the first line. The number in it is read where it is a length.
    Line {
        kind: u8,
        number: usize,
        is_negative: bool,
        ends: bool,
    },
    /// So many bytes of a text, with the line end behind it.
    Text(usize),
}

impl ReplyScanner {
    pub(crate) fn new(bound: ReplyBound) -> Self {
        Self {
            bound,
            step: ScanStep::Kind,
            left: 0,
            open: [0; DEPTH],
            depth: 0,
        }
    }

    /// Takes the next bytes of the connection. Returns the number of replies that end in them.
    ///
    /// # Errors
    ///
    /// A reply is longer than the bound, also by what it only announces, or is no reply.
    pub(crate) fn scan(&mut self, mut bytes: &[u8]) -> io::Result<u64> {
        let mut replies = 0;
        while let [byte, rest @ ..] = bytes {
            match &mut self.step {
                ScanStep::Kind => {
                    if self.depth == 0 {
                        self.left = self.bound.0.load(Ordering::Relaxed);
                    }
                    if let Some(line) = Line::of(*byte, rest)
                        && let Some(left) = self.left.checked_sub(VALUE + line.length)
                    {
                        self.left = left;
                        bytes = &rest[line.length + 1..];
                        replies += self.begin(*byte, line.number, line.is_negative)?;
                        continue;
                    }
                    bytes = rest;
                    self.spend(VALUE)?;
                    self.step = ScanStep::Line {
                        kind: *byte,
                        number: 0,
                        is_negative: false,
                        ends: false,
                    };
                }
                ScanStep::Line {
                    kind,
                    number,
                    is_negative,
                    ends,
                } => {
                    bytes = rest;
                    match (*byte, *ends) {
                        (b'\n', true) => {
                            let (kind, number, is_negative) = (*kind, *number, *is_negative);
                            replies += self.begin(kind, number, is_negative)?;
                            continue;
                        }
                        (b'\r', false) => *ends = true,
                        (b'\n', false) | (_, true) => return Err(invalid()),
                        _ if !has_length(*kind) => {}
                        (digit @ b'0'..=b'9', _) => {
                            *number = number
                                .saturating_mul(10)
                                .saturating_add(usize::from(digit - b'0'));
                        }
                        (b'-', _) if *number == 0 => *is_negative = true,
                        _ => return Err(invalid()),
                    }
                    self.spend(1)?;
                }
                ScanStep::Text(left) => {
                    let taken = (*left).min(bytes.len());
                    bytes = &bytes[taken..];
                    *left -= taken;
                    if *left == 0 {
                        replies += self.end();
                    }
                }
            }
        }
        Ok(replies)
    }

    /// Begins what follows the first line of a value. Returns the number of replies that end with
    /// this line.
    fn begin(&mut self, kind: u8, number: usize, is_negative: bool) -> io::Result<u64> {
        let values = match kind {
            b'$' | b'=' | b'!' if !is_negative => {
                self.spend(number)?;
                self.step = ScanStep::Text(number + 2);
                return Ok(0);
            }
            b'*' | b'~' | b'>' if !is_negative => number,
            b'%' if !is_negative => number.saturating_mul(2),
            // What the attributes are about comes behind them.
            b'|' if !is_negative => number.saturating_mul(2).saturating_add(1),
            b'$' | b'*' | b'~' | b'>' | b'+' | b'-' | b':' | b',' | b'(' | b'#' | b'_' => 0,
            _ => return Err(invalid()),
        };
        if values == 0 {
            return Ok(self.end());
        }
        if self.left / VALUE < values || self.depth == DEPTH {
            return Err(too_long());
        }
        self.open[self.depth] = values;
        self.depth += 1;
        self.step = ScanStep::Kind;
        Ok(0)
    }

    /// Ends a value, and the lists that end with it. Returns 1 at the end of a reply, and 0
    /// otherwise.
    fn end(&mut self) -> u64 {
        self.step = ScanStep::Kind;
        while let Some(last) = self.depth.checked_sub(1) {
            self.open[last] -= 1;
            if self.open[last] > 0 {
                return 0;
            }
            self.depth = last;
        }
        1
    }

    fn spend(&mut self, bytes: usize) -> io::Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(too_long)?;
        Ok(())
    }
}

/// The first line of a value, without the byte of its kind.
struct Line {
    /// The length without the last byte of the line end, as bytes count that come one at a time.
    length: usize,
    number: usize,
    is_negative: bool,
}

impl Line {
    /// Reads the line of a value of this kind. `None` when the bytes do not hold all of it, and when it
    /// is not as a server writes it.
    #[inline]
    fn of(kind: u8, bytes: &[u8]) -> Option<Self> {
        let (mut number, mut is_negative) = (0, false);
        let mut at;
        if has_length(kind) {
            is_negative = bytes.first() == Some(&b'-');
            at = usize::from(is_negative);
            // So few digits that the number fits.
            for byte in bytes[at..].iter().take(9) {
                let digit = byte.wrapping_sub(b'0');
                if digit > 9 {
                    break;
                }
                number = number * 10 + usize::from(digit);
                at += 1;
            }
        } else {
            // No byte below a line end stands in a line, but for tabs.
            at = bytes.iter().position(|byte| *byte <= b'\r')?;
        }
        (bytes.get(at..at + 2) == Some(b"\r\n")).then_some(Self {
            length: at + 1,
            number,
            is_negative,
        })
    }
}

/// Returns whether the first line of a value of this kind is a length.
fn has_length(kind: u8) -> bool {
    matches!(kind, b'$' | b'=' | b'!' | b'*' | b'~' | b'>' | b'%' | b'|')
}

fn too_long() -> io::Error {
    StreamError::error(
        ErrorKind::Protocol,
        "redis sent a reply that is longer than any that the rate limiter asks for",
    )
}

fn invalid() -> io::Error {
    StreamError::error(ErrorKind::Protocol, "redis sent a reply that is not valid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*, sample::select};

    /// Has a reply of every kind.
    const REPLIES: [&[u8]; 24] = [
        b"+OK\r\n",
        b"+\r\n",
        b"-ERR no such key\r\n",
        b":-12\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$4\r\n\r\n+a\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n*1\r\n:1\r\n$3\r\nabc\r\n",
        b"*2\r\n*0\r\n*-1\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5e3\r\n",
        b"(3492890328409238509324850943850943825024385\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"!5\r\nERR x\r\n",
        b"~2\r\n:1\r\n:2\r\n",
        b"%0\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n%1\r\n+c\r\n_\r\n",
        b"|1\r\n+ttl\r\n:5\r\n*1\r\n:1\r\n",
        b"|0\r\n_\r\n",
        b">2\r\n+message\r\n*1\r\n_\r\n",
        b">0\r\n",
    ];

    /// Returns the number of replies in the bytes, which come in parts of `step`.
    fn scanned(bytes: &[u8], step: usize) -> Result<u64, String> {
        let mut scanner = ReplyScanner::new(ReplyBound::default());
        bytes
            .chunks(step)
            .map(|part| scanner.scan(part).map_err(|error| error.to_string()))
            .sum()
    }

    #[test]
    fn every_kind_of_reply_is_counted_once_however_it_is_cut() {
        for reply in REPLIES {
            redis::parse_redis_value(reply).unwrap_or_else(|error| panic!("{reply:?}: {error}"));
        }
        let all = REPLIES.concat();
        for step in [1, 2, 3, 7, all.len()] {
            assert_eq!(
                scanned(&all, step),
                Ok(REPLIES.len() as u64),
                "in parts of {step}"
            );
        }
        // Each beginning of a reply is none yet.
        for reply in REPLIES {
            for end in 0..reply.len() {
                assert_eq!(scanned(&reply[..end], 3), Ok(0), "{:?}", &reply[..end]);
            }
        }
    }

    #[test]
    fn a_reply_beyond_the_bound_is_refused_before_it_is_kept() {
        let within = [
            format!("${}\r\n", LONGEST_REPLY - 2 * VALUE),
            format!("*{}\r\n", (LONGEST_REPLY - VALUE - 16) / VALUE),
        ];
        for reply in within {
            assert_eq!(scanned(reply.as_bytes(), 9), Ok(0), "{reply}");
        }
        for length in ["131073", "2000000000", "99999999999999999999999999"] {
            for kind in ["$", "=", "!", "*", "~", ">", "%", "|"] {
                let error = scanned(format!("{kind}{length}\r\n").as_bytes(), 4).expect_err(kind);
                assert!(error.contains("longer"), "{kind}{length}: {error}");
            }
        }
        // What is not announced is counted.
        let endless =
            ["+", "-", ":", "(", ",", "$"].map(|kind| kind.to_owned() + &"0".repeat(LONGEST_REPLY));
        let empty =
            format!("*{}\r\n", LONGEST_REPLY / VALUE - 9) + &"_\r\n".repeat(LONGEST_REPLY / VALUE);
        let nested = ["*1\r\n", "%1\r\n", "|0\r\n"].map(|list| list.repeat(DEPTH + 1));
        for reply in endless.into_iter().chain([empty]).chain(nested) {
            let error = scanned(reply.as_bytes(), 1_000).expect_err(&reply[..8]);
            assert!(error.contains("longer"), "{}: {error}", &reply[..8]);
        }
    }

    #[test]
    fn what_no_server_writes_is_refused() {
        for reply in [
            "HTTP/1.1 400\r\n",
            "!-1\r\n",
            "=-1\r\n",
            "%-1\r\n",
            "|-1\r\n",
            "$+1\r\n",
            "* 1\r\n",
            "+a\nb\r\n",
            "+a\rb\r\n",
        ] {
            assert!(
                scanned(reply.as_bytes(), 5)
                    .expect_err(reply)
                    .contains("not valid"),
                "{reply:?}"
            );
        }
    }

    #[test]
    fn the_bound_grows_with_what_is_asked_for_and_holds_for_each_reply_alone() {
        let bound = ReplyBound::default();
        let mut scanner = ReplyScanner::new(bound.clone());
        let entry = [b"$72\r\n".as_slice(), &[b'x'; 72], b"\r\n"].concat();
        let list = |count: usize| {
            [
                b"*2\r\n:1700000000000000\r\n*".as_slice(),
                format!("{count}\r\n").as_bytes(),
                &entry.repeat(count),
            ]
            .concat()
        };
        assert!(scanner.scan(&list(2_000)).is_err());
        bound.admit_entries(100_000);
        let mut scanner = ReplyScanner::new(bound);
        for _ in 0..3 {
            assert_eq!(scanner.scan(&list(100_000)).expect("within the bound"), 1);
        }
        let mut scanner = ReplyScanner::new(ReplyBound::default());
        let text = [
            format!("${}\r\n", LONGEST_REPLY / 2).as_bytes(),
            &vec![b'x'; LONGEST_REPLY / 2],
            b"\r\n",
        ]
        .concat();
        for _ in 0..9 {
            assert_eq!(scanner.scan(&text).expect("within the bound"), 1);
        }
    }

    /// Makes streams of replies, of beginnings of them, and of what no server writes.
    fn streams() -> impl Strategy<Value = Vec<u8>> {
        let kinds = select(b"$=!*~>%|+-:,(#_H".as_slice());
        let any = select(b"$*:+-_0123456789\r\n\t a".as_slice());
        let number = select(vec![
            "",
            "-",
            "-1",
            "--1",
            "0-1",
            "+1",
            "987654321",
            "1234567890123456",
        ]);
        let line = (kinds.clone(), 0..40_u8)
            .prop_map(|(kind, number)| [&[kind], format!("{number}\r\n").as_bytes()].concat());
        let odd = (
            kinds,
            number,
            select(vec!["\r\n", "\n", "\r", "\r\r\n", " \r\n"]),
        )
            .prop_map(|(kind, number, end)| [&[kind], number.as_bytes(), end.as_bytes()].concat());
        let part = prop_oneof![
            4 => select(REPLIES.as_slice()).prop_map(<[u8]>::to_vec),
            4 => line,
            1 => odd,
            1 => vec(any, 0..6),
        ];
        vec(part, 0..12).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        /// The reference is the scanner itself: of bytes that come one at a time, no line is whole.
        #[test]
        fn whole_lines_are_read_as_their_bytes_are(
            stream in streams(),
            bound in 60..900_usize,
            sizes in vec(1..40_usize, 1..9),
        ) {
            let scanner = || ReplyScanner::new(ReplyBound(Arc::new(AtomicUsize::new(bound))));
            let text = |error: io::Error| error.to_string();
            let mut by_byte = scanner();
            let counts: Vec<Result<u64, String>> = stream
                .iter()
                .scan(Some(0), |count, byte| {
                    let before = (*count)?;
                    let now = by_byte.scan(&[*byte]).map(|more| before + more).map_err(text);
                    *count = now.as_ref().ok().copied();
                    Some(now)
                })
                .collect();
            let (mut scanner, mut at, mut count) = (scanner(), 0, 0);
            for size in sizes.into_iter().cycle() {
                let end = stream.len().min(at + size);
                let refused = counts[..counts.len().min(end)].iter().find_map(|count| count.as_ref().err());
                match scanner.scan(&stream[at..end]).map_err(text) {
                    Err(error) => {
                        prop_assert_eq!(refused, Some(&error));
                        break;
                    }
                    Ok(more) => count += more,
                }
                prop_assert_eq!(refused, None);
                let expected = end.checked_sub(1).map_or(Ok(0), |last| counts[last].clone());
                prop_assert_eq!(Ok(count), expected);
                at = end;
                if end == stream.len() {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_line_is_whole_with_its_end_and_right_without_other_control_characters() {
        let read = |kind, bytes: &[u8]| {
            Line::of(kind, bytes).map(|line| (line.length, line.number, line.is_negative))
        };
        assert_eq!(read(b'*', b"12\r\n:1\r\n"), Some((3, 12, false)));
        assert_eq!(read(b'$', b"-1\r\n"), Some((3, 1, true)));
        assert_eq!(read(b':', b"1700000000000000\r\n"), Some((17, 0, false)));
        for bytes in ["12", "12\r", "12\n", "1\r2\r\n", "1234567890\r\n", "1 \r\n"] {
            assert_eq!(read(b'*', bytes.as_bytes()), None, "{bytes:?}");
        }
        for bytes in ["ab", "ab\r", "a\nb\r\n", "a\tb\r\n"] {
            assert_eq!(read(b'+', bytes.as_bytes()), None, "{bytes:?}");
        }
    }
}
