use std::{
    fmt::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

/// Whose quota is spent.
///
/// A key is built from parts, and two keys are equal only when they were built from equal parts:
/// `("ab", "c")` is not `("a", "bc")`, the text `"7"` is not the number `7`. Any bytes are safe,
/// of any length. A key is stored as readable text of at most 64 bytes; what would be longer
/// becomes a digest (SHA-256, 160 bits of it).
///
/// ```
/// use tollgate::Key;
///
/// let key = Key::new("tenant 42").join("/export").join(7_u64);
/// assert_eq!(key, Key::from(("tenant 42", "/export", 7_u64)));
/// assert_eq!(key.encoded(), "tenant%2042,/export,#7");
/// ```
///
/// The text never holds a brace or a control character, so nobody who chooses a part can choose
/// the Redis Cluster slot. Secrets have no place in it: see [`Key::secret`].
///
/// Neither `Debug` nor any error message of this crate shows a key.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(SmallVec<[u8; KEY_BYTES]>);

/// Beyond this a key becomes a digest, so it never leaves its inline buffer.
const KEY_BYTES: usize = 64;

type Buffer = SmallVec<[u8; 2 * KEY_BYTES]>;

impl Key {
    /// A key of one part.
    #[must_use]
    pub fn new(part: impl Into<Self>) -> Self {
        part.into()
    }

    /// This key and a further part. A key of several parts is joined as one part.
    #[must_use]
    pub fn join(self, part: impl Into<Self>) -> Self {
        let part = part.into();
        let mut text = Buffer::from_slice(&self.0);
        text.push(b',');
        if part.is_joined() {
            text.push(b'(');
            text.extend_from_slice(&part.0);
            text.push(b')');
        } else {
            text.extend_from_slice(&part.0);
        }
        Self::from_text(&text)
    }

    /// A part of any bytes.
    #[must_use]
    pub fn bytes(part: &[u8]) -> Self {
        // Nearly every part is short and stands for itself.
        if (1..=KEY_BYTES).contains(&part.len()) && part.iter().all(|&byte| is_plain(byte)) {
            return Self(SmallVec::from_slice(part));
        }
        let mut text = Buffer::new();
        if part.is_empty() {
            text.push(b'%');
        }
        for &byte in part {
            if is_plain(byte) {
                text.push(byte);
            } else {
                text.push(b'%');
                text.extend_from_slice(&hex(byte));
            }
        }
        Self::from_text(&text)
    }

    /// The network of an address: the first `prefix` bits. An IPv4-mapped IPv6 address is its IPv4
    /// address; a prefix longer than the address is the whole address.
    ///
    /// ```
    /// use tollgate::Key;
    ///
    /// let one = Key::network("2001:db8::1".parse().unwrap(), 64);
    /// let two = Key::network("2001:db8::ffff:2".parse().unwrap(), 64);
    /// assert_eq!(one, two);
    /// assert_eq!(one.encoded(), "*2001:db8::/64");
    /// ```
    #[must_use]
    pub fn network(address: IpAddr, prefix: u8) -> Self {
        let mut text = Text(Buffer::new());
        let (masked, width) = match address.to_canonical() {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
                (IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask)), 32)
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
                (IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask)), 128)
            }
        };
        // Writing to a buffer in memory does not fail.
        let _ = write!(text, "*{masked}");
        if prefix < width {
            let _ = write!(text, "/{prefix}");
        }
        Self::from_text(&text.0)
    }

    /// A secret as a part: the store sees only a keyed digest of it (HMAC-SHA-256, 160 bits).
    ///
    /// ```
    /// use tollgate::{Key, Secret};
    ///
    /// let pepper = Secret::new(b"from the deployment's own configuration");
    /// let key = Key::secret("sk_live_51H8", &pepper);
    /// assert_eq!(key, Key::secret("sk_live_51H8", &pepper));
    /// assert_ne!(key, Key::secret("sk_live_51H8", &Secret::new(b"another deployment")));
    /// assert!(!key.encoded().contains("sk_live"));
    /// ```
    #[must_use]
    pub fn secret(part: impl AsRef<[u8]>, secret: &Secret) -> Self {
        let mut mac = secret.0.clone();
        mac.update(part.as_ref());
        let mut text = Buffer::new();
        text.push(b'~');
        for &byte in &mac.finalize().into_bytes()[..20] {
            text.extend_from_slice(&hex(byte));
        }
        Self::from_text(&text)
    }

    /// The text that stands for the key in the store: printable ASCII without braces, 1 to 64
    /// bytes.
    #[must_use]
    pub fn encoded(&self) -> &str {
        // Only ASCII is ever pushed.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn is_joined(&self) -> bool {
        self.0.contains(&b',')
    }

    fn from_text(text: &[u8]) -> Self {
        if text.len() <= KEY_BYTES {
            return Self(SmallVec::from_slice(text));
        }
        let mut digest = SmallVec::new();
        digest.push(b'!');
        for &byte in &Sha256::digest(text)[..20] {
            digest.extend_from_slice(&hex(byte));
        }
        Self(digest)
    }
}

