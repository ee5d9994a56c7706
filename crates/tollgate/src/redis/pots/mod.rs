//! The units that this process was granted, so that most checks of a leased key need no call.
//!
//! | file | purpose |
//! |---|---|
//! | `table.rs` | finds the entry of a key, spends its units, and drops entries |
//! | `entry.rs` | one key and its policies: the units, the demand, and the answer to the last trip |
//! | `charges.rs` | the times at which the server has charged units that were spent here |
//! | `trip.rs` | what a call of a leased key takes from its entry, and what its answer brings |

mod charges;
mod entry;
mod table;
mod trip;

pub(in crate::redis) use table::{Holder, Pots};
pub(in crate::redis) use trip::Trip;
