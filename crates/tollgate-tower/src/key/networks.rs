//! Lists of allowed and denied networks, built for a fast search among many.
//! What becomes of a request is decided in `rate_limit/ask.rs`. One network is a type of
//! `network.rs`.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use arc_swap::ArcSwap;

use super::network::{Network, NetworkError};

/// Lists networks whose clients are never limited, and networks whose clients are never served.
///
/// A layer searches the lists before it checks its limiter: see
/// [`RateLimitBuilder::networks`](crate::RateLimitBuilder::networks). If several networks contain
/// an address, the smallest decides. So an allowed address may lie in a denied network, and the
/// other way round. A look-up is one binary search, also among a hundred thousand networks.
///
/// Clones share the lists. [`replace`](Self::replace) exchanges them while the service runs.
///
/// ```
/// use tollgate_tower::key::{NetworkVerdict, Networks};
///
/// let networks = Networks::parse("10.0.0.0/8\n# The monitoring.\n192.0.2.7", "192.0.2.0/24")?;
/// let verdict = |address: &str| networks.verdict(address.parse().unwrap());
/// assert_eq!(verdict("10.1.2.3"), NetworkVerdict::Allowed);
/// assert_eq!(verdict("192.0.2.7"), NetworkVerdict::Allowed);
/// assert_eq!(verdict("192.0.2.8"), NetworkVerdict::Denied);
/// assert_eq!(verdict("2001:db8::1"), NetworkVerdict::Limited);
///
/// networks.replace([], ["2001:db8::/32".parse()?])?;
/// assert_eq!(networks.verdict("2001:db8::1".parse().unwrap()), NetworkVerdict::Denied);
/// # Ok::<(), tollgate_tower::key::NetworkError>(())
/// ```
#[doc(alias = "allowlist")]
#[doc(alias = "blocklist")]
#[doc(alias = "cidr")]
#[derive(Clone)]
pub struct Networks(Arc<ArcSwap<Lists>>);

/// Says what happens to the requests of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NetworkVerdict {
    /// The requests are exempt from the limit.
    Allowed,
    /// The requests are rejected.
    Denied,
    /// No list contains the address: the limiter decides.
    Limited,
}

impl Networks {
    /// Creates the lists of allowed and denied networks.
    ///
    /// # Errors
    ///
    /// Fails when one network is in both lists.
    pub fn try_new(
        allowed: impl IntoIterator<Item = Network>,
        denied: impl IntoIterator<Item = Network>,
    ) -> Result<Self, NetworkError> {
        Lists::new(allowed, denied).map(|lists| Self(Arc::new(ArcSwap::from_pointee(lists))))
    }

    /// Creates the lists from texts with one network in each line: `10.0.0.0/8`, `2001:db8::/32`,
    /// or a single address.
    ///
    /// Empty lines, and what follows a `#`, are skipped.
    ///
    /// # Errors
    ///
    /// Fails when a line is not a network, or when one network is in both lists.
    pub fn parse(allowed: &str, denied: &str) -> Result<Self, NetworkError> {
        Self::try_new(
            Network::parse_lines(allowed)?,
            Network::parse_lines(denied)?,
        )
    }

    /// Replaces both lists. The old lists apply to requests that are already under way.
    ///
    /// # Errors
    ///
    /// Fails when one network is in both lists. The old lists then stay.
    pub fn replace(
        &self,
        allowed: impl IntoIterator<Item = Network>,
        denied: impl IntoIterator<Item = Network>,
    ) -> Result<(), NetworkError> {
        self.0.store(Arc::new(Lists::new(allowed, denied)?));
        Ok(())
    }

    /// Returns what happens to the requests of an address. An IPv4-mapped IPv6 address counts as
    /// IPv4.
    #[must_use]
    pub fn verdict(&self, address: IpAddr) -> NetworkVerdict {
        let lists = self.0.load();
        match address.to_canonical() {
            IpAddr::V4(address) => lists.v4.verdict(address.to_bits()),
            IpAddr::V6(address) => lists.verdict_v6(address.to_bits()),
        }
    }
}

impl fmt::Debug for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = self.0.load();
        f.debug_struct("Networks")
            .field("networks", &lists.count)
            .finish_non_exhaustive()
    }
}

impl Network {
    /// Parses a text with one network in each line. Empty lines, and what follows a `#`, are
    /// skipped.
    ///
    /// # Errors
    ///
    /// Fails when a line is not a network. The error names the line.
    pub fn parse_lines(text: &str) -> Result<Vec<Self>, NetworkError> {
        let lines = (1..)
            .zip(text.lines())
            .map(|(at, line)| (at, line.split('#').next().unwrap_or_default().trim()));
        let lines = lines.filter(|(_, line)| !line.is_empty());
        lines
            .map(|(at, line)| {
                line.parse()
                    .map_err(|error: NetworkError| error.in_line(at))
            })
            .collect()
    }
}

