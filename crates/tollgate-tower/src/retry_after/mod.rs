//! Delays outgoing requests until the remote server accepts them: for clients of an API whose limit
//! is unknown.
//!
//! A client learns the limits of a server from its responses: a status of 429 or 503 with
//! `Retry-After`, or rate limit headers without remaining units. [`RetryAfterLayer`] delays further
//! requests until the server accepts them again.
//!
//! When the limit of the server is known, `outgoing::OutgoingLayer` (feature `outgoing`) keeps it
//! over all replicas, and shares the delays between them.

// Delays of one process by what a server says. Limits that all replicas share are in `outgoing/`.

mod delay;
mod layer;
mod service;

#[cfg(feature = "outgoing")]
pub(crate) use delay::of as delay_of;
pub use layer::RetryAfterLayer;
#[cfg(feature = "outgoing")]
pub(crate) use layer::Settings;
#[cfg(feature = "outgoing")]
pub(crate) use service::FOR_EVER;
pub use service::{Delay, RetryAfter};
