//! The skeleton of the layers that admit or reject requests.
//!
//! Such a layer decides on the head of a request, lets it wait where the decision takes time, calls the service, and completes
//! the response. [`Gated`] does this for all of them, and [`Gate`] is what a layer adds. A layer is a handle to what its
//! clones share, so that the service keeps one beside the inner service.

mod options;
mod service;

pub(crate) use options::{FromParts, GateOptions};
pub(crate) use service::{Gate, Verdict, take_ready};
pub use service::{Gated, ResponseFuture};
