//! The wire: scripts, their arguments and replies, and the errors of a server.
//! Nothing here sends or waits: that is done in `connect/`, `server/` and `dispatch/`.

mod batch;
mod check;
mod error;
pub(in crate::redis) mod hash_slot;
mod other_calls;
mod replies;
mod script;
mod script_error;

pub use crate::store::names::{write_key, write_permit_key, write_record_key};
pub(crate) use crate::store::names::{write_metered, write_policy};
pub use batch::{BatchReply, MixedArgs, Outcome};
pub use check::{OUTSTANDING, Packed, decision, numbers, pack, pack_seen};
pub(in crate::redis) use error::{
    ErrorClass, Told, connecting, error, is_refused_in_move, is_unknown_command, rejects_connection,
};
pub use other_calls::{
    entries, pack_held, pack_permits, pack_refund, permit_grant, reserved, settlement,
};
pub(in crate::redis) use replies::{ReplyBound, ReplyScanner};
pub use script::{Script, ScriptsOf, Shape};
pub(in crate::redis) use script_error::unwrapped;
