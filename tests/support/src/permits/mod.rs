//! Replicas that share permits at one server, for the tests and for the fault suite.

mod held;
mod journal;
mod lost_replies;
mod processes;
mod replica;

pub use held::{Holder, PERMITS_KEY, held_by_all, holders, most_held_while};
pub use journal::{Span, last_above, most_at_once, now_us};
pub use lost_replies::{AfterLoss, LostReply};
pub use processes::{AT_ONCE, SharedPermits, run_permit_worker};
pub use replica::{closed_permits, take_permit};
