//! The algorithms, as pure functions of a state, the current time and a cost.
//!
//! Each store that decides in Rust runs them, and the tests compare the Lua scripts with them bit for
//! bit. A [`State`] takes the steps of its algorithm:
//!
//! 1. [`advance`](State::advance), `settle` in the scripts, brings a stored state to the current time
//!    and to the current quota;
//! 2. [`fits`](State::fits) tests whether a cost fits;
//! 3. [`charge`](State::charge) spends a cost;
//! 4. [`reading`](State::reading) returns the few integers from which [`numbers`] derives what the caller
//!    sees.
//!
//! After the decision, [`refund`](State::refund) returns a cost, [`owe`](State::owe) charges one that
//! does not fit, and [`remember`](State::remember) keeps what a late refund has to know.
//!
//! A state that was advanced is stored when it was charged, and when it had to be *mended*: when it
//! was impossibly far ahead of the clock, or was written under another quota. In all other cases it
//! is dropped, so that a denial and a peek change nothing.
//!
//! States of fixed size are copied to be advanced. States that grow with the quota are on the heap
//! and are moved out instead. Advancing only counts their expired entries. The entries themselves
//! are removed by the next charge.

// Each algorithm has a row in `table.rs`, a file here and a file in `scripts/`, both with the same
// steps. Those of a decision are in `decide.rs`, those after it in `adjust.rs`, see `debt.rs` and
// `trace.rs`, and the bytes and the numbers in `meter.rs`.
//
// Files know each other one way: the kinds (`kind.rs`) and the leaves (`level`, `debt`, `stored`,
// `arguments`, `inspect`), the three traits, the algorithms, and last `state` and `numbers`, which
// choose among them.
//
// To add an algorithm, take `window_from_first_hit` as the example, or `lockout`, whose state, numbers
// and reading are its own. The compiler asks for the steps that are missing:
//
// 1. The function: a file here, with the state and the three traits.
//    The bound that the laws check is a row of `bound` in `tests/support/src/policies.rs`.
// 2. The script: `scripts/NAME.lua`, with the header that the others have, and the sections that
//    `shared.lua` has not. `CONTRIBUTING.md` says how to bless it.
// 3. The variant in `kind.rs`, its row in `table.rs`, which rules, command, laws and streams read,
//    and its arms in `state.rs`. The line of the script in `tollgate-redis/src/protocol/script/sources.rs`.
// 4. The constructor in `policy/constructors.rs`, with an example that asserts.
// 5. The documents: `docs/algorithms.md`, the tables of the guide and of `scripts/README.md`, a
//    picture of the traffic in `tests/tests/scripts/pictures.rs`, and `CHANGELOG.md`, also under
//    *Scripts*.
//
// Beside that: its arguments in `text.rs`, a limit of the quota in `policy/validity.rs`, numbers that
// depend on the time in `tollgate-redis/src/protocol/script/parts.rs`, a new form of `StoredState`, and
// the mutants of its Lua in `tests/tests/scripts/mutations.rs`.
//
// How several policies are charged together is not here but in `store/step.rs` of tollgate-core.

mod adjust;
mod arguments;
mod bucket;
#[cfg(feature = "calendar")]
mod calendar_window;
mod debt;
mod decide;
mod fixed_window;
mod inspect;
mod interval_bucket;
mod kind;
mod leaky_bucket;
mod level;
mod lockout;
mod meter;
mod numbers;
mod rate;
mod sliding_buckets;
mod sliding_log;
mod sliding_window;
mod state;
pub mod stored;
mod table;
mod text;
mod token_bucket;
mod trace;
mod window;
mod window_from_first_hit;

use adjust::Adjust;
pub use adjust::Refund;
use decide::Decide;
pub use inspect::StoredState;
pub use kind::Algorithm;
pub use level::{Numbers, PolicyLevel, Reading};
pub(crate) use lockout::LockTimes;
use meter::Meter;
pub(crate) use numbers::{args, ceiling_args, delay_us, end_of, period_us};
pub use numbers::{later, lowered, most_spent, numbers, unspent};
pub(crate) use sliding_buckets::Buckets;
pub use state::{Advanced, State};
pub use table::{AlgorithmParts, algorithms};
