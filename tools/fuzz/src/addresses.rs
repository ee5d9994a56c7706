//! Generates addresses as proxies write them and requests that carry them, and reads them with the
//! standard library.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue, Request, request::Parts};
use proptest::prelude::*;
use tollgate_tower::key::{Network, TrustedProxies};

/// The peer of every request: a proxy.
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// The number of addresses of a request that are read.
pub(crate) const MAX_HOPS: usize = 32;

/// The trusted proxies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Belief {
    /// The proxies in 10.0.0.0/8 and fd00::/8.
    Networks,
    Hops(u8),
}

impl Belief {
    pub(crate) fn strategy() -> impl Strategy<Value = Self> {
        prop_oneof![2 => Just(Self::Networks), 1 => (1_u8..5).prop_map(Self::Hops)]
    }

    pub(crate) fn trusted(self) -> TrustedProxies {
        match self {
            Self::Networks => {
                let network = |text: &str| text.parse::<Network>().expect("a network");
                TrustedProxies::networks([network("10.0.0.0/8"), network("fd00::/8")])
            }
            Self::Hops(hops) => TrustedProxies::hops(hops.try_into().expect("not zero")),
        }
    }

    /// Returns the client of a chain of hops, the nearest first. A hop without an address is
    /// `None`.
    pub(crate) fn client(self, hops: &[Option<IpAddr>]) -> IpAddr {
        let peer = IpAddr::V4(PEER);
        match self {
            Self::Networks => {
                let chain: Vec<IpAddr> = std::iter::once(Some(peer))
                    .chain(hops.iter().copied())
                    .map_while(|it| it)
                    .collect();
                let looked_at = &chain[..chain.len().min(MAX_HOPS + 1)];
                let first = looked_at
                    .iter()
                    .take(MAX_HOPS)
                    .find(|address| !is_proxy(**address));
                *first.or(looked_at.last()).expect("the peer")
            }
            Self::Hops(count) => {
                let addresses: Vec<IpAddr> =
                    hops.iter().take(count.into()).map_while(|it| *it).collect();
                match addresses.len() {
                    // Fewer proxies than configured, and only addresses.
                    len if len < count.into() && len == hops.len() => peer,
                    0 => peer,
                    len => addresses[len - 1],
                }
            }
        }
    }
}

/// Returns whether one of the networks contains the address.
pub(crate) fn is_proxy(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] == 10,
        IpAddr::V6(address) => address.octets()[0] == 0xfd,
    }
}

/// Returns the address in normal form.
pub(crate) fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if v6.to_bits() >> 32 == 0xffff => {
            IpAddr::V4(Ipv4Addr::from_bits(v6.to_bits() as u32))
        }
        other => other,
    }
}

/// Reads one address, with the brackets, ports and zones that proxies add.
pub(crate) fn read(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text)
        .ok()?
        .trim_matches([' ', '\t', '\n', '\r', '\x0c']);
    let without_zone = |text: &str| {
        text.find('%')
            .map_or(text.to_owned(), |at| text[..at].to_owned())
    };
    let v6 = |text: &str| without_zone(text).parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    let found = if let Some(inside) = text.strip_prefix('[') {
        let end = inside.find(']')?;
        let (inside, port) = (&inside[..end], &inside[end + 1..]);
        if port.is_empty() || port.strip_prefix(':').is_some_and(is_port) {
            v6(inside)
        } else {
            None
        }
    } else if text.matches(':').count() > 1 {
        v6(text)
    } else {
        let (host, port) = text.split_once(':').unwrap_or((text, "0"));
        if is_port(port) {
            host.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
        } else {
            None
        }
    };
    found.map(canonical)
}

fn is_port(text: &str) -> bool {
    let digits = |it: &str| it.chars().all(|it| it.is_ascii_digit());
    let hidden = |it: &str| {
        it.chars()
            .all(|it| it.is_ascii_alphanumeric() || "._-".contains(it))
    };
    match text.strip_prefix('_') {
        Some(name) => !name.is_empty() && hidden(name),
        None => !text.is_empty() && text.len() <= 5 && digits(text),
    }
}

/// Generates addresses, those of proxies and mapped ones often.
pub(crate) fn any_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())),
        any::<u32>().prop_map(|bits| IpAddr::V4((bits >> 8 | 10 << 24).into())),
        any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())),
        any::<u32>().prop_map(|bits| IpAddr::V6(Ipv4Addr::from_bits(bits).to_ipv6_mapped())),
        any::<u32>()
            .prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(0xfd << 120 | u128::from(bits)))),
        // Where `::` may stand in one of several places, and ::/96.
        (any::<u128>(), any::<u128>())
            .prop_map(|(bits, sieve)| IpAddr::V6((bits & sieve & sieve >> 3).into())),
        any::<u32>().prop_map(|bits| IpAddr::V6(u128::from(bits).into())),
    ]
}

/// Generates one of the notations of an address.
pub(crate) fn dressed() -> impl Strategy<Value = (IpAddr, String)> {
    (any_address(), any::<u16>(), 0_u8..7).prop_map(|(address, port, dress)| {
        let text = match (dress, address) {
            (0, _) => SocketAddr::new(address, port).to_string(),
            (1, IpAddr::V6(v6)) => format!("[{v6}]"),
            (2, IpAddr::V6(v6)) => format!("{v6}%eth{port}"),
            (3, IpAddr::V6(v6)) => v6.to_string().to_uppercase(),
            (4, IpAddr::V6(v6)) => v6
                .segments()
                .map(|segment| format!("{segment:04x}"))
                .join(":"),
            (5, IpAddr::V4(v4)) => format!("{v4}:_h{port}"),
            (6, IpAddr::V6(v6)) => format!("[{v6}]:_{port}"),
            _ => address.to_string(),
        };
        (address, text)
    })
}

/// Builds a request from the peer with these header lines, without those that are no valid header
/// values.
pub(crate) fn parts(name: &'static str, lines: &[Vec<u8>]) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.extensions.insert(SocketAddr::from((PEER, 50_000)));
    let mut headers = HeaderMap::new();
    for value in lines
        .iter()
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
    {
        headers.append(HeaderName::from_static(name), value);
    }
    parts.headers = headers;
    parts
}

/// Returns the lines that [`parts`] accepts, the last one first.
pub(crate) fn backward(lines: &[Vec<u8>]) -> impl Iterator<Item = &Vec<u8>> {
    lines
        .iter()
        .rev()
        .filter(|line| HeaderValue::from_bytes(line).is_ok())
}
