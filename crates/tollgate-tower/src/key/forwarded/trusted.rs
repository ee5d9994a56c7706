//! Which proxies are believed, and so which address of a chain is that of the client.
//! The headers are parsed in `list.rs`. Networks of clients, allowed or denied, are in
//! `networks.rs`.

use std::{net::IpAddr, sync::Arc};

use arc_swap::ArcSwap;

use super::super::network::{Network, NetworkError};

/// Lists the proxies whose forwarding headers are trusted.
///
/// Clones share the list. [`replace`](Self::replace) exchanges it while the service runs, and no
/// request waits for that.
///
/// ```
/// use http::Request;
/// use std::net::SocketAddr;
/// use tollgate_tower::key::{ForwardedIp, Network, TrustedProxies};
///
/// let proxies = TrustedProxies::parse("10.0.0.0/8, fd00::/8")?;
/// let client = ForwardedIp::x_forwarded_for(proxies.clone());
///
/// let peer: SocketAddr = "[fd00::1]:80".parse().unwrap();
/// let request = Request::builder().extension(peer).header("x-forwarded-for", "203.0.113.7, 10.0.0.2");
/// let (parts, ()) = request.body(()).unwrap().into_parts();
/// assert_eq!(client.address(&parts).unwrap().to_string(), "203.0.113.7");
///
/// // A CDN has published other networks.
/// proxies.replace(Network::parse_lines("fd00::/8\n192.0.2.0/24")?)?;
/// assert_eq!(client.address(&parts).unwrap().to_string(), "10.0.0.2");
/// # Ok::<(), tollgate_tower::key::NetworkError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TrustedProxies(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Networks(Arc<ArcSwap<Vec<Network>>>),
    Hops(u8),
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
        let networks = listed(networks);
        Self(Kind::Networks(Arc::new(ArcSwap::from_pointee(networks))))
    }

    /// Trusts the proxies in the networks of a text, such as a variable of the environment:
    /// `10.0.0.0/8, ::1`. [`networks`](Self::networks) says more.
    ///
    /// Commas and ends of lines separate networks and single addresses. What follows a `#` in a line
    /// is skipped. An empty text trusts nobody, so each peer is the client itself.
    ///
    /// ```
    /// use tollgate_tower::key::TrustedProxies;
    ///
    /// assert!(TrustedProxies::parse("10.0.0.0/8, ::1").is_ok());
    /// let error = TrustedProxies::parse("10.0.0.0/8, localhost").unwrap_err();
    /// assert!(error.to_string().contains(r#""localhost""#), "{error}");
    /// ```
    ///
    /// # Errors
    ///
    /// Fails when a part of the text is not a network. The error has it.
    pub fn parse(text: &str) -> Result<Self, NetworkError> {
        let lines = text.lines().filter_map(|line| line.split('#').next());
        let parts = lines.flat_map(|line| line.split(',')).map(str::trim);
        let networks: Result<Vec<_>, _> = parts
            .filter(|part| !part.is_empty())
            .map(str::parse)
            .collect();
        networks.map(Self::networks)
    }

    /// Trusts exactly this number of proxies in front of the service, the peer included, with any
    /// addresses. With 0, each peer is the client itself.
    ///
    /// **A client that reaches the service through fewer proxies can choose its own address.**
    /// Prefer [`networks`](Self::networks): when a CDN changes the number of its proxies, all
    /// clients share one quota or choose their addresses. A request with fewer addresses has the
    /// key of its peer.
    #[must_use]
    pub const fn hops(hops: u8) -> Self {
        Self(Kind::Hops(hops))
    }

    /// Replaces the networks, for all clones: those of a CDN change now and then. Requests that are
    /// under way keep the old ones.
    ///
    /// # Errors
    ///
    /// Fails when the proxies are [counted](Self::hops): there are no networks to replace.
    pub fn replace(&self, networks: impl IntoIterator<Item = Network>) -> Result<(), NetworkError> {
        match &self.0 {
            Kind::Networks(held) => {
                held.store(Arc::new(listed(networks)));
                Ok(())
            }
            Kind::Hops(hops) => Err(NetworkError::counted(*hops)),
        }
    }

    pub(super) fn contains(&self, proxy: IpAddr) -> bool {
        match &self.0 {
            Kind::Networks(networks) => any_contains(&networks.load(), proxy),
            Kind::Hops(count) => *count > 0,
        }
    }

    /// Returns the client of a chain that begins with the peer and continues with `hops`, the
    /// nearest first. `None` stands for an entry that is not an address.
    pub(super) fn client(
        &self,
        peer: IpAddr,
        mut hops: impl Iterator<Item = Option<IpAddr>>,
    ) -> IpAddr {
        // One list decides about all hops.
        let networks = match &self.0 {
            Kind::Networks(networks) => Some(networks.load()),
            Kind::Hops(_) => None,
        };
        let most = match &self.0 {
            Kind::Networks(_) => MAX_HOPS,
            Kind::Hops(count) => usize::from(*count),
        };
        let mut client = peer;
        for _ in 0..most {
            if networks
                .as_ref()
                .is_some_and(|networks| !any_contains(networks, client))
            {
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
                None if networks.is_some() => return client,
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

fn any_contains(networks: &[Network], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(address))
}

/// Returns the networks as a list, and logs one that contains the whole internet.
fn listed(networks: impl IntoIterator<Item = Network>) -> Vec<Network> {
    let networks: Vec<Network> = networks.into_iter().collect();
    if is_everywhere(&networks) {
        tracing::warn!(
            code = "TOLLGATE-TRUST-ALL",
            "forwarding headers are trusted from every address: each client chooses the address that it is limited by"
        );
    }
    networks
}

/// Returns whether the networks contain sample addresses from all parts of the internet.
fn is_everywhere(networks: &[Network]) -> bool {
    let contains = |address: IpAddr| any_contains(networks, address);
    let is_private = |octet: &u8| [10, 127].contains(octet);
    let every_v4 = (1..224)
        .filter(|octet| !is_private(octet))
        .all(|octet| contains([octet, 87, 161, 43].into()));
    let every_v6 = (0x2000..0x4000)
        .step_by(0x100)
        .all(|part| contains([part, 0x87, 0, 0, 0, 0, 0x161, 0x43].into()));
    every_v4 || every_v6
}
