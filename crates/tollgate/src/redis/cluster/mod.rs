//! A Redis Cluster: which server has which slot, and a call that finds its server.

mod hash_slot;
mod routing;
mod seeds;
mod slot_map;
mod topology;

pub(in crate::redis) use hash_slot::unused_key;
pub(in crate::redis) use routing::Cluster;
pub(in crate::redis) use seeds::addresses;
