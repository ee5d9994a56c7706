//! One server: its health, and the calls that are sent to it.

mod breaker;
mod calls;
mod health;
mod not_executed;
mod state;

pub(in crate::redis) use breaker::Breaker;
pub(in crate::redis) use calls::{Awaited, Call, CallResult, Outgoing, PlainCall, ScriptCall, Sent, UnsentCount};
pub(in crate::redis) use health::{DISTANT, far, pause};
pub(in crate::redis) use not_executed::{CallError, NotExecuted, NotExecutedReason};
pub(in crate::redis) use state::{Server, ServerConfig};