/// Both lists, as ranges of addresses.
struct Lists {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
    /// The first halves of the starts in `v6`. A search of 64 bits takes a third of the time of one
    /// of 128.
    v6_heads: Vec<u64>,
    count: usize,
}

impl Lists {
    fn new(
        allowed: impl IntoIterator<Item = Network>,
        denied: impl IntoIterator<Item = Network>,
    ) -> Result<Self, NetworkError> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let allowed = allowed
            .into_iter()
            .map(|network| (network, NetworkVerdict::Allowed));
        let denied = denied
            .into_iter()
            .map(|network| (network, NetworkVerdict::Denied));
        for (network, verdict) in allowed.chain(denied) {
            match network.range() {
                (IpAddr::V4(first), IpAddr::V4(last)) => {
                    v4.push((first.to_bits(), last.to_bits(), verdict));
                }
                (IpAddr::V6(first), IpAddr::V6(last)) => {
                    v6.push((first.to_bits(), last.to_bits(), verdict));
                }
                _ => unreachable!("a network has addresses of one version"),
            }
        }
        let count = v4.len() + v6.len();
        let (v4, v6) = (
            Ranges::new(v4, |last| last.checked_add(1))
                .map_err(|first| IpAddr::from(Ipv4Addr::from_bits(first))),
            Ranges::new(v6, |last| last.checked_add(1))
                .map_err(|first| IpAddr::from(Ipv6Addr::from_bits(first))),
        );
        let twice = |address| NetworkError::in_both_lists(address);
        let (v4, v6) = (v4.map_err(twice)?, v6.map_err(twice)?);
        let v6_heads = v6.starts.iter().map(|start| head(*start)).collect();
        Ok(Self {
            v4,
            v6,
            v6_heads,
            count,
        })
    }

    fn verdict_v6(&self, address: u128) -> NetworkVerdict {
        let first = head(address);
        let end = self.v6_heads.partition_point(|head| *head <= first);
        // Few networks are smaller than 64 bits, so the last range with such a head is mostly the
        // one.
        let is_last = self.v6_heads[end - 1] < first || self.v6.starts[end - 1] <= address;
        if is_last {
            self.v6.verdicts[end - 1]
        } else {
            self.v6.verdict(address)
        }
    }
}

fn head(address: u128) -> u64 {
    (address >> 64) as u64
}

/// Divides all addresses into ranges with one verdict each. Each begins where the one before ends.
struct Ranges<A> {
    starts: Vec<A>,
    verdicts: Vec<NetworkVerdict>,
}

impl<A: Copy + Ord + Default> Ranges<A> {
    /// Returns the first address of a network that is in both lists as an error.
    fn new(
        mut networks: Vec<(A, A, NetworkVerdict)>,
        next: impl Fn(A) -> Option<A>,
    ) -> Result<Self, A> {
        // A network comes before those that it contains: two networks never overlap in part.
        networks.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        if let Some(pair) = networks
            .windows(2)
            .find(|pair| pair[0].0 == pair[1].0 && pair[0].1 == pair[1].1 && pair[0].2 != pair[1].2)
        {
            return Err(pair[0].0);
        }
        let mut ranges = Self {
            starts: vec![A::default()],
            verdicts: vec![NetworkVerdict::Limited],
        };
        // The networks that contain the current address, the smallest last.
        let mut open: Vec<(A, NetworkVerdict)> = Vec::new();
        for (first, last, verdict) in networks {
            ranges.close(&mut open, Some(first), &next);
            ranges.begin(first, verdict);
            open.push((last, verdict));
        }
        ranges.close(&mut open, None, &next);
        Ok(ranges)
    }

    /// Ends the networks that do not reach `before`, the smallest first.
    fn close(
        &mut self,
        open: &mut Vec<(A, NetworkVerdict)>,
        before: Option<A>,
        next: impl Fn(A) -> Option<A>,
    ) {
        while let Some((last, _)) =
            open.pop_if(|(last, _)| before.is_none_or(|before| *last < before))
        {
            let verdict = open
                .last()
                .map_or(NetworkVerdict::Limited, |(_, verdict)| *verdict);
            if let Some(start) = next(last) {
                self.begin(start, verdict);
            }
        }
    }

    fn begin(&mut self, start: A, verdict: NetworkVerdict) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.verdicts.pop();
        }
        if self.verdicts.last() != Some(&verdict) {
            self.starts.push(start);
            self.verdicts.push(verdict);
        }
    }

    fn verdict(&self, address: A) -> NetworkVerdict {
        // The first range begins with the first address.
        self.verdicts[self.starts.partition_point(|start| *start <= address) - 1]
    }
}
