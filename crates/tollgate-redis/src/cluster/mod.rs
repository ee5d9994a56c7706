//! A Redis Cluster: which server has which slot, and a call that finds its server.
//! What a single server does with a call is in `dispatch/` and `server/`.

mod routing;
mod seeds;
mod slot_map;
mod topology;

pub(crate) use seeds::addresses;
pub(crate) use topology::Cluster;
