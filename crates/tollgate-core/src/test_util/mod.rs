//! Provides stores for the tests of a service: without Redis, without waiting, and through outages.
//!
//! Add the feature `test-util` to the dev-dependencies of the service, beside its usual dependency:
//!
//! ```toml
//! [dev-dependencies]
//! tollgate = { version = "0.1", features = ["test-util"] }
//! ```
//!
//! A [`Limiter`](crate::Limiter) is built from a store. A test builds it from another store than
//! production:
//!
//! | to test | build the limiter from |
//! |---|---|
//! | real limits | a [`MemoryStore`](crate::MemoryStore) |
//! | real limits, over time | a [`MemoryStore`](crate::MemoryStore) on a [`Clock`](crate::store::Clock) that the test moves |
//! | real limits, where the test pauses the time of tokio | a [`MemoryStore`](crate::MemoryStore) on [`Clock::tokio`](crate::store::Clock::tokio) |
//! | requests that pass, or that are denied with a certain wait | [`ScriptedStore::allow`] or [`ScriptedStore::deny`] |
//! | a sequence of answers | [`ScriptedStore::new`] |
//! | an outage, and its end | a [`FaultyStore`] |
//!
//! The first three need no feature.
//!
//! # Time
//!
//! `#[tokio::test(start_paused = true)]` pauses tokio's time: a sleep then ends at once, and
//! tokio's time has passed. The default clock of a store does not follow tokio's time.
//! [`Clock::tokio`](crate::store::Clock::tokio) does:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), tollgate::Error> {
//! use std::time::Duration;
//! use tollgate::{Limiter, MemoryStore, Policy, Quota, store::Clock};
//!
//! let store = MemoryStore::builder().clock(Clock::tokio()).build();
//! let limiter = Limiter::new(store, Policy::token_bucket("mails", Quota::per_hour(1)));
//! assert!(limiter.check("acme").await?.is_allowed());
//! assert!(limiter.check("acme").await?.is_denied());
//!
//! tokio::time::sleep(Duration::from_secs(3_600)).await; // Returns at once.
//! assert!(limiter.check("acme").await?.is_allowed());
//! # Ok(()) }
//! ```
//!
//! # Services
//!
//! The guide of `tollgate-tower` tests an axum service, with addresses of clients, denials and an
//! outage.

// For tests of services. What only the tests of this project need is in `testing.rs`.

mod answer;
mod faulty_store;
mod scripted_store;

pub use answer::Answer;
pub use faulty_store::FaultyStore;
pub use scripted_store::{CheckRecord, ScriptedStore};
