//! Processes make themselves and their limits known to each other and to operators, wherever the
//! counts are.

mod counter;
mod exchange;
mod publisher;

pub(crate) use counter::{
    CALL_TIMEOUT, GroupCounter, INTERVAL, LAPSE_US, PROCESS, ReplicaCounter, SUBJECT,
};
pub(crate) use exchange::Exchange;
pub(crate) use publisher::{Publications, Publisher, Share};
