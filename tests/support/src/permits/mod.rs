//! Replicas that share permits at one server, for the tests.

mod held;
mod journal;
mod lost_replies;
mod lowered;
mod older_copy;
mod processes;
mod replica;
mod worker;

pub use held::{Holder, PERMITS_KEY, held_by_all, holders, most_held_while};
pub use journal::{Span, begun_above, most_at_once, now_us};
pub use lost_replies::{AfterLoss, LostReply};
pub use lowered::begun_above_a_lowered_limit;
pub use older_copy::OlderCopy;
pub use processes::{AT_ONCE, SharedPermits};
pub use replica::{closed_permits, take_permit};
pub use worker::run_permit_worker;
