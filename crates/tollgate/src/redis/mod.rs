//! Keeps the state of policies in Redis, for all replicas: see [`RedisStore`].
//!
//! The public interface shows types of the client libraries `redis` and `deadpool-redis` in this
//! module only.
// Imports run downward: `builder`, `source` and `diagnosis` use `store`; `store` and its
// `housekeeping` use `backend`; `backend` uses `cluster`; `cluster` uses `dispatch`; `dispatch`
// uses `deny_cache` and `server`; these use `connect`; `connect` uses `protocol`.

mod backend;
mod builder;
mod cluster;
mod connect;
mod diagnosis;
mod dispatch;
mod housekeeping;
mod leased_units;
mod metrics;
mod protocol;
mod replicas;
mod server;
mod source;
mod store;
mod url_options;

use crate::store::{deny_cache, sync};

/// Re-exports the version of `deadpool-redis` that defines the `Pool` of a [`RedisSource`].
pub use deadpool_redis;

pub use builder::RedisStoreBuilder;
pub use diagnosis::Finding;
pub(crate) use protocol::{
    MixedArgs, MixedReply, OUTSTANDING, Outcome, Script, decision, entries, numbers, outcomes,
    pack, pack_held, pack_permits, pack_refund, pack_seen, permit_grant, reserved, settlement,
    write_key, write_permit_key, write_record_key,
};
pub use source::RedisSource;
pub use store::RedisStore;
