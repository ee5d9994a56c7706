use std::net::IpAddr;

use http::request::Parts;
use tollgate_tower::key::{ForwardedIp, KeyError, PeerIp};

/// Selects where the address of a client is read.
///
/// It is the peer of the connection by default. **Behind a proxy all requests come from the proxy:** use a
/// [`ForwardedIp`] there.
///
/// ```
/// use tollgate_rules::ClientIp;
/// use tollgate_tower::key::{ForwardedIp, TrustedProxies};
///
/// let proxies = TrustedProxies::networks(["10.0.0.0/8".parse().unwrap()]);
/// let client_ip = ClientIp::from(ForwardedIp::x_forwarded_for(proxies));
/// assert!(matches!(client_ip, ClientIp::Forwarded(_)));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum ClientIp {
    /// The address at the other end of the connection.
    #[default]
    Peer,
    /// The address that trusted proxies name in a header field. Boxed, because it is much larger.
    Forwarded(Box<ForwardedIp>),
}

impl From<ForwardedIp> for ClientIp {
    fn from(forwarded: ForwardedIp) -> Self {
        Self::Forwarded(Box::new(forwarded))
    }
}

impl ClientIp {
    pub(super) fn address(&self, parts: &Parts) -> Result<IpAddr, KeyError> {
        match self {
            Self::Peer => PeerIp::new().address(parts),
            Self::Forwarded(forwarded) => forwarded.address(parts),
        }
    }
}
