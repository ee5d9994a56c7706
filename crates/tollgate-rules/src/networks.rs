//! The networks of clients that are never limited, and of those that are never served.
//! Lists are read in `compile/networks.rs`. What is searched is a type of tollgate-tower.

use std::net::IpAddr;

use tollgate_tower::key::{NetworkVerdict, Networks};

use crate::Descriptor;

/// The `networks` of a domain. A load makes new lists, so they are exchanged with the rules.
pub(crate) struct ClientNetworks(pub(crate) Networks);

/// The key of the entry with the address of a client. Envoy's action of this name has it, too.
const ADDRESS: &str = "remote_address";

impl ClientNetworks {
    /// Returns what becomes of the requests of an address.
    pub(crate) fn verdict(&self, address: IpAddr) -> NetworkVerdict {
        self.0.verdict(address)
    }

    /// Returns what becomes of a request with these descriptors. A value that is no address, such
    /// as a network, is skipped. Of several addresses, a denied one decides, and then an allowed
    /// one.
    pub(crate) fn verdict_of(&self, descriptors: &[Descriptor<'_>]) -> NetworkVerdict {
        let entries = descriptors
            .iter()
            .flat_map(Descriptor::entries)
            .filter(|entry| entry.key() == ADDRESS);
        let verdicts = entries.filter_map(|entry| Some(self.verdict(entry.value().parse().ok()?)));
        verdicts.fold(NetworkVerdict::Limited, |found, verdict| {
            match (found, verdict) {
                (NetworkVerdict::Denied, _) | (_, NetworkVerdict::Denied) => NetworkVerdict::Denied,
                (NetworkVerdict::Allowed, _) | (_, NetworkVerdict::Allowed) => {
                    NetworkVerdict::Allowed
                }
                _ => NetworkVerdict::Limited,
            }
        })
    }
}
