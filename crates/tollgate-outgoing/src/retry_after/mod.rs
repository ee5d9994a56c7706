//! Delays outgoing requests until the remote server accepts them: for clients of an API whose limit
//! is unknown.
//!
//! A client learns the limits of a server from its responses: a status of 429 or 503 with
//! `Retry-After`, or rate limit headers without remaining units. [`RetryAfterLayer`] delays further
//! requests until the server accepts them again.
//!
//! When the limit of the server is known, an [`OutgoingLayer`](crate::OutgoingLayer) keeps it over all
//! replicas, and shares the delays between them.

// Delays of one process by what a server says. Pauses that all replicas share are in `pauses.rs`.

mod delay;
mod layer;
mod service;

pub(crate) use delay::{Settings, of as delay_of};
pub use layer::RetryAfterLayer;
pub(crate) use service::FOR_EVER;
pub use service::{Delay, RetryAfter};
