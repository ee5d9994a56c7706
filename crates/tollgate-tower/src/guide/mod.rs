//! Explains rate limits in HTTP services. Each page answers one question, example
//! first.
//!
//! | question | page |
//! |---|---|
//! | By what do I limit, and who can lie about it? | [Keys and proxies](keys_and_proxies) |
//! | How do I limit the whole service and one route, by address and by user? | [Layers](layers) |
//! | How do I test my service, its limits and its outages? | [Testing your service](testing_your_service) |
//! | How do I name the type of a layer in a field, or as the result of a function? | [Types to write down](types_to_write_down) |
//!
//! Calls to other services have a [guide of their own][outgoing].
//!
//! Read the [guide of `tollgate`](https://docs.rs/tollgate/latest/tollgate/guide/index.html) first. It is about whether to use these crates
//! at all, algorithms, outages, and settings for production.
//!
//! The modules of the guide contain no code.
//!
//! [outgoing]: https://docs.rs/tollgate-outgoing/latest/tollgate_outgoing/guide/index.html

// Pages of the documentation. What a single type does stands at the type.

// Each page ends with its links, for readers of the repository. `links.md` has the same labels for
// rustdoc, which takes the first of two definitions. A page is shown whatever the features are, and
// its code is a test with those that it needs.
#[doc = include_str!("links.md")]
#[doc = include_str!("keys_and_proxies.md")]
pub mod keys_and_proxies {}

#[doc = include_str!("links.md")]
#[doc = include_str!("layers.md")]
pub mod layers {}

#[doc = include_str!("links.md")]
#[cfg_attr(any(not(doctest), feature = "test-util"), doc = include_str!("testing_your_service.md"))]
pub mod testing_your_service {}

#[doc = include_str!("links.md")]
#[doc = include_str!("types_to_write_down.md")]
pub mod types_to_write_down {}
