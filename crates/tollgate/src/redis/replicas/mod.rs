//! The processes with the same limits count themselves.

mod counter;
mod task;
mod window;

pub(in crate::redis) use counter::{Counts, ReplicaCounter};
pub(in crate::redis) use task::{add_call, key_text, start};
