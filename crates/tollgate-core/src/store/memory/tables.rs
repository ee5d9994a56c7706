//! The states of one key, in the tables that are locked for a decision.
//!
//! The states of a key without branches are in one table. Those of a key with branches may be in
//! several, which are locked together.
//! What is decided with them is in `store/step.rs`; locks are taken in `store.rs` beside.

use std::sync::Arc;

use tollgate_model::{
    algorithm::State,
    raw::{PolicyLevels, PolicyParts, PolicySetParts},
};

use super::{shards::LockedShards, state_table::StateTable};
use crate::{
    Key, Policy,
    store::{
        Check, ReservationId,
        reservation::{Record, Records},
        step::{self, States},
    },
};

/// Finds the table of each policy of a check.
pub(super) trait Tables {
    /// Returns the table that holds the state of the policy, the hash of the outermost level of the
    /// key, and the key.
    fn of(&mut self, policy: &Policy) -> (&mut StateTable, u64, &Key);

    fn records(&mut self) -> &mut Records;
}

/// The table of a key without branches.
pub(super) struct OneTable<'a> {
    pub(super) table: &'a mut StateTable,
    pub(super) hash: u64,
    pub(super) key: &'a Key,
}

impl Tables for OneTable<'_> {
    #[inline]
    fn of(&mut self, _policy: &Policy) -> (&mut StateTable, u64, &Key) {
        (self.table, self.hash, self.key)
    }

    fn records(&mut self) -> &mut Records {
        self.table.records()
    }
}

/// The tables of a key with branches, which are locked.
pub(super) struct BranchTables<'a> {
    pub(super) tables: LockedShards<'a, StateTable>,
    /// The hash of the outermost level of each branch.
    pub(super) hashes: &'a [u64],
    pub(super) key: &'a Key,
}

impl Tables for BranchTables<'_> {
    fn of(&mut self, policy: &Policy) -> (&mut StateTable, u64, &Key) {
        let hash = self.hashes[usize::from(policy.branch() - 1)];
        (self.tables.shard(hash), hash, policy.branch_of(self.key))
    }

    fn records(&mut self) -> &mut Records {
        self.tables.shard(self.hashes[0]).records()
    }
}

impl<T: Tables> States for T {
    fn find(&mut self, _at: usize, policy: &Policy) -> Option<usize> {
        let (table, hash, key) = self.of(policy);
        table.find(hash, key, policy)
    }

    fn state(
        &mut self,
        _at: usize,
        policy: &Policy,
        place: usize,
    ) -> Option<(&mut State, Option<f64>)> {
        self.of(policy).0.state_at(place, policy)
    }

    fn set(
        &mut self,
        _at: usize,
        policy: &Arc<Policy>,
        place: Option<usize>,
        state: State,
        stored_interval: Option<f64>,
        now_us: u64,
    ) {
        let (table, hash, key) = self.of(policy);
        match place {
            Some(place) => table.replace(place, policy, state, stored_interval.is_some()),
            None => table.add(hash, key, policy, state, now_us),
        }
    }

    fn remove(&mut self, _at: usize, policy: &Policy) {
        let (table, hash, key) = self.of(policy);
        table.remove(hash, key, policy);
    }

    fn record(&mut self, check: Check<'_>, id: &ReservationId, now_us: u64) -> Option<Record> {
        self.records()
            .get(check.policies, check.key, id, now_us)
            .cloned()
    }

    fn set_record(&mut self, check: Check<'_>, id: &ReservationId, record: Record) {
        self.records().insert(check.policies, check.key, id, record);
    }
}

/// Decides over all policies of the check and charges all or none. The key has no branches.
#[inline]
pub(super) fn check_in(
    table: &mut StateTable,
    hash: u64,
    check: Check<'_>,
    now_us: u64,
) -> PolicyLevels {
    match check.policies.shared() {
        [policy] if !check.charge().is_capped() => {
            PolicyLevels::one(table.check_one(hash, check, policy, now_us))
        }
        [policy] => PolicyLevels::one(table.check_capped(hash, check, policy, now_us)),
        _ => step::check(
            &mut OneTable {
                table,
                hash,
                key: check.key,
            },
            check,
            now_us,
            false,
        ),
    }
}
