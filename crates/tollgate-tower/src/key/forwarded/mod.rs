//! The extractor for services behind proxies: it reads the one header that they write.
//! The lists are parsed in `list.rs`, and who is believed is decided in `trusted.rs`.

mod list;
mod trusted;

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, header, request::Parts};

use super::{
    extractor::{Extraction, KeyError, KeyExtractor},
    header::literal_name,
    peer::{self, DEFAULT_PREFIXES, X_FORWARDED_FOR},
    prefixes::Prefixes,
};
pub use trusted::TrustedProxies;

/// Uses the address of the client in front of trusted proxies as the key.
///
/// Configure the one header that the proxies write, and the [trusted proxies](TrustedProxies). The
/// extractor reads the list in the header from the right, where the nearest proxy has appended. The
/// first address that is not a trusted proxy is the client. Addresses further left are ignored,
/// because the client can write them. A peer that is not a trusted proxy is the client itself, and
/// its headers are ignored.
///
/// **Trust only your own proxies.** A client in a trusted network can choose another address for
/// each request and so has no limit. If a proxy is not trusted, all clients behind it share one
/// quota.
///
/// **The proxy must write the configured header**, by replacing or appending. A proxy forwards a
/// header that it does not know unchanged, so the client can write it. Most proxies that write
/// `X-Forwarded-For` forward `Forwarded` unchanged.
///
/// **Envoy passes `X-Forwarded-For` on unchanged** with `use_remote_address: false`, which is the
/// default of its API, and with `skip_xff_append: true`. A client then writes its own address. Set
/// `use_remote_address: true` and leave `skip_xff_append` unset.
///
/// The key of an IPv6 address is its first 64 bits. [`prefixes`](Self::prefixes) sets another
/// length, or nested networks. An IPv4-mapped IPv6 address counts as IPv4. If an entry in the list
/// is not an address (`unknown`, `_hidden`), the key is the address of the trusted proxy that wrote
/// the entry.
///
/// ```
/// use http::Request;
/// use std::net::SocketAddr;
/// use tollgate_tower::key::{ForwardedIp, Network, TrustedProxies};
///
/// let proxies: [Network; 1] = ["10.0.0.0/8".parse().unwrap()];
/// let client = ForwardedIp::x_forwarded_for(TrustedProxies::networks(proxies));
///
/// let request = |peer: &str| {
///     let peer: SocketAddr = peer.parse().unwrap();
///     let request = Request::builder().extension(peer).header("x-forwarded-for", "1.1.1.1, 203.0.113.7, 10.0.0.2");
///     request.body(()).unwrap().into_parts().0
/// };
/// // From a proxy: the first address from the right that is not a proxy.
/// assert_eq!(client.address(&request("10.0.0.1:80")).unwrap().to_string(), "203.0.113.7");
/// // From any other peer: the peer itself.
/// assert_eq!(client.address(&request("198.51.100.9:80")).unwrap().to_string(), "198.51.100.9");
/// ```
///
/// # Test your proxy
///
/// Send requests through the proxy, from one machine, with addresses that you invent. Use the
/// public address of the service, and a path that is limited by `ForwardedIp`:
///
/// ```text
/// for i in 1 2 3; do
///   curl -s -o /dev/null -D - -H "X-Forwarded-For: 203.0.113.$i" https://service.example/ | grep -i '^ratelimit:'
/// done
/// ```
///
/// `r`, the number of remaining units, must fall from response to response. When it stays the same,
/// each invented address has a quota of its own: the proxy passes the header on unchanged, or too
/// many networks are trusted. Repeat the test with the header that you configured, and with two
/// values in one header (`203.0.113.1, 203.0.113.2`).
///
/// Then send a request without the header from a second machine in another network. Its `r` must
/// start at the whole quota. When it continues the numbers of the first machine, the proxy is not
/// trusted, and all clients share the quota of the proxy.
#[doc(alias = "ip")]
#[doc(alias = "X-Forwarded-For")]
#[doc(alias = "proxy")]
#[derive(Clone, Debug)]
pub struct ForwardedIp {
    source: Source,
    proxies: TrustedProxies,
    prefixes: Prefixes,
}

/// Selects the header that the proxies write.
#[derive(Clone, Debug)]
enum Source {
    XForwardedFor,
    Forwarded,
    Single(HeaderName),
}

impl ForwardedIp {
    /// Reads `X-Forwarded-For`, to which most proxies append.
    #[must_use]
    pub const fn x_forwarded_for(proxies: TrustedProxies) -> Self {
        Self::from(Source::XForwardedFor, proxies)
    }

    /// Reads `Forwarded` (RFC 7239), to which the proxies append.
    #[must_use]
    pub const fn forwarded(proxies: TrustedProxies) -> Self {
        Self::from(Source::Forwarded, proxies)
    }

    /// Reads a header with one address, such as `cf-connecting-ip` or `x-real-ip`.
    ///
    /// If the peer is a trusted proxy, and the header appears exactly once with an address, the key
    /// is this address. Otherwise it is the address of the peer.
    ///
    /// # Panics
    ///
    /// Panics if the name is not a valid header name in lower case. In a `const` this fails the
    /// build.
    #[must_use]
    pub const fn header(name: &'static str, proxies: TrustedProxies) -> Self {
        Self::from(Source::Single(literal_name(name)), proxies)
    }

    const fn from(source: Source, proxies: TrustedProxies) -> Self {
        Self {
            source,
            proxies,
            prefixes: DEFAULT_PREFIXES,
        }
    }

    /// Sets the networks of the key, as [`PeerIp::prefixes`](super::PeerIp::prefixes) does.
    #[must_use]
    pub const fn prefixes(mut self, prefixes: Prefixes) -> Self {
        self.prefixes = prefixes;
        self
    }

    /// Returns the full address of the client, for logs and for rules of your own.
    ///
    /// # Errors
    ///
    /// Fails if the server does not provide the address of the peer.
    pub fn address(&self, parts: &Parts) -> Result<IpAddr, KeyError> {
        let peer = peer::peer(parts)?;
        let client = match &self.source {
            Source::XForwardedFor => self.proxies.client(peer, list::x_forwarded_for(&parts.headers, &X_FORWARDED_FOR)),
            Source::Forwarded => self.proxies.client(peer, list::forwarded(&parts.headers, &header::FORWARDED)),
            Source::Single(name) => match self.proxies.contains(peer) {
                true => single(&parts.headers, name).unwrap_or_else(|| {
                    tracing::debug!(header = %name, "the proxy names no client address, the address of the proxy is used");
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
        self.address(parts)
            .map(|address| Some(self.prefixes.key(address)))
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
