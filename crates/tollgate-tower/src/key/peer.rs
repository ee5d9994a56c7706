use std::net::{IpAddr, SocketAddr};

use http::request::Parts;
use tollgate::Key;

use super::{Extraction, KeyError, KeyExtractor};

/// The address at the other end of the connection.
///
/// An IPv4-mapped IPv6 address is its IPv4 address, by its bits. Of an IPv6 address the first 64
/// bits count, the network that a household or a server has at least; [`ipv6_prefix`] sets another
/// length. Headers are not looked at.
///
/// **Behind a proxy all requests come from the proxy**, and so all clients share one quota. Where
/// IPv6 is masked too little, one client has as many quotas as it takes addresses.
///
/// The server has to say who is at the other end. tonic does (feature `tonic`). With axum (feature
/// `axum`) serve `router.into_make_service_with_connect_info::<SocketAddr>()`. A server of your own
/// inserts the [`SocketAddr`] into the request's extensions. Without it, and for the peer of a Unix
/// socket, a request is answered with 500, and the log says why.
///
/// ```
/// use http::Request;
/// use std::net::SocketAddr;
/// use tollgate::Key;
/// use tollgate_tower::{KeyExtractor, key::PeerIp};
///
/// let peer: SocketAddr = "[2001:db8:1:2::3]:50000".parse().unwrap();
/// let (parts, ()) = Request::builder().extension(peer).body(()).unwrap().into_parts();
/// let key = PeerIp::new().extract(&parts).unwrap();
/// assert_eq!(key, Some(Key::network("2001:db8:1:2::".parse().unwrap(), 64)));
/// ```
///
/// [`ipv6_prefix`]: Self::ipv6_prefix
#[derive(Clone, Copy, Debug)]
pub struct PeerIp {
    ipv6_prefix: u8,
}

/// What of an IPv6 address counts unless told otherwise.
pub(super) const IPV6_PREFIX: u8 = 64;

impl PeerIp {
    /// The peer's address, IPv6 by its first 64 bits.
    #[must_use]
    pub const fn new() -> Self {
        Self { ipv6_prefix: IPV6_PREFIX }
    }

    /// How many bits of an IPv6 address count: 56 or 48 where providers give that much to a home or
    /// a business, 128 for each address by itself.
    ///
    /// # Panics
    ///
    /// When the prefix is not 32 to 128. In a `const` this fails the build.
    #[must_use]
    pub const fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = checked_prefix(bits);
        self
    }
}

impl Default for PeerIp {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyExtractor for PeerIp {
    fn extract(&self, parts: &Parts) -> Extraction {
        peer(parts).map(|address| Some(network(address, self.ipv6_prefix)))
    }
}

pub(super) const fn checked_prefix(bits: u8) -> u8 {
    assert!(bits >= 32 && bits <= 128, "an IPv6 prefix must be 32 to 128 bits");
    bits
}

/// The address at the other end of the connection.
pub(super) fn peer(parts: &Parts) -> Result<IpAddr, KeyError> {
    let extensions = &parts.extensions;
    #[cfg(feature = "axum")]
    let address = extensions.get().map(|axum::extract::ConnectInfo(address)| *address);
    #[cfg(not(feature = "axum"))]
    let address = None;
    let address = address.or_else(|| extensions.get::<SocketAddr>().copied());
    #[cfg(feature = "tonic")]
    let address = address.or_else(|| {
        use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};
        let tcp = extensions.get::<TcpConnectInfo>();
        let tcp = tcp.or_else(|| extensions.get::<TlsConnectInfo<TcpConnectInfo>>().map(TlsConnectInfo::get_ref));
        tcp.and_then(|info| info.remote_addr)
    });
    match address {
        Some(address) => Ok(address.ip()),
        None => Err(KeyError::misconfigured(
            "the request does not say who sent it: serve the router with \
             `into_make_service_with_connect_info::<SocketAddr>()`, or insert the `SocketAddr` into its extensions",
        )),
    }
}

/// The key of an address: all of IPv4, a prefix of IPv6.
pub(super) fn network(address: IpAddr, ipv6_prefix: u8) -> Key {
    match address.to_canonical() {
        address @ IpAddr::V4(_) => Key::network(address, 32),
        address => Key::network(address, ipv6_prefix),
    }
}
