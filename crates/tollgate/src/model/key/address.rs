//! Keys of addresses and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Key, OCTETS};

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
        let mut key = Self { len: len as u8, ..Self::EMPTY };
        key.text[..16].copy_from_slice(&(text ^ u128::from_ne_bytes([b'0'; 16])).to_le_bytes());
        key
    }
}
