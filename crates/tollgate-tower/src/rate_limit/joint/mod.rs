//! Requests that several limiters and keys decide together.

mod decider;
mod decision;
mod queue;

pub use decider::{JointFuture, RequestDecider};
pub use decision::JointDecision;
pub(crate) use queue::after_queues;
