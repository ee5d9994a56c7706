//! Keys of one part: a text, bytes, a number, or an address or its network.
//! Keys of several parts are joined in `combined.rs`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Key;

impl From<&Self> for Key {
    /// Copies the key.
    fn from(key: &Self) -> Self {
        key.clone()
    }
}

impl From<&str> for Key {
    /// Creates a key of one part from text.
    #[inline]
    fn from(part: &str) -> Self {
        Self::bytes(part.as_bytes())
    }
}

impl From<String> for Key {
    /// Creates a key of one part from text.
    #[inline]
    fn from(part: String) -> Self {
        Self::bytes(part.as_bytes())
    }
}

impl From<&String> for Key {
    /// Creates a key of one part from text.
    #[inline]
    fn from(part: &String) -> Self {
        Self::bytes(part.as_bytes())
    }
}

impl From<&[u8]> for Key {
    /// Creates a key of one part from bytes.
    #[inline]
    fn from(part: &[u8]) -> Self {
        Self::bytes(part)
    }
}

impl From<u64> for Key {
    /// Creates a key of one part from a number, which differs from its digits as text.
    fn from(part: u64) -> Self {
        Self::written(format_args!("#{part}"))
    }
}

impl From<u32> for Key {
    /// Creates a key of one part from a number, the same as from a `u64`.
    fn from(part: u32) -> Self {
        Self::from(u64::from(part))
    }
}

impl From<IpAddr> for Key {
    /// Creates a key of the whole address. An IPv4-mapped IPv6 address counts as its IPv4 address.
    ///
    /// Use [`Key::network`] for IPv6 clients: one client often has a whole /64 network.
    fn from(address: IpAddr) -> Self {
        Self::network(address, 128)
    }
}

impl Key {
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
                return Self::written(format_args!(
                    "*{}/{prefix}",
                    Ipv4Addr::from_bits(v4.to_bits() & mask)
                ));
            }
            IpAddr::V6(v6) => v6,
        };
        let mask = u128::MAX
            .checked_shl(128 - u32::from(prefix.min(128)))
            .unwrap_or(0);
        let network = Ipv6Addr::from_bits(v6.to_bits() & mask);
        if prefix < 128 {
            Self::written(format_args!("*{network}/{prefix}"))
        } else {
            Self::written(format_args!("*{network}"))
        }
    }

    /// Creates the key of an IPv4 address. It equals the text of `Display` and takes a fraction of
    /// the time, because most requests are limited by address. The text fits in 16 bytes, which are
    /// written at once.
    #[inline]
    fn dotted(address: Ipv4Addr) -> Self {
        // The text is combined as its difference (XOR) from the padding.
        let (mut text, mut len) = (u128::from(b'*' ^ b'.'), 0);
        for octet in address.octets() {
            let (digits, count) = OCTETS[usize::from(octet)];
            text ^= u128::from(digits) << (8 * len);
            len += usize::from(count);
        }
        let mut key = Self {
            len: len as u8,
            ..Self::EMPTY
        };
        key.text[..16].copy_from_slice(&(text ^ u128::from_ne_bytes([b'0'; 16])).to_le_bytes());
        key
    }
}

/// A dot and the digits of each octet of an address, and their length in bytes. The digits are
/// little-endian and stored as their difference (XOR) from the padding of a key.
static OCTETS: [(u32, u8); 256] = {
    let mut octets = [(0, 0); 256];
    let mut at = 0;
    while at < 256 {
        let [hundreds, tens, ones] = [digit(at / 100), digit(at / 10 % 10), digit(at % 10)];
        let (text, len) = match at {
            0..10 => ([b'.', ones, b'0', b'0'], 2),
            10..100 => ([b'.', tens, ones, b'0'], 3),
            _ => ([b'.', hundreds, tens, ones], 4),
        };
        octets[at] = (
            u32::from_le_bytes(text) ^ u32::from_le_bytes([b'0'; 4]),
            len,
        );
        at += 1;
    }
    octets
};

const fn digit(value: usize) -> u8 {
    b'0' + value as u8
}
