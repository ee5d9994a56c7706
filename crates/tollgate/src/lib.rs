//! Rate limits that all replicas of a service share.
//!
//! A [`Limiter`] is a [`Store`] and the [policies](Policy) it checks together. With a
//! [`RedisStore`] every replica spends from the same quota, one atomic script call per decision;
//! with a [`MemoryStore`] the same algorithms decide inside the process. Use the `tollgate-tower`
//! crate to put a limiter in front of an HTTP service; use this crate alone for everything that is
//! not a request: jobs, e-mails, calls to somebody else's API.
//!
//! ```
//! use tollgate::{Limiter, MemoryStore, Policy, Quota};
//!
//! const BURST: Policy = Policy::token_bucket("burst", Quota::per_second(20).with_burst(40));
//! const DAILY: Policy = Policy::fixed_window("daily", Quota::per_day(50_000));
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
//! let limiter = Limiter::new(MemoryStore::new(), [BURST, DAILY]);
//! let decision = limiter.check("acme").await?;
//! assert!(decision.is_allowed());
//! assert_eq!(decision.state("burst").unwrap().remaining(), 39);
//! assert_eq!(decision.state("daily").unwrap().remaining(), 49_999);
//! # Ok(()) }
//! ```
//!
//! What each algorithm promises, and its worst case, stands in [`Algorithm`]. A denial is not an
//! error: [`Limiter::check`] answers `Err` only when no decision could be reached.

mod algorithm;
mod clock;
mod cost;
mod decision;
mod entry;
mod error;
mod key;
mod limiter;
mod memory;
mod outage;
mod policy;
mod policy_levels;
mod policy_set;
mod quota;
mod reason;
#[cfg(feature = "redis")]
mod redis;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod wait;

pub use algorithm::Algorithm;
pub use clock::Clock;
pub use cost::Cost;
pub use decision::{Decision, Degraded, PolicyState};
pub use entry::Entry;
pub use error::{Error, ErrorKind};
pub use key::{Key, KeySecret};
pub use limiter::{Limiter, LimiterBuilder};
pub use memory::{MemoryStore, MemoryStoreBuilder};
pub use outage::Outage;
pub use policy::Policy;
pub use policy_set::PolicySet;
pub use quota::Quota;
#[cfg(feature = "redis")]
pub use redis::{Finding, RedisStore, RedisStoreBuilder};
pub use store::{Check, CheckFuture, Store, StoreFuture};

/// The version of `deadpool-redis` whose `Pool` [`RedisStore::from_pool`] takes.
#[cfg(feature = "redis")]
pub use deadpool_redis;
