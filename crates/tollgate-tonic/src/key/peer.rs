use std::net::SocketAddr;

use http::{Extensions, request::Parts};
use tollgate::Key;
use tollgate_tower::{
    KeyExtractor,
    key::{self, Extraction},
};
use tonic::transport::server::TcpConnectInfo;

/// The address at the other end of the connection.
///
/// It is [`tollgate_tower::key::PeerIp`], which also looks where tonic's server leaves the address,
/// with TLS (feature `tls`) and without. Of an IPv6 address the first 64 bits count unless
/// [`ipv6_prefix`](Self::ipv6_prefix) says otherwise.
///
/// **Behind a proxy all calls come from the proxy**, and so all clients share one quota.
///
/// The peer of a Unix socket has no address. Its calls are answered with `INTERNAL`, and the log
/// says why.
///
/// ```
/// use http::Request;
/// use tollgate::Key;
/// use tollgate_tonic::key::PeerIp;
/// use tollgate_tower::KeyExtractor;
/// use tonic::transport::server::TcpConnectInfo;
///
/// let info = TcpConnectInfo { local_addr: None, remote_addr: Some("192.0.2.7:50000".parse().unwrap()) };
/// let (parts, ()) = Request::builder().extension(info).body(()).unwrap().into_parts();
/// assert_eq!(PeerIp::new().extract(&parts).unwrap(), Some(Key::network("192.0.2.7".parse().unwrap(), 32)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PeerIp {
    ipv6_prefix: u8,
    elsewhere: key::PeerIp,
}

impl PeerIp {
    /// The peer's address, IPv6 by its first 64 bits.
    #[must_use]
    pub const fn new() -> Self {
        Self { ipv6_prefix: 64, elsewhere: key::PeerIp::new() }
    }

    /// How many bits of an IPv6 address count.
    ///
    /// # Panics
    ///
    /// When the prefix is not 32 to 128. In a `const` this fails the build.
    #[must_use]
    pub const fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.elsewhere = self.elsewhere.ipv6_prefix(bits);
        self.ipv6_prefix = bits;
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
        match address(&parts.extensions) {
            Some(address) => Ok(Some(Key::network(address.ip(), self.ipv6_prefix))),
            None => self.elsewhere.extract(parts),
        }
    }
}

fn address(extensions: &Extensions) -> Option<SocketAddr> {
    if let Some(info) = extensions.get::<TcpConnectInfo>() {
        return info.remote_addr();
    }
    #[cfg(feature = "tls")]
    if let Some(info) = extensions.get::<tonic::transport::server::TlsConnectInfo<TcpConnectInfo>>() {
        return info.get_ref().remote_addr();
    }
    None
}
