//! Explains rate limits with Tollgate. Each page answers one question, example first.
//!
//! | question | page |
//! |---|---|
//! | Does Tollgate fit my problem? | [Should I use this?](should_i_use_this) |
//! | Which algorithm do I need? | [Choosing an algorithm](choosing_an_algorithm), with pictures |
//! | How do I limit by user and by tenant, by the minute and by the day? | [Several limits](several_limits) |
//! | How do I call an API that has a limit? | [Waiting and outgoing calls](waiting_and_outgoing_calls) |
//! | What happens when Redis is away? | [Outages](outages) |
//! | What do I set before the first deployment? | [In production](in_production) |
//!
//! The [guide of `tollgate-tower`][tower] continues with HTTP: keys and untrusted proxies, layers
//! for several limits, calls to other services, tests of your own service, and the types of layers.
//!
//! The modules of the guide contain no code.
//!
//! [tower]: https://docs.rs/tollgate-tower/latest/tollgate_tower/guide/index.html

// Pages of the documentation. What a single type does stands at the type.

// Each page ends with its links, for readers of the repository. `links.md` has the same labels for
// rustdoc, which takes the first of two definitions. A page is shown whatever the features are, and
// its code is a test with those that it needs.

pub mod choosing_an_algorithm;

#[doc = include_str!("links.md")]
#[doc = include_str!("should_i_use_this.md")]
pub mod should_i_use_this {}

#[doc = include_str!("links.md")]
#[doc = include_str!("several_limits.md")]
pub mod several_limits {}

#[doc = include_str!("links.md")]
#[doc = include_str!("waiting_and_outgoing_calls.md")]
pub mod waiting_and_outgoing_calls {}

#[doc = include_str!("links.md")]
#[cfg_attr(any(not(doctest), feature = "test-util"), doc = include_str!("outages.md"))]
pub mod outages {}

#[doc = include_str!("links.md")]
#[cfg_attr(any(not(doctest), feature = "redis"), doc = include_str!("in_production.md"))]
#[cfg_attr(not(feature = "redis"), allow(rustdoc::broken_intra_doc_links))]
pub mod in_production {}
