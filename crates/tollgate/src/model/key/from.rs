//! Conversions into a key.

use std::net::IpAddr;

use super::{Buffer, Key, is_joined, push_part};

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

impl<A: Into<Self>, B: Into<Self>> From<(A, B)> for Key {
    /// Creates a key of two parts.
    fn from((a, b): (A, B)) -> Self {
        a.into().first().join(b)
    }
}

impl<A: Into<Self>, B: Into<Self>, C: Into<Self>> From<(A, B, C)> for Key {
    /// Creates a key of three parts.
    fn from((a, b, c): (A, B, C)) -> Self {
        a.into().first().join(b).join(c)
    }
}

impl<A: Into<Self>, B: Into<Self>, C: Into<Self>, D: Into<Self>> From<(A, B, C, D)> for Key {
    /// Creates a key of four parts.
    fn from((a, b, c, d): (A, B, C, D)) -> Self {
        a.into().first().join(b).join(c).join(d)
    }
}

impl Key {
    /// Returns this key as the first element of a tuple. An innermost level of several parts stays one element.
    fn first(self) -> Self {
        if self.has_branches() {
            return Self::side_by_side(self.branches().iter().cloned().map(Self::first));
        }
        if !is_joined(self.innermost()) {
            return self;
        }
        let mut text = Buffer::new();
        push_part(&mut text, self.innermost());
        self.with_innermost(&text)
    }
}
