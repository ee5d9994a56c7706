//! The wire: scripts, their arguments and replies, and the errors of a server.

mod call;
mod error;
pub(in crate::redis) mod hash_slot;
mod reply;
mod script;
mod script_error;

#[cfg(all(feature = "calendar", feature = "testing"))]
pub(crate) use call::pack_seen;
pub(crate) use call::{
    MixedArgs, OUTSTANDING, pack, pack_held, pack_permits, pack_refund, permit_grant, write_key, write_permit_key,
    write_record_key,
};
pub(in crate::redis) use error::{ErrorClass, error, is_refused_in_move, rejects_connection};
pub(crate) use reply::{MixedReply, Outcome, decision, entries, outcomes, reserved, settlement};
pub(crate) use script::Script;
#[cfg(feature = "testing")]
pub(crate) use script::numbers;
pub(in crate::redis) use script_error::unwrapped;
