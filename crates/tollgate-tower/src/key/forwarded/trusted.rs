//! Which proxies are believed, and so which address of a chain is that of the client.
//! The headers are parsed in `list.rs`. Networks of clients, allowed or denied, are in
//! `networks.rs`.

use std::{net::IpAddr, num::NonZeroU8, sync::Arc};

use super::super::network::Network;

/// Lists the proxies whose forwarding headers are trusted.
///
/// ```
/// use http::Request;
/// use std::net::SocketAddr;
/// use tollgate_tower::key::{ForwardedIp, Network, TrustedProxies};
///
/// let networks: Result<Vec<Network>, _> = ["10.0.0.0/8", "fd00::/8"].into_iter().map(str::parse).collect();
/// let client = ForwardedIp::x_forwarded_for(TrustedProxies::networks(networks.unwrap()));
///
/// let peer: SocketAddr = "[fd00::1]:80".parse().unwrap();
/// let request = Request::builder().extension(peer).header("x-forwarded-for", "203.0.113.7, 10.0.0.2");
/// let (parts, ()) = request.body(()).unwrap().into_parts();
/// assert_eq!(client.address(&parts).unwrap().to_string(), "203.0.113.7");
/// ```
#[derive(Clone, Debug)]
pub struct TrustedProxies(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Networks(Arc<[Network]>),
    Hops(NonZeroU8),
}

/// Limits the number of addresses that are read in one request. No chain of proxies is longer, and
/// a longer list must not cost the service more.
const MAX_HOPS: usize = 32;

impl TrustedProxies {
    /// Trusts the proxies in these networks.
    ///
    /// If all addresses of a request are trusted, the leftmost one is the client. Networks that
    /// contain the whole internet let every client choose its own address. They are logged at
    /// `warn`, with the code `TOLLGATE-TRUST-ALL`.
    #[must_use]
    pub fn networks(networks: impl IntoIterator<Item = Network>) -> Self {
        let networks: Arc<[Network]> = networks.into_iter().collect();
        if is_everywhere(&networks) {
            tracing::warn!(
                code = "TOLLGATE-TRUST-ALL",
                "forwarding headers are trusted from every address: each client chooses the address that it is limited by"
            );
        }
        Self(Kind::Networks(networks))
    }

    /// Trusts exactly this number of proxies in front of the service, the peer included, with any
    /// addresses.
    ///
    /// **A client that reaches the service through fewer proxies can choose its own address.**
    /// Prefer [`networks`](Self::networks): when a CDN changes the number of its proxies, all
    /// clients share one quota or choose their addresses. A request with fewer addresses has the
    /// key of its peer.
    #[must_use]
    pub const fn hops(hops: NonZeroU8) -> Self {
        Self(Kind::Hops(hops))
    }

    pub(super) fn contains(&self, proxy: IpAddr) -> bool {
        match &self.0 {
            Kind::Networks(networks) => networks.iter().any(|network| network.contains(proxy)),
            Kind::Hops(_) => true,
        }
    }

    /// Returns the client of a chain that begins with the peer and continues with `hops`, the
    /// nearest first. `None` stands for an entry that is not an address.
    pub(super) fn client(
        &self,
        peer: IpAddr,
        mut hops: impl Iterator<Item = Option<IpAddr>>,
    ) -> IpAddr {
        let (most, may_be_short) = match &self.0 {
            Kind::Networks(_) => (MAX_HOPS, true),
            Kind::Hops(count) => (count.get().into(), false),
        };
        let mut client = peer;
        for _ in 0..most {
            if !self.contains(client) {
                return client;
            }
            match hops.next() {
                Some(Some(address)) => client = address,
                Some(None) => {
                    tracing::debug!(
                        "a trusted proxy names no client address, the address of the proxy is used"
                    );
                    return client;
                }
                None if may_be_short => return client,
                None => {
                    tracing::debug!(
                        "a request came through fewer proxies than configured, the address of its peer is used"
                    );
                    return peer;
                }
            }
        }
        client
    }
}

/// Returns whether the networks contain sample addresses from all parts of the internet.
fn is_everywhere(networks: &[Network]) -> bool {
    let contains = |address: IpAddr| networks.iter().any(|network| network.contains(address));
    let is_private = |octet: &u8| [10, 127].contains(octet);
    let every_v4 = (1..224)
        .filter(|octet| !is_private(octet))
        .all(|octet| contains([octet, 87, 161, 43].into()));
    let every_v6 = (0x2000..0x4000)
        .step_by(0x100)
        .all(|part| contains([part, 0x87, 0, 0, 0, 0, 0x161, 0x43].into()));
    every_v4 || every_v6
}
