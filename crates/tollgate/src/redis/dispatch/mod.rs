//! The way of a check to one server: it is queued, sent in a batch, and answered or timed out.

mod batch;
mod dispatcher;
mod pacer;
mod queue;
mod request;
mod worker;

pub(in crate::redis) use dispatcher::{PendingCheck, ServerHandle, StoreConfig};
pub(in crate::redis) use request::{CheckRequest, SlotShare};
