//! How much of an address becomes the key, in one level or in several.
//! The address comes from `peer.rs` or `forwarded/`.

use std::net::IpAddr;

use tollgate_core::{Error, ErrorKind, Key};

/// The networks by which an address is limited: prefix lengths in bits, the outermost network
/// first.
///
/// One network makes a key of one level. Several networks make a [nested](Key::child) key, with one
/// level for each. A [`Policy`](tollgate_core::Policy) then limits the whole key, which is the innermost
/// network, or an outer network with [`at_level`](tollgate_core::Policy::at_level).
///
/// Use nested networks against clients that own many addresses. The owner of an IPv6 /48 has 65 536
/// networks of 64 bits, and each is a new key. A policy on the /48 limits all of them together. A
/// request that this policy denies creates no state for the /64.
///
/// An IPv4 address has as many levels as an IPv6 address. By default, each level is the whole
/// address. [`ipv4`](Self::ipv4) sets other lengths.
///
/// ```
/// use http::Request;
/// use std::net::SocketAddr;
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{KeyExtractor, key::{PeerIp, Prefixes}};
///
/// const NETWORKS: Prefixes = Prefixes::ipv6([48, 64]).ipv4([24, 32]);
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::new(
///     MemoryStore::new(),
///     [
///         Policy::fixed_window("site", Quota::per_day(3)).at_level(1),
///         Policy::fixed_window("client", Quota::per_day(2)),
///     ],
/// );
/// let key = |peer: &str| {
///     let peer: SocketAddr = peer.parse().unwrap();
///     let (parts, ()) = Request::builder().extension(peer).body(()).unwrap().into_parts();
///     PeerIp.prefixes(NETWORKS).extract(&parts).unwrap().unwrap()
/// };
/// assert_eq!(key("[2001:db8:1:7::3]:50000").encoded(), "*2001:db8:1::/48>*2001:db8:1:7::/64");
/// assert_eq!(key("192.0.2.7:50000").encoded(), "*192.0.2.0/24>*192.0.2.7");
///
/// // Each request comes from another /64 of one /48.
/// for at in 0..3 {
///     assert!(limiter.check(key(&format!("[2001:db8:1:{at}::3]:50000"))).await?.is_allowed());
/// }
/// assert!(limiter.check(key("[2001:db8:1:9::3]:50000")).await?.is_denied());
/// assert!(limiter.check(key("[2001:db8:2:9::3]:50000")).await?.is_allowed());
/// # Ok(()) }
/// ```
#[doc(alias = "subnet")]
#[doc(alias = "cidr")]
#[doc(alias = "ipv6")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixes {
    levels: usize,
    ipv6: [u8; Key::MAX_LEVELS],
    ipv4: [u8; Key::MAX_LEVELS],
}

const IPV6_BITS: u8 = 128;
const IPV4_BITS: u8 = 32;

impl Prefixes {
    /// Creates prefixes from 1 to 4 ascending lengths of IPv6 networks, each from 1 to 128 bits.
    /// IPv4 addresses are limited as a whole.
    ///
    /// # Panics
    ///
    /// Panics when [`try_ipv6`](Self::try_ipv6) would fail. In a `const` this fails the build.
    #[must_use]
    pub const fn ipv6<const N: usize>(bits: [u8; N]) -> Self {
        match Self::of_ipv6(&bits) {
            Some(prefixes) => prefixes,
            None => panic!("IPv6 prefixes must be 1 to 4 ascending lengths from 1 to 128"),
        }
    }

    /// Creates prefixes from lengths of IPv6 networks that are known only at run time.
    ///
    /// ```
    /// use tollgate_tower::key::Prefixes;
    ///
    /// assert_eq!(Prefixes::try_ipv6(&[48, 56, 64])?, Prefixes::ipv6([48, 56, 64]));
    ///
    /// let error = Prefixes::try_ipv6(&[64, 48]).unwrap_err();
    /// assert_eq!(error.to_string(), "IPv6 prefixes must be 1 to 4 ascending lengths from 1 to 128, got [64, 48]");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`] when the number of lengths is not 1 to 4, when a length is
    /// not 1 to 128, or when a length does not exceed the one before.
    pub fn try_ipv6(bits: &[u8]) -> Result<Self, Error> {
        let message = || {
            format!("IPv6 prefixes must be 1 to 4 ascending lengths from 1 to 128, got {bits:?}")
        };
        Self::of_ipv6(bits).ok_or_else(|| Error::new(ErrorKind::Config, message()))
    }

    /// Sets the lengths of the IPv4 networks, from 1 to 32 bits: as many as for IPv6, in ascending
    /// order. Equal lengths are allowed.
    ///
    /// # Panics
    ///
    /// Panics when [`try_ipv4`](Self::try_ipv4) would fail. In a `const` this fails the build.
    #[must_use]
    pub const fn ipv4<const N: usize>(self, bits: [u8; N]) -> Self {
        match self.with_ipv4(&bits) {
            Some(prefixes) => prefixes,
            None => panic!(
                "IPv4 prefixes must be as many as those of IPv6, from 1 to 32 and not descending"
            ),
        }
    }

    /// Sets the lengths of the IPv4 networks, where they are known only at run time.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`] when there are not as many lengths as for IPv6, when a
    /// length is not 1 to 32, or when a length is below the one before.
    pub fn try_ipv4(self, bits: &[u8]) -> Result<Self, Error> {
        let message = || {
            let ipv6 = &self.ipv6[..self.levels];
            format!(
                "IPv4 prefixes must be as many as those of IPv6, from 1 to 32 and not descending, got {bits:?} beside {ipv6:?}"
            )
        };
        self.with_ipv4(bits)
            .ok_or_else(|| Error::new(ErrorKind::Config, message()))
    }

    /// Returns the key of an address. An IPv4-mapped IPv6 address counts as IPv4.
    #[inline]
    pub(super) fn key(&self, address: IpAddr) -> Key {
        let address = address.to_canonical();
        let bits = if address.is_ipv4() {
            &self.ipv4
        } else {
            &self.ipv6
        };
        let outermost = Key::network(address, bits[0]);
        bits[1..self.levels].iter().fold(outermost, |key, &bits| {
            key.child(Key::network(address, bits))
        })
    }

    const fn of_ipv6(bits: &[u8]) -> Option<Self> {
        if bits.is_empty() || bits.len() > Key::MAX_LEVELS {
            return None;
        }
        let mut prefixes = Self {
            levels: bits.len(),
            ipv6: [0; Key::MAX_LEVELS],
            ipv4: [IPV4_BITS; Key::MAX_LEVELS],
        };
        let mut at = 0;
        while at < bits.len() {
            let is_ascending = at == 0 || bits[at] > bits[at - 1];
            if bits[at] == 0 || bits[at] > IPV6_BITS || !is_ascending {
                return None;
            }
            prefixes.ipv6[at] = bits[at];
            at += 1;
        }
        Some(prefixes)
    }

    const fn with_ipv4(mut self, bits: &[u8]) -> Option<Self> {
        if bits.len() != self.levels {
            return None;
        }
        let mut at = 0;
        while at < bits.len() {
            let is_descending = at > 0 && bits[at] < bits[at - 1];
            if bits[at] == 0 || bits[at] > IPV4_BITS || is_descending {
                return None;
            }
            self.ipv4[at] = bits[at];
            at += 1;
        }
        Some(self)
    }
}
