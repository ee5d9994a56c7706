//! The algorithms, as pure functions of a state, the current time and a cost.
//!
//! The in-process store runs them, and the tests compare the Lua scripts with them bit for bit.
//! Each algorithm has a row in the [table], a file here and a file in `scripts/`, both with the same five steps, see [`Meter`]:
//!
//! 1. *settle* brings a stored state to the current time and to the current quota;
//! 2. *fits* tests whether a cost fits;
//! 3. *charge* spends a cost;
//! 4. *refund* returns a cost;
//! 5. *words* returns the few integers from which [`numbers()`] derives what the caller sees.
//!
//! Two more steps belong to reservations: *owe* charges a cost that does not fit, see [`debt`], and *remember* keeps what a late
//! refund has to know, see [`trace`].
//!
//! A settled state is stored when it was charged, and when it had to be *mended*: when it was
//! impossibly far ahead of the clock, or was written under another quota. In all other cases it is
//! dropped, so that a denial and a peek change nothing.
//!
//! States of fixed size are copied to be settled. States that grow with the quota are on the heap
//! and are moved out instead. Settling only counts their expired entries. The entries themselves
//! are removed by the next charge.

mod bucket;
#[cfg(feature = "calendar")]
mod calendar_window;
mod debt;
mod fixed_window;
mod inspect;
mod interval_bucket;
mod leaky_bucket;
mod meter;
mod numbers;
mod sliding_buckets;
mod sliding_log;
mod sliding_window;
mod state;
#[cfg(feature = "testing")]
mod stored;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod token_bucket;
mod trace;
mod window;
mod window_from_first_hit;

pub use inspect::StoredState;
use meter::Meter;
#[cfg(feature = "testing")]
pub(crate) use numbers::bound;
pub(crate) use numbers::{Numbers, PolicyLevel, Words, delay_us, end_of, free, numbers};
#[cfg(feature = "redis")]
pub(crate) use numbers::{args, ceiling_args, later, lowered, most_spent, unspent};
pub(crate) use sliding_buckets::Buckets;
pub(crate) use state::Settled;
#[cfg(feature = "testing")]
pub use stored::{Stored, Value};
pub use table::Algorithm;
#[cfg(any(test, feature = "redis"))]
pub(crate) use table::ROWS;
pub(crate) use table::State;
#[cfg(feature = "redis")]
pub(crate) use table::source;
