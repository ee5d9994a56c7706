//! Provides what the tests of several files share.
//!
//! `tollgate-tests` starts servers and programs and does not know Tollgate, because the crates use
//! it in their own tests. This crate knows Tollgate: it builds limiters, drives both stores on a
//! clock that the test moves, generates streams of checks, and starts the deployments of Redis that
//! a suite runs on.

mod adapted;
mod alteration;
pub mod calls;
mod clock_jumps;
mod clock_skew;
mod crowd;
mod deployment;
mod described;
mod dice;
mod in_postgres;
pub mod leases;
mod limiters;
mod losing_store;
pub mod lost_settlements;
pub mod mixed;
pub mod permits;
pub mod policies;
pub mod recorded_policies;
mod stores;
pub mod stream;
mod subject;
pub mod traces;

pub use adapted::{Adapted, Bytes, InMap, Map};
pub use alteration::{Alteration, Mutants, find_mutants, mistakes};
pub use clock_jumps::{JUMPS, JumpingServer, Landing, PHASES, SPENT, longest_wrong_denial};
pub use clock_skew::{SKEWS, answers_under_skew, run_caller};
pub use crowd::{Crowd, Turns, run_crowd};
pub use deployment::{Deployment, Kind};
pub use described::described;
pub use dice::Dice;
pub use in_postgres::{Churned, POSTGRES, Rows, churn, client, in_postgres, new_table};
pub use leases::{
    Admission, LEASED_PER_SECOND, LeaseReplicas, MOST_LEASED, compare_leases, leased_algorithms,
    most_above, run_lease_replica,
};
pub use limiters::{
    PATIENCE, connected_store, decided, decided_at, opened_store, patient_limiter, remaining,
    remaining_of_each,
};
pub use losing_store::LosingStore;
pub use stores::SilentStore;
pub use subject::{
    InMemory, InRedis, START_US, Stored, Subject, integers, own_keys, reserved, state_commands,
    stored_state,
};
