//! Parsers of the lists to which proxies append. They read from the right.
//! Which of the addresses is the client's is decided in `trusted.rs`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{HeaderMap, HeaderName};
use smallvec::SmallVec;

/// The address of an entry, or `None` if the entry is not an address.
type Hop = Option<IpAddr>;

/// Returns the entries of all lines of `X-Forwarded-For`, the last one first. Empty entries are
/// skipped (RFC 9110, section 5.6.1).
pub(super) fn x_forwarded_for<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = Hop> + 'a {
    let lines = headers.get_all(name).into_iter().rev();
    lines
        .flat_map(|line| line.as_bytes().rsplit(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
        .map(address)
}

/// Returns the `for` parameters of all lines of `Forwarded`, the last one first.
pub(super) fn forwarded<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = Hop> + 'a {
    let lines = headers.get_all(name).into_iter().rev();
    lines.flat_map(|line| elements(line.as_bytes()).into_iter().rev())
}

/// Returns the `for` parameters of one line.
///
/// If quotes do not match, the text of the client cannot be separated from the text of the proxy.
/// The whole line then counts as one entry that is not an address.
fn elements(line: &[u8]) -> SmallVec<[Hop; 4]> {
    let mut hops = SmallVec::new();
    let (mut rest, mut element) = (line, Element::default());
    loop {
        let Some((name, value, end)) = pair(&mut rest) else {
            return SmallVec::from_slice(&[None]);
        };
        element.add(name, value);
        if end != Some(b';') {
            hops.extend(std::mem::take(&mut element).hop());
        }
        if end.is_none() {
            return hops;
        }
    }
}

/// Collects the parameters of one element.
#[derive(Default)]
struct Element {
    /// Says that the element is not empty.
    has_content: bool,
    is_malformed: bool,
    address: Option<Hop>,
}

impl Element {
    fn add(&mut self, name: &[u8], value: Option<Hop>) {
        self.has_content |= value.is_some() || !name.is_empty();
        match value {
            // Without `=` the parameter is empty or malformed.
            None => self.is_malformed |= !name.is_empty(),
            Some(hop) if name.eq_ignore_ascii_case(b"for") => {
                self.is_malformed |= self.address.replace(hop).is_some();
            }
            Some(_) => {}
        }
    }

    /// Returns the address, or `None` for an empty element.
    fn hop(self) -> Option<Hop> {
        match self {
            Self {
                is_malformed: false,
                address: Some(hop),
                ..
            } => Some(hop),
            Self {
                has_content: false, ..
            } => None,
            _ => Some(None),
        }
    }
}

/// Removes `name=value` and the separator from the front. Returns the name, the value as an address
/// if there is a `=`, and the separator unless the line ends. Returns `None` if quotes do not
/// match.
fn pair<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], Option<Hop>, Option<u8>)> {
    let is_end = |byte: &u8| matches!(byte, b',' | b';');
    let at = rest
        .iter()
        .position(|byte| matches!(byte, b'=' | b'"') || is_end(byte))
        .unwrap_or(rest.len());
    let name = rest[..at].trim_ascii();
    *rest = &rest[at..];
    let value = match rest.first() {
        Some(b'"') => return None,
        Some(b'=') => {
            *rest = rest[1..].trim_ascii_start();
            if let Some(quoted) = rest.strip_prefix(b"\"") {
                let (text, behind) = unquote(quoted)?;
                *rest = behind.trim_ascii_start();
                if rest.first().is_some_and(|byte| !is_end(byte)) {
                    return None;
                }
                Some(address(&text))
            } else {
                let at = rest.iter().position(is_end).unwrap_or(rest.len());
                let token = &rest[..at];
                if token.contains(&b'"') {
                    return None;
                }
                *rest = &rest[at..];
                Some(address(token))
            }
        }
        _ => None,
    };
    let end = rest.first().copied();
    *rest = rest.get(1..).unwrap_or_default();
    Some((name, value, end))
}

/// Returns the text up to the closing quote, and the rest behind the quote.
fn unquote(quoted: &[u8]) -> Option<(SmallVec<[u8; 64]>, &[u8])> {
    let mut text = SmallVec::new();
    let mut bytes = quoted.iter().enumerate();
    while let Some((at, &byte)) = bytes.next() {
        match byte {
            b'"' => return Some((text, &quoted[at + 1..])),
            b'\\' => text.push(*bytes.next()?.1),
            _ => text.push(byte),
        }
    }
    None
}

/// Parses an address as proxies write it: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`,
/// `[2001:db8::1]`, `[2001:db8::1]:80`. Drops a zone such as `%eth0`, because it has a meaning on
/// one host only.
pub(super) fn address(text: &[u8]) -> Hop {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    if let Some(bracketed) = text.strip_prefix('[') {
        let (inside, behind) = bracketed.split_once(']')?;
        return match behind.strip_prefix(':') {
            Some(port) if is_port(port) => ipv6(inside),
            None if behind.is_empty() => ipv6(inside),
            _ => None,
        };
    }
    match text.split_once(':') {
        None => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        Some((host, port)) if !port.contains(':') => is_port(port)
            .then(|| host.parse::<Ipv4Addr>().ok().map(IpAddr::V4))
            .flatten(),
        Some(_) => ipv6(text),
    }
}

fn ipv6(text: &str) -> Hop {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address
        .parse::<Ipv6Addr>()
        .ok()
        .map(|address| IpAddr::V6(address).to_canonical())
}

/// Returns whether the text is a port or an obfuscated port (RFC 7239, section 6).
fn is_port(text: &str) -> bool {
    let is_hidden = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    };
    match text.strip_prefix('_') {
        Some(name) => is_hidden(name),
        None => (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}
