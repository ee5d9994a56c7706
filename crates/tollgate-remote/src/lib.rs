//! Provides what stores outside of the process share: whether a server answers, denials that are remembered,
//! units that are leased, processes that count themselves, users and passwords that change, and a store over anything that
//! keeps bytes.
//!
//! Applications find [`KeyValue`], [`KeyValueStore`], [`Scheme`] and [`register`] in the module
//! `store` of the crate `tollgate`, and [`credentials`] beside it. Add this crate to write a store in
//! a crate of its own.
//!
//! | for | take |
//! |---|---|
//! | a database or a file that keeps bytes | [`KeyValue`]: two functions make a store |
//! | a server that decides by itself | [`health`], [`deny_cache`], [`lease`] and [`presence`], each alone |

// The rooms know nothing of each other but `key_value`, which uses all of them. Nothing here names a
// server: what Redis or PostgreSQL alone need stands in their crates.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod credentials;
pub mod deny_cache;
pub mod health;
mod key_value;
pub mod lease;
pub mod presence;
pub mod scheme;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;

pub use key_value::{Change, KeyValue, KeyValueStore, Snapshot, Write};
pub use scheme::{Scheme, register};

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
