//! The parts of a check that a store outside of this crate works on: charges, levels of policies, the
//! names of states, and the runtime's time.
//!
//! Use it to write a store that decides elsewhere, as `tollgate-redis` does with scripts on a server.
//! To keep bytes elsewhere and decide by the functions of this crate, implement `KeyValue` of
//! `tollgate-remote` instead: it needs nothing of this module. Semantic versioning covers it.

// Names only: each type and function stands in its room. Nothing that only this crate needs belongs
// here.

pub use crate::{
    lock::Lock,
    store::{
        bytes::{ByteStates, Bytes, decide_permits},
        check::CheckParts,
        exceptions::WeakExceptions,
        publication::WeakPublication,
        replicas::WeakReplicaCount,
        rules_in_force::WeakRulesInForce,
        spending::{TOLD_EVERY, WeakSpending},
        timer::answer_by,
    },
};

#[doc(inline)]
pub use tollgate_model::{
    algorithm::{PolicyLevel, algorithms, later, lowered, most_spent, unspent},
    raw::*,
};

/// Sets the gauges that every store on a server has.
pub mod metrics {
    pub use crate::store::metrics::*;
}

/// Writes the names under which states, reservations and permits are kept.
pub mod names {
    pub use crate::store::names::*;
}

/// Makes bits and names that no other process has.
pub mod random {
    pub use crate::random::*;
}

/// Reaches the tokio runtime of a caller: its time, and tasks that go on behind a store.
pub mod runtime {
    pub use crate::runtime::{Background, Running, current, now, since_epoch};
}
