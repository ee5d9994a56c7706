//! The leases of today: processes take units of a policy from its server in advance.
//!
//! The rules are no copy. The server is [`Account`] and [`step`], which the tests compare with the
//! scripts byte by byte, and a process is [`HeldUnits`], by which `RedisStore` spends. The
//! exploration decides when calls are made, and what happens to messages, clocks, servers and
//! processes.
//!
//! | file | holds |
//! |---|---|
//! | `setting.rs` | the policy, how often things happen, and the mistakes |
//! | `world.rs` | the server, the processes, and the messages on their way |
//! | `steps.rs` | what may happen, and what it changes |
//! | `server.rs` | how a call is served, with the lines that a mistake changes |
//! | `invariants.rs` | what has to hold in every state |
//! | `bound.rs` | what the algorithms promise, counted without them |
//! | `rows.rs` | the settings that are explored |
//! | `mistakes.rs` | settings with a wrong line of the rules, and the invariant that finds each |
//!
//! It differs from the code in this: a process asks for a fixed number of units at any time, where the
//! code estimates its demand, and it makes one or two calls at a time. No unit is refunded, no key is
//! reset, and no quota changes: `tests/tests/laws/leases.rs` draws these at random. A call that is
//! sent again carries no reports, in the code and here. So it is another call.
//!
//! [`Account`]: tollgate_test_support::leases::Account
//! [`step`]: tollgate_test_support::leases::step
//! [`HeldUnits`]: tollgate::testing::HeldUnits

mod bound;
mod invariants;
mod mistakes;
mod rows;
mod server;
mod setting;
mod steps;
mod world;

pub use mistakes::mistakes;
pub use rows::rows;
pub use setting::{Budget, Mistake, Setting};
pub use steps::Step;
pub use world::World;
