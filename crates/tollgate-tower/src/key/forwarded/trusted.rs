use std::{net::IpAddr, num::NonZeroU8, sync::Arc};

use super::super::Network;

/// Which proxies are believed.
#[derive(Clone, Debug)]
pub struct Trusted(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Networks(Arc<[Network]>),
    Hops(NonZeroU8),
}

/// Addresses that are looked at in one request. No chain of proxies is longer; a client that
/// writes longer lists gains nothing by it.
const MAX_HOPS: usize = 32;

impl Trusted {
    /// Proxies are known by their address.
    ///
    /// If all addresses of a request are trusted, the leftmost is the client. Networks that hold
    /// the whole internet trust everybody to choose an address; that is logged as
    /// `TOLLGATE-TRUST-ALL`.
    #[must_use]
    pub fn networks(networks: impl IntoIterator<Item = Network>) -> Self {
        let networks: Arc<[Network]> = networks.into_iter().collect();
        if is_everywhere(&networks) {
            tracing::warn!(
                code = "TOLLGATE-TRUST-ALL",
                "forwarding headers are believed from everywhere: each client chooses the address it is limited by"
            );
        }
        Self(Kind::Networks(networks))
    }

    /// Every request comes through exactly this many proxies, the peer included, whatever their
    /// addresses are.
    ///
    /// **Whoever reaches the service on a shorter way chooses its own address.** Where a CDN
    /// changes the number of its hops, all clients share one quota or choose their address: prefer
    /// [`networks`](Self::networks). A request with fewer addresses is keyed by its peer.
    #[must_use]
    pub const fn hops(hops: NonZeroU8) -> Self {
        Self(Kind::Hops(hops))
    }

    pub(super) fn contains_peer(&self, peer: IpAddr) -> bool {
        match &self.0 {
            Kind::Networks(networks) => networks.iter().any(|network| network.contains(peer)),
            Kind::Hops(_) => true,
        }
    }

    /// The client of a chain that begins at the peer and goes on with `hops`, nearest first; `None`
    /// stands for what is no address.
    pub(super) fn walk(&self, peer: IpAddr, mut hops: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        match &self.0 {
            Kind::Networks(networks) => {
                let mut client = peer;
                for _ in 0..MAX_HOPS {
                    if !networks.iter().any(|network| network.contains(client)) {
                        return client;
                    }
                    match hops.next() {
                        Some(Some(address)) => client = address,
                        Some(None) => {
                            tracing::debug!("the client's address is not told, a trusted proxy's is used");
                            return client;
                        }
                        None => return client,
                    }
                }
                client
            }
            Kind::Hops(count) => {
                let mut client = peer;
                for _ in 0..count.get() {
                    match hops.next() {
                        Some(Some(address)) => client = address,
                        Some(None) => {
                            tracing::debug!("the client's address is not told, a trusted proxy's is used");
                            return client;
                        }
                        None => {
                            tracing::debug!("a request came through fewer proxies than configured, its peer is used");
                            return peer;
                        }
                    }
                }
                client
            }
        }
    }
}

/// Whether an address of every part of the internet is in one of the networks.
fn is_everywhere(networks: &[Network]) -> bool {
    let holds = |address: IpAddr| networks.iter().any(|network| network.contains(address));
    let is_private = |octet: &u8| [10, 127].contains(octet);
    let every_v4 = (1..224).filter(|octet| !is_private(octet)).all(|octet| holds([octet, 87, 161, 43].into()));
    let every_v6 = (0x2000..0x4000).step_by(0x100).all(|part| holds([part, 0x87, 0, 0, 0, 0, 0x161, 0x43].into()));
    every_v4 || every_v6
}
