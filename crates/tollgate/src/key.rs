mod from;
mod secret;
mod tables;
#[cfg(test)]
mod tests;

use std::{
    cmp::Ordering,
    fmt::{self, Write as _},
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use hmac::Mac;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

pub use secret::KeySecret;
use tables::{OCTETS, PLAIN, hex};

/// Identifies the client, tenant or resource whose quota is spent.
///
/// A key is built from one or more parts. Two keys are equal only when they were built from equal
/// parts: `("ab", "c")` differs from `("a", "bc")`, and the text `"7"` from the number `7`. A part
/// may hold any bytes and have any length.
///
/// The store holds a key as readable text of at most 64 bytes. A longer text is replaced by a
/// digest of it: 160 bits of its SHA-256.
///
/// ```
/// use tollgate::Key;
///
/// let key = Key::new("tenant 42").join("/export").join(7_u64);
/// assert_eq!(key, Key::from(("tenant 42", "/export", 7_u64)));
/// assert_eq!(key.encoded(), "tenant%2042,/export,#7");
/// ```
///
/// The text never contains a brace or a control character, so a client that chooses a part cannot
/// choose the slot in a Redis Cluster. Use [`Key::secret`] for API keys and tokens, because
/// everybody with access to the store can read the text.
///
/// Neither `Debug` nor an error message of this crate shows a key.
#[derive(Clone)]
pub struct Key {
    len: u8,
    /// The text, padded with the digit `0`.
    text: [u8; KEY_BYTES],
}

/// The greatest length of a key in bytes. A longer text becomes a digest, so a key never allocates.
const KEY_BYTES: usize = 64;

type Buffer = SmallVec<[u8; 2 * KEY_BYTES]>;

impl Key {
    /// Creates a key of one part.
    ///
    /// The part may be a text, bytes, a number, an address or another key.
    #[must_use]
    pub fn new(part: impl Into<Self>) -> Self {
        part.into()
    }

    /// Appends a part to the key.
    ///
    /// A key of several parts is appended as one part.
    ///
    /// ```
    /// use tollgate::Key;
    ///
    /// let key = Key::new("acme").join("/export");
    /// assert_eq!(key, Key::from(("acme", "/export")));
    /// assert_ne!(Key::new("a").join(("b", "c")), Key::from(("a", "b", "c")));
    /// ```
    #[must_use]
    pub fn join(self, part: impl Into<Self>) -> Self {
        let part = part.into();
        let mut text = Buffer::from_slice(self.as_bytes());
        text.push(b',');
        if part.is_joined() {
            text.push(b'(');
            text.extend_from_slice(part.as_bytes());
            text.push(b')');
        } else {
            text.extend_from_slice(part.as_bytes());
        }
        Self::from_text(&text)
    }

    /// Creates a key of one part from any bytes.
    ///
    /// Bytes other than ASCII letters, digits and a few signs are written as `%` and two hex digits.
    #[must_use]
    pub fn bytes(part: &[u8]) -> Self {
        // Nearly every part is short and needs no escapes.
        let mut key = Self { len: 0, text: [b'0'; KEY_BYTES] };
        if !key.is_plain(part) {
            key = Self::escaped(part);
        }
        key
    }

    /// Creates a key of one part that needs escapes or is too long.
    #[cold]
    fn escaped(part: &[u8]) -> Self {
        let mut text = Buffer::new();
        if part.is_empty() {
            text.push(b'%');
        }
        for &byte in part {
            if PLAIN[usize::from(byte)] {
                text.push(byte);
            } else {
                text.push(b'%');
                text.extend_from_slice(&hex(byte));
            }
        }
        Self::from_text(&text)
    }

    /// Creates a key of the network of an address: its first `prefix` bits.
    ///
    /// Use a prefix of 64 for IPv6 clients: one client often has a whole /64 network and could
    /// otherwise use a new address for each request. An IPv4-mapped IPv6 address counts as its IPv4
    /// address. A prefix longer than the address selects the whole address.
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
    #[inline]
    pub fn network(address: IpAddr, prefix: u8) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) if prefix >= 32 => Self::dotted(v4),
            address => Self::masked(address, prefix),
        }
    }

    /// Creates a key of the first `prefix` bits of an address.
    fn masked(address: IpAddr, prefix: u8) -> Self {
        let v6 = match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                return Self::written(format_args!("*{}/{prefix}", Ipv4Addr::from_bits(v4.to_bits() & mask)));
            }
            IpAddr::V6(v6) => v6,
        };
        let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
        let network = Ipv6Addr::from_bits(v6.to_bits() & mask);
        if prefix < 128 {
            Self::written(format_args!("*{network}/{prefix}"))
        } else {
            Self::written(format_args!("*{network}"))
        }
    }

    /// Creates a key from an API key, a token or another secret.
    ///
    /// The store receives only a keyed digest of `part`: 160 bits of its HMAC-SHA-256 with `secret`.
    ///
    /// ```
    /// use tollgate::{Key, KeySecret};
    ///
    /// let pepper = KeySecret::new(b"from the deployment's own configuration");
    /// let key = Key::secret("sk_live_51H8", &pepper);
    /// assert_eq!(key, Key::secret("sk_live_51H8", &pepper));
    /// assert_ne!(key, Key::secret("sk_live_51H8", &KeySecret::new(b"another deployment")));
    /// assert!(!key.encoded().contains("sk_live"));
    /// ```
    #[must_use]
    pub fn secret(part: impl AsRef<[u8]>, secret: &KeySecret) -> Self {
        let mut mac = secret.mac();
        mac.update(part.as_ref());
        let mut text = Buffer::new();
        text.push(b'~');
        for &byte in &mac.finalize().into_bytes()[..20] {
            text.extend_from_slice(&hex(byte));
        }
        Self::from_text(&text)
    }

    /// Returns a keyed digest of the key: its HMAC-SHA-256 with `secret`.
    ///
    /// Show it to a client in place of the key. A plain hash does not hide an address: all addresses
    /// can be tried. The digest differs from the one that [`Key::secret`] stores.
    ///
    /// ```
    /// use tollgate::{Key, KeySecret};
    ///
    /// let secret = KeySecret::new(b"32 random bytes, from the configuration");
    /// let key = Key::new("192.0.2.7");
    /// assert_eq!(key.digest(&secret), Key::new("192.0.2.7").digest(&secret));
    /// assert_ne!(key.digest(&secret), Key::new("192.0.2.8").digest(&secret));
    /// ```
    #[must_use]
    pub fn digest(&self, secret: &KeySecret) -> [u8; 32] {
        let mut mac = secret.mac();
        // A prefix that keeps this digest apart from the one in the store.
        mac.update(b"digest of a key\0");
        mac.update(self.as_bytes());
        mac.finalize().into_bytes().into()
    }

    /// Returns the text of the key in the store: 1 to 64 bytes of printable ASCII without braces.
    #[must_use]
    pub fn encoded(&self) -> &str {
        // The text is always ASCII, so the conversion cannot fail.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.len).min(KEY_BYTES)]
    }

    /// Returns the first `N` bytes with the padding, when the key is not longer.
    #[inline]
    pub(crate) fn padded<const N: usize>(&self) -> Option<&[u8; N]> {
        if usize::from(self.len) <= N { self.text.first_chunk() } else { None }
    }

    /// Returns `true` when the key has several parts.
    fn is_joined(&self) -> bool {
        let text = self.as_bytes();
        text.contains(&b',') || text.starts_with(b"!!")
    }

    /// Creates a key from a text of at most [`KEY_BYTES`].
    fn of(text: &[u8]) -> Self {
        let mut key = Self { len: text.len() as u8, text: [b'0'; KEY_BYTES] };
        key.text[..text.len()].copy_from_slice(text);
        key
    }

    /// Copies a part into this empty key. Returns `false` when the part is too long or needs escapes. Copying and
    /// testing in one pass is faster than two.
    #[inline]
    fn is_plain(&mut self, part: &[u8]) -> bool {
        if !(1..=KEY_BYTES).contains(&part.len()) {
            return false;
        }
        self.len = part.len() as u8;
        let (words, rest) = part.as_chunks::<8>();
        let (targets, _) = self.text.as_chunks_mut::<8>();
        let mut plain = true;
        for (target, word) in targets.iter_mut().zip(words) {
            *target = *word;
            plain &= word.iter().fold(true, |plain, &byte| plain & PLAIN[usize::from(byte)]);
        }
        for (target, &byte) in targets.iter_mut().skip(words.len()).flatten().zip(rest) {
            *target = byte;
            plain &= PLAIN[usize::from(byte)];
        }
        plain
    }

    /// Creates the key of an IPv4 address. It equals the text of `Display` and takes a fraction of the time, because most
    /// requests are limited by address. The text fits in 16 bytes, which are written at once.
    #[inline]
    fn dotted(address: Ipv4Addr) -> Self {
        // The text is combined as its difference (XOR) from the padding.
        let (mut text, mut len) = (u128::from(b'*' ^ b'.'), 0);
        for octet in address.octets() {
            let (digits, count) = OCTETS[usize::from(octet)];
            text ^= u128::from(digits) << (8 * len);
            len += usize::from(count);
        }
        let mut key = Self { len: len as u8, text: [b'0'; KEY_BYTES] };
        key.text[..16].copy_from_slice(&(text ^ u128::from_ne_bytes([b'0'; 16])).to_le_bytes());
        key
    }

    /// Creates a key of formatted text that needs no escapes.
    fn written(text: fmt::Arguments<'_>) -> Self {
        let mut buffer = Text(Buffer::new());
        // Writing to memory cannot fail.
        let _ = buffer.write_fmt(text);
        Self::from_text(&buffer.0)
    }

    /// Creates a key of encoded text. Text longer than a key becomes a digest.
    fn from_text(text: &[u8]) -> Self {
        if text.len() <= KEY_BYTES {
            return Self::of(text);
        }
        let mut digest = Buffer::new();
        digest.push(b'!');
        // The digest of several parts is marked, so that it differs from a key to which a part is appended.
        if text.contains(&b',') {
            digest.push(b'!');
        }
        for &byte in &Sha256::digest(text)[..20] {
            digest.extend_from_slice(&hex(byte));
        }
        Self::of(&digest)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

/// A buffer to which formatted text can be written.
struct Text(Buffer);

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}
