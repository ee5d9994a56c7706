//! The decision over several policies: all are charged, or none.
//!
//! The states of a key without branches are in one table. Those of a key with branches may be in several, which are
//! locked together.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    shards::LockedShards,
    state_table::{LoadedState, StateTable},
};
use crate::{
    Decision, Key, Policy, PolicySet,
    model::{
        algorithm::{PolicyLevel, Refund, Settled, State},
        cost::Ask,
        decision::PolicyLevels,
    },
    store::{
        Check, ReservationId, Settlement,
        reservation::{Change, Record, Records, Reserved},
    },
};

/// Finds the table of each policy of a check.
pub(super) trait Tables {
    /// Returns the table that holds the state of the policy, the hash of the outermost level of the key, and the key.
    fn of(&mut self, policy: &Policy) -> (&mut StateTable, u64, &Key);

    /// Returns the reservations of the key.
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

/// Decides over all policies of the check and charges all or none. The key has no branches.
#[inline]
pub(super) fn check_in(table: &mut StateTable, hash: u64, check: Check<'_>, now_us: u64) -> PolicyLevels {
    match check.policies.shared() {
        [policy] if !check.charge().is_capped() => PolicyLevels::one(table.check_one(hash, check, policy, now_us)),
        _ => check_all(&mut OneTable { table, hash, key: check.key }, check, now_us, false),
    }
}

/// Decides over all policies of the check, wherever their states are, and charges all or none. The charge of a
/// reservation is remembered, because its commit may return units late.
pub(super) fn check_all(tables: &mut impl Tables, check: Check<'_>, now_us: u64, is_reserved: bool) -> PolicyLevels {
    let mut loaded = load(tables, check, |at| check.charge().ask(at), now_us);
    let is_admitted = loaded.iter().all(|loaded| loaded.fits);
    let each = check.policies.shared().iter().zip(&mut loaded).enumerate();
    let levels = PolicyLevels::collect(each.map(|(at, (policy, loaded))| {
        let (cost, ask) = (check.cost_of(at).units(), check.charge().ask(at).denied_unless(loaded.fits));
        let is_free = !loaded.fits || cost == 0;
        let kept = if is_free { tables.of(policy).0.kept_words(loaded, policy, ask, now_us) } else { None };
        let LoadedState { settled: Settled { state, mended }, fits, is_written, .. } = loaded;
        let is_charged = is_admitted && cost > 0;
        if is_charged {
            state.charge(policy, now_us, cost, check.tag);
            if is_reserved {
                state.remember(now_us);
            }
        }
        // A peek changes no stored state.
        *is_written = is_charged || (*mended && cost > 0);
        let words = kept.unwrap_or_else(|| state.words(policy, now_us, ask));
        (&**policy, PolicyLevel { fits: *fits, words })
    }));
    write(tables, check, loaded, now_us);
    levels
}

/// Returns what [`check_all`] would decide, and changes nothing.
pub(super) fn look(tables: &mut impl Tables, check: Check<'_>, now_us: u64) -> PolicyLevels {
    let each = check.policies.shared().iter().enumerate();
    PolicyLevels::collect(each.map(|(at, policy)| {
        let ask = check.charge().ask(at);
        let (table, hash, key) = tables.of(policy);
        let stored = table.state(hash, key, policy).map(|(state, wrote)| (state.looked_at(), wrote));
        let state = match stored.clone() {
            Some((mut state, wrote)) => state.settle(policy, wrote, now_us).state,
            None => State::fresh(policy.algorithm()).settle(policy, policy, now_us).state,
        };
        let fits = state.fits(policy, now_us, ask);
        let kept = stored.filter(|_| !fits || ask.cost == 0);
        let kept = kept.and_then(|(state, wrote)| state.kept_words(policy, wrote, now_us, ask));
        let words = kept.unwrap_or_else(|| state.words(policy, now_us, ask.denied_unless(fits)));
        (&**policy, PolicyLevel { fits, words })
    }))
}

/// Refunds the cost of `check`, which was spent at `spent_us`. `decision` has the places in a queue.
pub(super) fn refund(
    tables: &mut impl Tables,
    check: Check<'_>,
    now_us: u64,
    spent_us: u64,
    decision: Option<&Decision>,
) {
    change(tables, check, now_us, spent_us, |at| {
        let cost = check.cost_of(at).units();
        let ahead = || decision.and_then(|decision| decision.ahead_of(at));
        let end = || ahead().map(|(whole, part)| (spent_us + whole, part));
        if cost == 0 { Change::None } else { Change::Refund(cost, end()) }
    });
}

/// Decides a check and records what it charges, or repeats the answer of the reservation that is held.
pub(super) fn reserve(
    tables: &mut impl Tables,
    check: Check<'_>,
    id: &ReservationId,
    life_us: u64,
    now_us: u64,
) -> Reserved {
    if let Some(record) = tables.records().get_mut(check.policies, check.key, id, now_us) {
        return record.repeated(check.policies);
    }
    let levels = check_all(tables, check, now_us, true);
    if levels.fit() {
        tables.records().insert(check.policies, check.key, id, Record::new(check, &levels, now_us, life_us));
    }
    Reserved { levels, charge: check.charge().to_owned(), at_us: now_us }
}

/// Settles a reservation at the costs of `check`, by the commit of this number.
pub(super) fn commit(
    tables: &mut impl Tables,
    check: Check<'_>,
    id: &ReservationId,
    number: u64,
    now_us: u64,
) -> Settlement {
    let Some(record) = tables.records().get_mut(check.policies, check.key, id, now_us) else {
        return Settlement::Lapsed;
    };
    let settlement = record.settle(number);
    if settlement == Settlement::Settled {
        let record = record.clone();
        change(tables, check, now_us, record.at_us, |at| {
            record.change(at, &check.policies.shared()[at], check.cost_of(at))
        });
    }
    settlement
}

/// Changes the states of a check. What is refunded was spent at `spent_us`. A state that is fresh after a refund is
/// removed.
fn change(tables: &mut impl Tables, check: Check<'_>, now_us: u64, spent_us: u64, change: impl Fn(usize) -> Change) {
    for (at, policy) in check.policies.shared().iter().enumerate() {
        let change = change(at);
        if change == Change::None {
            continue;
        }
        let (table, hash, key) = tables.of(policy);
        table.settle(hash, key, policy, now_us, |state, wrote| match change {
            Change::None => false,
            Change::Owe(cost) => state.owe(policy, wrote, now_us, cost),
            Change::Refund(cost, end) => state.refund(&Refund { policy, wrote, now_us, spent_us, cost, end }),
        });
    }
}

/// Removes the states that belong to a key, or to one branch of it, alone.
pub(super) fn reset(tables: &mut impl Tables, policies: &PolicySet, key: &Key) {
    for policy in policies.iter().filter(|policy| policy.is_own(key)) {
        let (table, hash, branch) = tables.of(policy);
        table.remove(hash, branch, policy);
    }
}

/// Loads the states of a decision.
fn load(
    tables: &mut impl Tables,
    check: Check<'_>,
    ask: impl Fn(usize) -> Ask,
    now_us: u64,
) -> SmallVec<[LoadedState; 4]> {
    let load = |(at, policy): (usize, &Arc<Policy>)| {
        let (table, hash, key) = tables.of(policy);
        table.load(hash, key, policy, ask(at), now_us)
    };
    check.policies.shared().iter().enumerate().map(load).collect()
}

/// Writes the states that were charged or mended, and puts back the states that were moved out.
fn write(tables: &mut impl Tables, check: Check<'_>, loaded: SmallVec<[LoadedState; 4]>, now_us: u64) {
    let mut absent = SmallVec::<[_; 4]>::new();
    for (policy, loaded) in check.policies.shared().iter().zip(loaded) {
        absent.extend(tables.of(policy).0.write(policy, loaded, now_us).map(|state| (policy, state)));
    }
    // New states are inserted last, because an insertion may move the other states.
    for (policy, state) in absent {
        let (table, hash, key) = tables.of(policy);
        table.add(hash, key, policy, state, now_us);
    }
}
