//! Permits, as a store sees them: the call, and the pure function that decides it.

mod request;
mod state;

pub use request::{PermitGrant, PermitOutcome, PermitRequest};
pub(crate) use state::PermitState;
