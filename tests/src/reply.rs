//! Reads the replies of a Redis server, in version 2 of its protocol.

use std::io::{self, BufRead};

/// The deepest nesting of a reply.
const DEEPEST: usize = 32;

/// One reply of a Redis server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status such as `OK`.
    Simple(String),
    /// An error; its first word is its kind, such as `NOSCRIPT`.
    Error(String),
    /// A number.
    Int(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// A list.
    Array(Vec<Self>),
    /// No value: a key that does not exist.
    Nil,
}

impl Reply {
    /// Returns whether the reply is an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }

    /// Returns whether the reply is no value.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }

    /// Returns the text of a status, an error or a string, or the digits of a number.
    ///
    /// # Panics
    ///
    /// When the reply is a list or no value.
    #[must_use]
    #[track_caller]
    pub fn text(&self) -> String {
        match self {
            Self::Simple(text) | Self::Error(text) => text.clone(),
            Self::Int(number) => number.to_string(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Array(_) | Self::Nil => panic!("{self:?} is no text"),
        }
    }

    /// Returns a number, or a string that is one.
    ///
    /// # Panics
    ///
    /// When the reply is neither.
    #[must_use]
    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            Self::Bulk(bytes) => std::str::from_utf8(bytes)
                .ok()
                .and_then(|digits| digits.parse().ok())
                .unwrap_or_else(|| panic!("{self:?} is no number")),
            _ => panic!("{self:?} is no number"),
        }
    }

    /// Returns the bytes of a string.
    ///
    /// # Panics
    ///
    /// When the reply is no string.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bulk(bytes) => bytes,
            _ => panic!("{self:?} is no string of bytes"),
        }
    }

    /// Returns the items of a list.
    ///
    /// # Panics
    ///
    /// When the reply is no list.
    #[must_use]
    #[track_caller]
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            _ => panic!("{self:?} is no list"),
        }
    }

    /// Reads one reply.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the connection ends before the reply does, `InvalidData` when it is not
    /// a reply.
    pub fn read(from: &mut impl BufRead) -> io::Result<Self> {
        read(from, 0)
    }
}

fn read(from: &mut impl BufRead, depth: usize) -> io::Result<Reply> {
    if depth > DEEPEST {
        return Err(invalid("a reply nested too deeply"));
    }
    let line = line(from)?;
    let Some((kind, rest)) = line.split_at_checked(1) else {
        return Err(invalid("an empty line instead of a reply"));
    };
    match kind {
        "+" => Ok(Reply::Simple(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        ":" => Ok(Reply::Int(number(rest)?)),
        "$" => match length(rest)? {
            Some(length) => bulk(from, length),
            None => Ok(Reply::Nil),
        },
        "*" => match length(rest)? {
            Some(length) => (0..length)
                .map(|_| read(from, depth + 1))
                .collect::<io::Result<_>>()
                .map(Reply::Array),
            None => Ok(Reply::Nil),
        },
        _ => Err(invalid("a reply of an unknown kind")),
    }
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\r\n") {
        Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
        None if line.ends_with(b"\n") => Err(invalid("a line without a carriage return")),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn bulk(from: &mut impl BufRead, length: usize) -> io::Result<Reply> {
    let mut bytes = vec![0; length + 2];
    from.read_exact(&mut bytes)?;
    if bytes.split_off(length) == b"\r\n" {
        Ok(Reply::Bulk(bytes))
    } else {
        Err(invalid("a string longer than it says"))
    }
}

#[inline]
fn number(digits: &str) -> io::Result<i64> {
    digits.parse().map_err(|_| invalid("a number that is none"))
}

/// `-1` stands for nothing.
#[inline]
fn length(digits: &str) -> io::Result<Option<usize>> {
    match number(digits)? {
        -1 => Ok(None),
        length => usize::try_from(length)
            .map(Some)
            .map_err(|_| invalid("a length below nothing")),
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(mut bytes: &[u8]) -> io::Result<Reply> {
        Reply::read(&mut bytes)
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        let replies: [(&[u8], Reply); 7] = [
            (b"+OK\r\n", Reply::Simple("OK".into())),
            (b"-ERR no\r\n", Reply::Error("ERR no".into())),
            (b":-7\r\n", Reply::Int(-7)),
            (b"$4\r\na\r\nb\r\n", Reply::Bulk(b"a\r\nb".to_vec())),
            (b"$-1\r\n", Reply::Nil),
            (b"*-1\r\n", Reply::Nil),
            (b"*2\r\n:1\r\n*1\r\n+a\r\n", {
                Reply::Array(vec![
                    Reply::Int(1),
                    Reply::Array(vec![Reply::Simple("a".into())]),
                ])
            }),
        ];
        for (bytes, reply) in replies {
            assert_eq!(parse(bytes).expect("it is a reply"), reply);
        }
    }

    #[test]
    fn a_reply_cut_short_is_an_end_of_file() {
        for bytes in [&b""[..], b"+O", b"$4\r\nab", b"*2\r\n:1\r\n"] {
            let error = parse(bytes).expect_err("it is cut short");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn garbage_is_invalid() {
        let nested = b"*1\r\n".repeat(100);
        for bytes in [
            &b"\r\n"[..],
            b"HTTP/1.1\r\n",
            b":x\r\n",
            b"$-2\r\n",
            b"$1\r\nabc",
            b"+a\n",
            &nested,
        ] {
            let error = parse(bytes).expect_err("it is no reply");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{bytes:?}");
        }
    }
}
