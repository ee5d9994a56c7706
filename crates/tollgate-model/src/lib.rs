//! Rate limits as pure functions: keys, quotas, policies, the state of each algorithm, and decisions.
//!
//! A state, a time and a cost go in, and a decision comes out. Nothing here waits, reads a clock or
//! keeps a state, and nothing names a server.
//!
//! Applications add the crate `tollgate`, which has the types of this crate under the same names, the
//! stores, and the limiter. The crate `tollgate-core` keeps states in process and calls these
//! functions. Add this crate for a tool that computes with states and has no store: a simulation, or a
//! decoder of stored bytes. The module [`algorithm`] has the functions, and [`raw`] what a store needs
//! of the types beyond their public face.
//!
//! ```
//! use tollgate_model::{Policy, Quota, algorithm::State};
//!
//! let policy = Policy::token_bucket("api", Quota::per_second(1));
//! let mut bucket = State::fresh(policy.algorithm()).advance(&policy, None, 5_000_000).state;
//! assert!(bucket.fits(&policy, 5_000_000, 1.into()));
//! bucket.charge(&policy, 5_000_000, 1, b"");
//! assert!(!bucket.fits(&policy, 5_000_000, 1.into()));
//!
//! let mut bucket = bucket.advance(&policy, None, 6_000_000).state;
//! assert!(bucket.fits(&policy, 6_000_000, 1.into()));
//! assert_eq!(bucket.fresh_at(&policy), 6_000_000);
//! ```
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `calendar` | no | windows of local days, weeks, months and years: `Policy::calendar_window` |
//! | `serde` | no | `Serialize` and `Deserialize` of [`Quota`] and [`Algorithm`], as text |
//! | `test-util` | no | decisions that a test has written down, in [`raw`] |
//! | `testing` | no | what the tests of this project compare; not covered by semantic versioning |

// Whatever waits, locks for others, or sends belongs in the crates above.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "calendar")]
mod calendar;
mod concurrency;
mod customer;
mod debug_fields;
mod decision;
mod enforcement;
mod entry;
mod error;
mod key;
mod limits;
mod micros;
mod quota;
pub mod raw;
#[cfg(feature = "serde")]
mod serde;
#[cfg(feature = "testing")]
pub mod testing;

#[doc(inline)]
pub use limits::algorithm;
use limits::{charge, cost, lease, policy, policy_set, priority};

pub use algorithm::{Algorithm, StoredState};
#[cfg(feature = "calendar")]
pub use calendar::{Anchor, CalendarUnit, TimeZone};
pub use charge::Ceiling;
pub use concurrency::{Concurrency, OnLoss};
pub use cost::{Cost, Costs};
pub use customer::Customer;
pub use decision::{Decision, Denied, KeyState, PolicyState};
pub use enforcement::Enforcement;
pub use entry::Entry;
pub use error::{Error, ErrorKind, ForeignText};
pub use key::{Key, KeySecret};
pub use lease::Lease;
pub use policy::Policy;
pub use policy_set::{IntoPolicySet, PolicySet};
pub use priority::Priority;
pub use quota::Quota;

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
