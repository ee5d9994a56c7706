//! Explains outgoing calls, example first.
//!
//! Read the [guide of `tollgate`](https://docs.rs/tollgate/latest/tollgate/guide/index.html) first. It is about algorithms, waits and outages.
//!
//! This module contains no code.
//!

// A page of the documentation. What a single type does stands at the type.

// The page ends with its links, for readers of the repository. `links.md` has the same labels for
// rustdoc, which takes the first of two definitions. The page is shown whatever the features are,
// and its code is a test with those that it needs.
#![doc = include_str!("links.md")]
#![cfg_attr(any(not(doctest), feature = "reqwest"), doc = include_str!("outgoing_calls.md"))]
