//! The algorithms as pure functions over (state, now, cost).
//!
//! They are the in-process engine and the oracle that the Lua scripts are compared with, bit for
//! bit. Each file has the same five steps, and so has each file in `scripts/`:
//!
//! 1. *settle*: bring a stored state to `now` under the quota in force;
//! 2. *fits*: would this cost pass;
//! 3. *charge*: spend it;
//! 4. *refund*: give some back;
//! 5. *words*: the few integers from which [`numbers`] derives what the caller is told.
//!
//! A settled state is written back when it was charged, or when it had to be *mended*: it lay
//! impossibly far ahead of the clock, or another quota wrote it. Otherwise it is thrown away, so
//! that a denial and a peek leave no trace.
//!
//! States of fixed size are copied to be settled. Those that grow with the limit live on the heap
//! and are moved out instead; settling them only notes what has left, and the entries themselves
//! stay as they were stored until something is charged.

mod fixed_window;
mod interval_bucket;
mod kind;
mod level;
mod numbers;
mod sliding_buckets;
mod sliding_log;
mod sliding_window;
mod state;
#[cfg(feature = "testing")]
mod stored;
#[cfg(test)]
mod tests;
mod token_bucket;

pub use kind::Algorithm;
pub(crate) use level::{Numbers, PolicyLevel};
pub(crate) use numbers::{delay_us, numbers};
#[cfg(feature = "redis")]
pub(crate) use numbers::{later, unspent};
pub(crate) use sliding_buckets::Buckets;
pub(crate) use state::{Settled, State};
#[cfg(feature = "testing")]
pub use stored::{Stored, Value};
