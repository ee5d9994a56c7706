//! The extractor that reads the other end of the connection, from axum or from tonic.
//! The client behind a proxy is found in `forwarded/`.

use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
};

use http::{HeaderName, header, request::Parts};

use super::{
    extractor::{Extraction, KeyError, KeyExtractor},
    prefixes::Prefixes,
};

/// Uses the address at the other end of the connection as the key.
///
/// The key of an IPv6 address is its first 64 bits, the smallest network that a household or a
/// server usually has. [`prefixes`](Self::prefixes) sets another length, or nested networks. An
/// IPv4-mapped IPv6 address counts as IPv4. Headers are ignored.
///
/// **Behind a proxy all requests come from the proxy**, and so all clients share one quota. Use
/// [`ForwardedIp`](super::ForwardedIp) there. The first request from a private address with
/// `X-Forwarded-For` or `Forwarded` is logged at `warn`, once in a process. With a long IPv6
/// prefix, a client has one quota for each address that it owns. The owner of a larger network has
/// one quota for each /64 in it, unless a policy limits the larger network too: see [`Prefixes`].
///
/// The server has to provide the address:
///
/// - axum 0.8 (feature `axum`): serve `router.into_make_service_with_connect_info::<SocketAddr>()`.
///   Tests without a server add axum's `MockConnectInfo` as a layer.
/// - tonic (feature `tonic`): nothing to do.
/// - Any other server: insert the [`SocketAddr`] into the extensions of the request.
///
/// The response to a request without an address is 500, and the mistake is logged once. Requests
/// over a Unix socket have no address.
///
/// ```
/// use http::Request;
/// use std::net::SocketAddr;
/// use tollgate::Key;
/// use tollgate_tower::{KeyExtractor, key::PeerIp};
///
/// let peer: SocketAddr = "[2001:db8:1:2::3]:50000".parse().unwrap();
/// let (parts, ()) = Request::builder().extension(peer).body(()).unwrap().into_parts();
/// let key = PeerIp.extract(&parts).unwrap();
/// assert_eq!(key, Some(Key::network("2001:db8:1:2::".parse().unwrap(), 64)));
/// ```
#[doc(alias = "ip")]
#[doc(alias = "address")]
#[doc(alias = "ConnectInfo")]
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerIp;

/// Uses a network of the address at the other end of the connection as the key, or several nested
/// networks. [`PeerIp::prefixes`] creates it.
#[derive(Clone, Copy, Debug)]
pub struct PeerNetwork {
    prefixes: Prefixes,
}

pub(super) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The default: all of an IPv4 address, 64 bits of an IPv6 address.
pub(super) const DEFAULT_PREFIXES: Prefixes = Prefixes::ipv6([64]);

impl PeerIp {
    /// Sets the networks of the key. The default is `Prefixes::ipv6([64])`.
    ///
    /// Use 56 or 48 bits where providers assign such networks to homes or businesses, or 128 for
    /// single addresses. With several networks the key is [nested](Prefixes), so that policies can
    /// limit each of them.
    #[must_use]
    pub const fn prefixes(self, prefixes: Prefixes) -> PeerNetwork {
        PeerNetwork { prefixes }
    }

    /// Returns the full address of the peer, for logs and for rules of your own. An IPv4-mapped
    /// IPv6 address is returned as IPv4.
    ///
    /// # Errors
    ///
    /// Fails if the server does not provide the address.
    pub fn address(&self, parts: &Parts) -> Result<IpAddr, KeyError> {
        seen(parts).map(|address| address.to_canonical())
    }
}

impl KeyExtractor for PeerIp {
    fn extract(&self, parts: &Parts) -> Extraction {
        self.prefixes(DEFAULT_PREFIXES).extract(parts)
    }
}

impl KeyExtractor for PeerNetwork {
    fn extract(&self, parts: &Parts) -> Extraction {
        seen(parts).map(|address| Some(self.prefixes.key(address)))
    }
}

/// Returns the address at the other end of the connection, for which a limit is meant.
fn seen(parts: &Parts) -> Result<IpAddr, KeyError> {
    static HAS_WARNED: AtomicBool = AtomicBool::new(false);
    let address = peer(parts)?;
    let is_forwarded = || {
        [X_FORWARDED_FOR, header::FORWARDED]
            .iter()
            .any(|name| parts.headers.contains_key(name))
    };
    let is_silent = || !HAS_WARNED.load(Ordering::Relaxed);
    if is_silent()
        && is_private(address)
        && is_forwarded()
        && !HAS_WARNED.swap(true, Ordering::Relaxed)
    {
        tracing::warn!(
            code = "TOLLGATE-PROXY-PEER",
            "a private address has sent a forwarding header: if it is a proxy, `PeerIp` limits all clients behind it as \
             one, so use `ForwardedIp`"
        );
    }
    Ok(address)
}

/// Returns whether an address belongs to a network that the internet does not reach, as that of a
/// proxy often does.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        // 100.64.0.0/10 is shared address space (RFC 6598), which clouds use.
        IpAddr::V4(v4) => {
            v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.to_bits() >> 22 == 0x6440_0000 >> 22
        }
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_loopback() || v6.is_unicast_link_local(),
    }
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
        let tcp = tcp.or_else(|| {
            extensions
                .get::<TlsConnectInfo<TcpConnectInfo>>()
                .map(TlsConnectInfo::get_ref)
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_address_is_one_that_the_internet_does_not_reach() {
        for (address, expected) in [
            ("10.0.0.1", true),
            ("172.31.255.255", true),
            ("192.168.0.1", true),
            ("::ffff:192.168.0.1", true),
            ("127.0.0.1", true),
            ("169.254.0.1", true),
            ("100.64.0.0", true),
            ("100.127.255.255", true),
            ("::1", true),
            ("fd00::1", true),
            ("fe80::1", true),
            ("172.32.0.1", false),
            ("100.63.255.255", false),
            ("100.128.0.0", false),
            ("203.0.113.7", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(
                is_private(address.parse().expect("an address")),
                expected,
                "{address}"
            );
        }
    }
}
