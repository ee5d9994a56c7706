//! The calls that a [`RedisStore`](tollgate::RedisStore) makes, on any content and at any time.

mod held;
mod lease;
mod mixed;
mod permits;
mod script;

pub use lease::{Call, LeaseScript};
pub use mixed::{MixedBatch, MixedSubject};
pub use permits::{permit_call, permit_key, permit_text, read_permits};
pub use script::{Script, entries};
