//! The way of a check to one server: it is queued, sent in a batch, and answered or timed out.

mod batch;
mod check;
mod dispatcher;
mod group;
mod load;
mod queue;
mod request;
mod sent;
mod window;
mod worker;

pub(in crate::redis) use check::PendingCheck;
pub(in crate::redis) use dispatcher::{ServerHandle, StoreConfig};
pub(in crate::redis) use request::{CheckRequest, SlotShare};