/// Bytes that stand for themselves. The others, among them everything that has a meaning in the
/// encoded text (`, ( ) % * # ~ !`) or to Redis (`{ }`), are written as `%` and two hex digits.
fn is_plain(byte: u8) -> bool {
    const PLAIN: [bool; 256] = {
        let mut plain = [false; 256];
        let mut byte = 0;
        while byte < 256 {
            plain[byte] = (byte as u8).is_ascii_alphanumeric();
            byte += 1;
        }
        let marks = b"-_./:@+=|$&;?";
        let mut at = 0;
        while at < marks.len() {
            plain[marks[at] as usize] = true;
            at += 1;
        }
        plain
    };
    PLAIN[usize::from(byte)]
}

fn hex(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

struct Text(Buffer);

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// The key of the digests that stand for secrets: random, the same in all replicas, kept with the
/// deployment's other secrets.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

impl Secret {
    /// A secret of any length; 32 random bytes are right.
    #[must_use]
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        match Hmac::new_from_slice(bytes.as_ref()) {
            Ok(mac) => Self(mac),
            Err(_) => unreachable!("HMAC takes a key of any length"),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl From<&Self> for Key {
    fn from(key: &Self) -> Self {
        key.clone()
    }
}

impl From<&str> for Key {
    fn from(part: &str) -> Self {
        Self::bytes(part.as_bytes())
    }
}

impl From<String> for Key {
    fn from(part: String) -> Self {
        Self::bytes(part.as_bytes())
    }
}

impl From<&String> for Key {
    fn from(part: &String) -> Self {
        Self::bytes(part.as_bytes())
    }
}

impl From<&[u8]> for Key {
    fn from(part: &[u8]) -> Self {
        Self::bytes(part)
    }
}

impl From<u64> for Key {
    fn from(part: u64) -> Self {
        let mut text = Text(Buffer::new());
        // Writing to a buffer in memory does not fail.
        let _ = write!(text, "#{part}");
        Self::from_text(&text.0)
    }
}

impl From<u32> for Key {
    fn from(part: u32) -> Self {
        Self::from(u64::from(part))
    }
}

impl From<IpAddr> for Key {
    /// The whole address; an IPv4-mapped IPv6 address is its IPv4 address. Clients of an IPv6
    /// network have many: see [`Key::network`].
    fn from(address: IpAddr) -> Self {
        Self::network(address, 128)
    }
}

impl<A: Into<Self>, B: Into<Self>> From<(A, B)> for Key {
    fn from((a, b): (A, B)) -> Self {
        a.into().first().join(b)
    }
}

impl<A: Into<Self>, B: Into<Self>, C: Into<Self>> From<(A, B, C)> for Key {
    fn from((a, b, c): (A, B, C)) -> Self {
        a.into().first().join(b).join(c)
    }
}

impl<A: Into<Self>, B: Into<Self>, C: Into<Self>, D: Into<Self>> From<(A, B, C, D)> for Key {
    fn from((a, b, c, d): (A, B, C, D)) -> Self {
        a.into().first().join(b).join(c).join(d)
    }
}

impl Key {
    /// This key as the first element of a tuple: several parts stay one element.
    fn first(self) -> Self {
        if !self.is_joined() {
            return self;
        }
        let mut text = Buffer::new();
        text.push(b'(');
        text.extend_from_slice(&self.0);
        text.push(b')');
        Self::from_text(&text)
    }
}

#[cfg(test)]
mod tests;
