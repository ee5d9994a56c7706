//! Keeps the state of policies in Redis, for all replicas: the options and sources of a
//! [`RedisStore`], such as Sentinels, clusters and pools.
//!
//! ```
//! use tollgate::{RedisStore, redis::RedisSource};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
//! let sentinels = ["redis://s1:26379", "redis://s2:26379"];
//! let store = RedisStore::builder(RedisSource::sentinel(sentinels, "limits")).prefix("shop").build()?;
//! assert!(format!("{store:?}").contains("shop"));
//! # Ok(()) }
//! ```
//!
//! The public interface names types of the client libraries `redis` and `deadpool-redis` with the
//! feature `pool` alone, where a [`RedisSource`] is made of them. Without it, their next major
//! versions concern nobody.

// The core knows nothing of this crate: the trait `Store` is all that lies between.
// Imports run downward: `builder`, `source` and `diagnosis` use `store`; `store` and its
// `housekeeping` use `backend`; `backend` uses `cluster`; `cluster` uses `dispatch`; `dispatch`
// uses `deny_cache` and `server`; these use `connect`; `connect` uses `protocol`.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod builder;
mod cluster;
mod connect;
mod diagnosis;
mod dispatch;
mod housekeeping;
#[cfg_attr(
    not(feature = "testing"),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "the feature makes scripts public"
    )
)]
mod protocol;
pub mod raw;
mod replicas;
mod server;
mod source;
mod store;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
mod url_options;

use tollgate_remote::{deny_cache, lease};

/// Re-exports the version of `deadpool-redis` that defines the `Pool` of a [`RedisSource`]. It
/// re-exports the version of `redis` that defines the `Client`.
#[cfg(feature = "pool")]
#[doc(no_inline)]
pub use deadpool_redis;

pub use builder::RedisStoreBuilder;
pub use diagnosis::Finding;
pub use source::RedisSource;
pub use store::RedisStore;

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
