mod list;
mod trusted;

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, header, request::Parts};

use super::{
    Extraction, KeyError, KeyExtractor,
    peer::{self, IPV6_PREFIX},
};
pub use trusted::Trusted;

/// The address of the client, as the proxies in front of the service tell it.
///
/// Say which one header the proxies write, and which of them are [`Trusted`]. The header is read
/// from the right, the end that the nearest proxy wrote: the first address that is not trusted is
/// the client. What stands left of it was written by the client itself, and is not looked at. A
/// peer that is not trusted is the client, whatever its headers say.
///
/// **A network that is trusted wrongly chooses its own address**, a new one for each request, and
/// so has no limit; trust the addresses of your proxies and no others. Of a proxy that is not
/// trusted all clients share one quota. **A proxy must write the header**, replacing or appending:
/// if it passes one on that it does not know, the client writes it; a proxy that writes
/// `X-Forwarded-For` most often passes `Forwarded` on.
///
/// IPv4-mapped IPv6 addresses are their IPv4 address; of an IPv6 address the first 64 bits count,
/// unless [`ipv6_prefix`](Self::ipv6_prefix) says otherwise. Where the list holds what is no
/// address (`unknown`, `_hidden`, nonsense) the walk ends at the trusted proxy that wrote it, whose
/// address is then the key.
///
/// ```
/// use http::Request;
/// use std::net::SocketAddr;
/// use tollgate_tower::key::{ForwardedIp, Network, Trusted};
///
/// let proxies: [Network; 1] = ["10.0.0.0/8".parse().unwrap()];
/// let client = ForwardedIp::x_forwarded_for(Trusted::networks(proxies));
///
/// let request = |peer: &str| {
///     let peer: SocketAddr = peer.parse().unwrap();
///     let request = Request::builder().extension(peer).header("x-forwarded-for", "1.1.1.1, 203.0.113.7, 10.0.0.2");
///     request.body(()).unwrap().into_parts().0
/// };
/// // From a proxy: the first from the right that is none. The leftmost is the client's own invention.
/// assert_eq!(client.address(&request("10.0.0.1:80")).unwrap().to_string(), "203.0.113.7");
/// // From anywhere else: the peer itself.
/// assert_eq!(client.address(&request("198.51.100.9:80")).unwrap().to_string(), "198.51.100.9");
/// ```
#[derive(Clone, Debug)]
pub struct ForwardedIp {
    source: Source,
    trusted: Trusted,
    ipv6_prefix: u8,
}

/// Which header the proxies write.
#[derive(Clone, Debug)]
enum Source {
    XForwardedFor,
    Forwarded,
    Single(HeaderName),
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

impl ForwardedIp {
    /// The proxies append to `X-Forwarded-For`, what most of them do.
    #[must_use]
    pub const fn x_forwarded_for(trusted: Trusted) -> Self {
        Self::from(Source::XForwardedFor, trusted)
    }

    /// The proxies append to `Forwarded` (RFC 7239).
    #[must_use]
    pub const fn forwarded(trusted: Trusted) -> Self {
        Self::from(Source::Forwarded, trusted)
    }

    /// The proxy writes the client's address into a header of its own, `cf-connecting-ip` or
    /// `x-real-ip` for example: it is believed when the peer is trusted and the header is there
    /// once.
    ///
    /// # Panics
    ///
    /// When the name is no header name in lower case.
    #[must_use]
    pub const fn header(name: &'static str, trusted: Trusted) -> Self {
        Self::from(Source::Single(HeaderName::from_static(name)), trusted)
    }

    const fn from(source: Source, trusted: Trusted) -> Self {
        Self { source, trusted, ipv6_prefix: IPV6_PREFIX }
    }

    /// How many bits of an IPv6 address count, as for [`PeerIp`](super::PeerIp::ipv6_prefix).
    ///
    /// # Panics
    ///
    /// When the prefix is not 32 to 128.
    #[must_use]
    pub const fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = peer::checked_prefix(bits);
        self
    }

    /// The whole address of the client, for logs and for decisions of one's own.
    ///
    /// # Errors
    ///
    /// The request does not say who the peer is.
    pub fn address(&self, parts: &Parts) -> Result<IpAddr, KeyError> {
        let peer = peer::peer(parts)?;
        let client = match &self.source {
            Source::XForwardedFor => self.trusted.walk(peer, list::x_forwarded_for(&parts.headers, &X_FORWARDED_FOR)),
            Source::Forwarded => self.trusted.walk(peer, list::forwarded(&parts.headers, &header::FORWARDED)),
            Source::Single(name) => match self.trusted.contains_peer(peer) {
                true => single(&parts.headers, name).unwrap_or_else(|| {
                    tracing::debug!(header = %name, "the client's address is not told, the proxy's is used");
                    peer
                }),
                false => peer,
            },
        };
        Ok(client.to_canonical())
    }
}

impl KeyExtractor for ForwardedIp {
    fn extract(&self, parts: &Parts) -> Extraction {
        self.address(parts).map(|address| Some(peer::network(address, self.ipv6_prefix)))
    }
}

fn single(headers: &HeaderMap, name: &HeaderName) -> Option<IpAddr> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => list::address(value.as_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
