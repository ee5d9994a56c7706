//! The wire: scripts, their arguments and replies, and the errors of a server.

mod error;
mod reply;
mod script;
mod script_set;

pub(in crate::redis) use error::{ErrorClass, error, rejects_connection};
#[cfg(feature = "testing")]
pub(crate) use reply::Outcome;
pub(crate) use reply::{decision, entries, outcomes};
pub(in crate::redis) use script::Script;
#[cfg(feature = "testing")]
pub(crate) use script::args;
pub(crate) use script_set::ScriptSet;
