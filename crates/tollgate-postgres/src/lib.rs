//! Rate limits that all replicas of a service share, counted in PostgreSQL.
//!
//! A [`PostgresStore`] is a [`Store`](tollgate_core::Store) for the limiters of `tollgate`: the same
//! algorithms decide, and keep the same laws. Use it where there is a database and no Redis. A
//! [`RedisStore`](https://docs.rs/tollgate/latest/tollgate/struct.RedisStore.html) decides faster,
//! and leases units.
//!
//! ```no_run
//! # async fn run() -> Result<(), tollgate::Error> {
//! use tollgate::{Limiter, Policy, Quota};
//! use tollgate_postgres::PostgresStore;
//!
//! let store = PostgresStore::connect("postgres://app@127.0.0.1/shop?create=logged").await?;
//! let limiter = Limiter::new(store, Policy::token_bucket("api", Quota::per_second(10)));
//! assert!(limiter.check("acme").await?.is_allowed());
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `tls` | no | `sslmode=require`, by rustls |

// Nothing but re-exports stands here. The store is in `store.rs`, and everything that is not about
// PostgreSQL in the core.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod array;
mod builder;
mod database;
mod dial;
mod error;
mod replies;
mod seldom;
mod store;
mod stream;
mod table;
mod tls;

pub use builder::{PostgresStoreBuilder, register};
pub use store::PostgresStore;
pub use table::{Durability, Row, schema};

/// Compiles the example of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
