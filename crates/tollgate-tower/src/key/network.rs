//! One network in the notation of prefixes, and whether it contains an address.
//! Lists that are searched fast are in `networks.rs`, lengths for keys in `prefixes.rs`.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// A network: an address and a prefix length, such as `10.0.0.0/8`.
///
/// ```
/// use tollgate_tower::key::Network;
///
/// let network: Network = "10.0.0.0/8".parse().unwrap();
/// assert!(network.contains("10.255.0.1".parse().unwrap()));
/// assert!(network.contains("::ffff:10.0.0.1".parse().unwrap()));
/// assert!(!network.contains("11.0.0.1".parse().unwrap()));
///
/// let one: Network = "2001:db8::7".parse().unwrap();
/// assert_eq!(one.to_string(), "2001:db8::7/128");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Creates the network of all addresses that share the first `prefix` bits of `address`.
    ///
    /// # Errors
    ///
    /// Fails if the prefix is longer than the address: 32 bits for IPv4, 128 bits for IPv6.
    pub fn try_new(address: IpAddr, prefix: u8) -> Result<Self, NetworkError> {
        let width = if address.is_ipv4() { 32 } else { 128 };
        if prefix > width {
            return Err(NetworkError::not_a_network(&format!("{address}/{prefix}")));
        }
        match address.to_canonical() {
            // A network of IPv4-mapped addresses is a network of IPv4 addresses.
            mapped @ IpAddr::V4(_) if address.is_ipv6() && prefix >= 96 => Ok(Self {
                address: mapped,
                prefix: prefix - 96,
            }),
            _ => Ok(Self { address, prefix }),
        }
    }

    /// Returns whether the network contains the address. An IPv4-mapped IPv6 address counts as
    /// IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differs = own.to_bits() ^ other.to_bits();
                differs.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differs = own.to_bits() ^ other.to_bits();
                differs.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

impl Network {
    /// Returns the first and the last address.
    pub(super) fn range(&self) -> (IpAddr, IpAddr) {
        match self.address {
            IpAddr::V4(address) => {
                let own = u32::MAX.checked_shr(self.prefix.into()).unwrap_or(0);
                let first = address.to_bits() & !own;
                (
                    Ipv4Addr::from_bits(first).into(),
                    Ipv4Addr::from_bits(first | own).into(),
                )
            }
            IpAddr::V6(address) => {
                let own = u128::MAX.checked_shr(self.prefix.into()).unwrap_or(0);
                let first = address.to_bits() & !own;
                (
                    Ipv6Addr::from_bits(first).into(),
                    Ipv6Addr::from_bits(first | own).into(),
                )
            }
        }
    }
}

impl From<IpAddr> for Network {
    /// Creates the network of this single address.
    fn from(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self {
            address,
            prefix: if address.is_ipv4() { 32 } else { 128 },
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    /// Parses `10.0.0.0/8`, `2001:db8::/32` or a single address.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || NetworkError::not_a_network(text);
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        match prefix {
            None => Ok(address.into()),
            // `parse` would also accept a sign.
            Some(prefix) if prefix.bytes().all(|byte| byte.is_ascii_digit()) => {
                Self::try_new(address, prefix.parse().map_err(|_| error())?).map_err(|_| error())
            }
            Some(_) => Err(error()),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Reports text that is not a network, a network in two lists, or a list that there is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkError(String);

impl NetworkError {
    fn not_a_network(text: &str) -> Self {
        // The longest network has fewer characters.
        let text: String = text.chars().take(60).collect();
        Self(format!(
            "network must be an address or an address with a prefix, such as 10.0.0.0/8, got {text:?}"
        ))
    }

    pub(super) fn in_line(self, line: usize) -> Self {
        Self(format!("line {line}: {}", self.0))
    }

    pub(super) fn in_both_lists(first: IpAddr) -> Self {
        Self(format!(
            "network of {first} must not be both allowed and denied"
        ))
    }

    pub(super) fn counted(hops: u8) -> Self {
        Self(format!(
            "trusted proxies must be networks to be replaced, got {hops} hops"
        ))
    }
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NetworkError {}
