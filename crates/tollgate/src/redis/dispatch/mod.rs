//! The way of a check to one server: it is queued, sent in a batch, and answered or timed out.

mod batch;
mod check;
mod deadline;
mod direct;
mod dispatcher;
mod group;
mod handle;
mod inbox;
mod known_scripts;
mod load;
mod queue;
mod request;
mod sent;
mod traffic;
mod window;
mod worker;

pub(in crate::redis) use check::PendingCheck;
pub(in crate::redis) use handle::{ServerHandle, StoreConfig};
pub(in crate::redis) use request::{CheckRequest, SlotShare};
