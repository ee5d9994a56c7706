use std::net::{IpAddr, SocketAddr};

use http::request::Parts;

use super::{
    extractor::{Extraction, KeyError, KeyExtractor},
    prefixes::Prefixes,
};

/// Uses the address at the other end of the connection as the key.
///
/// The key of an IPv6 address is its first 64 bits, the smallest network that a household or a server
/// usually has. [`ipv6_prefix`] sets another length, and [`prefixes`] nested networks. An IPv4-mapped
/// IPv6 address counts as IPv4. Headers are ignored.
///
/// **Behind a proxy all requests come from the proxy**, and so all clients share one quota. Use
/// [`ForwardedIp`](super::ForwardedIp) there. With a long IPv6 prefix, a client has one quota for each
/// address that it owns. The owner of a larger network has one quota for each /64 in it, unless a
/// policy limits the larger network too: see [`Prefixes`].
///
/// The server has to provide the address:
///
/// - axum 0.8 (feature `axum`): serve `router.into_make_service_with_connect_info::<SocketAddr>()`. Tests
///   without a server add axum's `MockConnectInfo` as a layer.
/// - tonic (feature `tonic`): nothing to do.
/// - Any other server: insert the [`SocketAddr`] into the extensions of the request.
///
/// The response to a request without an address is 500, and the mistake is logged once. Requests over a Unix socket
/// have no address.
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
/// [`prefixes`]: Self::prefixes
#[derive(Clone, Copy, Debug)]
pub struct PeerIp {
    prefixes: Prefixes,
}

/// The default: all of an IPv4 address, 64 bits of an IPv6 address.
pub(super) const DEFAULT_PREFIXES: Prefixes = Prefixes::ipv6([64]);

impl PeerIp {
    /// Creates an extractor with an IPv6 prefix of 64 bits.
    #[must_use]
    pub const fn new() -> Self {
        Self { prefixes: DEFAULT_PREFIXES }
    }

    /// Sets the length of an IPv6 key in bits. The default is 64.
    ///
    /// Use 56 or 48 where providers assign such networks to homes or businesses, or 128 for single
    /// addresses.
    ///
    /// # Panics
    ///
    /// Panics if the length is not between 32 and 128. In a `const` this fails the build.
    #[must_use]
    pub const fn ipv6_prefix(self, bits: u8) -> Self {
        self.prefixes(one_prefix(bits))
    }

    /// Sets the networks of the key. With several networks the key is [nested](Prefixes), so that policies can limit
    /// each of them.
    ///
    /// ```
    /// use http::Request;
    /// use std::net::SocketAddr;
    /// use tollgate_tower::{KeyExtractor, key::{PeerIp, Prefixes}};
    ///
    /// let peer: SocketAddr = "[2001:db8:1:2::3]:50000".parse().unwrap();
    /// let (parts, ()) = Request::builder().extension(peer).body(()).unwrap().into_parts();
    /// let key = PeerIp::new().prefixes(Prefixes::ipv6([48, 64])).extract(&parts).unwrap().unwrap();
    /// assert_eq!(key.encoded(), "*2001:db8:1::/48>*2001:db8:1:2::/64");
    /// ```
    #[must_use]
    pub const fn prefixes(mut self, prefixes: Prefixes) -> Self {
        self.prefixes = prefixes;
        self
    }

    /// Returns the full address of the peer, for logs and for rules of your own. An IPv4-mapped IPv6 address is returned
    /// as IPv4.
    ///
    /// # Errors
    ///
    /// Fails if the server does not provide the address.
    pub fn address(&self, parts: &Parts) -> Result<IpAddr, KeyError> {
        peer(parts).map(|address| address.to_canonical())
    }
}

impl Default for PeerIp {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyExtractor for PeerIp {
    fn extract(&self, parts: &Parts) -> Extraction {
        peer(parts).map(|address| Some(self.prefixes.key(address)))
    }
}

/// Returns one network of IPv6 addresses.
pub(super) const fn one_prefix(bits: u8) -> Prefixes {
    assert!(bits >= 32 && bits <= 128, "an IPv6 prefix must be 32 to 128 bits");
    Prefixes::ipv6([bits])
}

/// Returns the address at the other end of the connection.
pub(super) fn peer(parts: &Parts) -> Result<IpAddr, KeyError> {
    let extensions = &parts.extensions;
    #[cfg(feature = "axum")]
    let address = {
        use axum::extract::{ConnectInfo, connect_info::MockConnectInfo};
        let served = extensions.get().map(|ConnectInfo(address)| *address);
        served.or_else(|| extensions.get().map(|MockConnectInfo(address)| *address))
    };
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
            "the request has no peer address: serve the router with \
             `into_make_service_with_connect_info::<SocketAddr>()` of axum 0.8 (feature `axum`), or insert the \
             `SocketAddr` into its extensions",
        )),
    }
}
