//! One server: its health, and the calls that are sent to it.

mod awaited;
mod breaker;
mod calls;
mod config;
mod distance;
mod distance_probe;
mod health;
mod not_executed;
mod probe;
mod state;

pub(in crate::redis) use awaited::Awaited;
pub(in crate::redis) use breaker::Breaker;
pub(in crate::redis) use calls::{Call, CallResult, Outgoing, PlainCall, ScriptCall, Sent, UnsentCount};
pub(in crate::redis) use config::ServerConfig;
pub(in crate::redis) use health::{DISTANT, far};
pub(in crate::redis) use not_executed::{CallError, NotExecuted, NotExecutedReason};
pub(in crate::redis) use probe::pause;
pub(in crate::redis) use state::Server;
