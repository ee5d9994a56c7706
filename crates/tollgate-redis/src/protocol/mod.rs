//! The wire: scripts, their arguments and replies, and the errors of a server.
//! Nothing here sends or waits: that is done in `connect/`, `server/` and `dispatch/`.

mod batch;
mod check;
mod error;
pub(crate) mod hash_slot;
mod other_calls;
mod replies;
mod script;
mod script_error;

pub use batch::{BatchReply, MixedArgs, Outcome};
pub use check::{OUTSTANDING, Packed, decision, pack, pack_seen};
pub(crate) use error::{
    ErrorClass, StreamError, connecting, error, is_refused_in_move, is_unknown_command,
    rejects_connection,
};
pub use other_calls::{
    entries, pack_held, pack_permits, pack_refund, permit_grant, reserved, settlement,
};
pub(crate) use replies::{ReplyBound, ReplyScanner};
pub(crate) use script::{
    ENTRIES, EXCEPT, EXCEPTIONS, PERMITS, PUBLISH, REPLICAS, REPORT, SPENDING,
};
pub use script::{Purpose, Script, ScriptsOf, Shape};
pub(crate) use script_error::unwrapped;
pub use tollgate_core::raw::names::{write_key, write_permit_key, write_record_key};
pub(crate) use tollgate_core::raw::names::{write_metered, write_policy};
