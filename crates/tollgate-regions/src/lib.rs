//! One rate limit for several regions, far apart, and never above it: a [`RegionalStore`].
//!
//! One server is the *home* of a limit: it counts, and grants units. Each region has a server of its
//! own with a *purse* of granted units, by which it decides. So a check waits for the server of its
//! region, and the ocean is crossed about ten times a second for each hot key of a region, whatever
//! its rate.
//!
//! Take it for hot and large limits alone. A key with ten requests a minute pays a trip to the home
//! for most of them; and users who stay in one region are better counted there, with a plain
//! `RedisStore`. [The page of several regions][page] says first what this is not.
//!
//! ```no_run
//! # async fn run() -> Result<(), tollgate_core::Error> {
//! use tollgate_core::{Lease, Limiter, Policy, Quota};
//! use tollgate_regions::{Durability, RegionalStore};
//!
//! let store = RegionalStore::builder("redis://eu.example/", "redis://us.example/")
//!     .region("eu")
//!     .durability(Durability::Replicas(1))
//!     .connect()
//!     .await?;
//! let policy = Policy::token_bucket("api", Quota::per_second(10_000)).leased(Lease::new().share(2));
//! let limiter = Limiter::builder(store).policies(policy).try_build()?;
//! assert!(limiter.check("acme").await?.is_allowed());
//! # Ok(()) }
//! ```
//!
//! [page]: https://github.com/tollgate-rs/tollgate/blob/main/docs/regions.md

// `store` and `housekeeping` use `ask`, which uses `carrier`; `builder` makes `store`, and `urls` makes a
// `builder`. Calls use `wire`, which writes the numbers of the `rules` for the scripts. The rules know
// nothing of servers.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod ask;
mod builder;
mod carrier;
mod durability;
mod floor;
mod held;
mod housekeeping;
pub mod inspect;
mod leases;
#[cfg(feature = "testing")]
pub mod rules;
#[cfg(not(feature = "testing"))]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the scripts run these rules, and the feature lets tests compare both"
)]
mod rules;
mod store;
mod terms;
#[cfg(feature = "testing")]
pub mod testing;
mod urls;
mod wire;

pub use builder::RegionalStoreBuilder;
pub use carrier::RegionFigures;
pub use durability::Durability;
pub use store::RegionalStore;

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
