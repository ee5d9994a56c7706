//! The way of a check to one server: its caller sends it, or it is queued and sent in a batch.
//! Which server that is, is decided before, in `backend.rs` and `cluster/`. Checks that need no
//! server end in `store.rs`.

mod batch;
mod pacer;
mod queue;
mod request;
mod sender;
mod worker;

pub(crate) use request::{CheckRequest, SlotShare};
pub(crate) use sender::{PendingCheck, Sender, StoreConfig};
