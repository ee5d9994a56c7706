use std::{ptr, sync::Arc};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use smallvec::SmallVec;

use super::stored_key::{KeyProbe, StoredKey};
use crate::{
    Check, Cost, Decision, Key, Policy, PolicySet, ReservationId, Settlement,
    algorithm::{PolicyLevel, Settled, State},
    key::hash_text,
    policy_levels::PolicyLevels,
    reservation::{Change, Record, Records, Reserved},
};

/// Holds the states of one shard. All policies of a key are in the same shard, with all levels of the key, so one lock
/// covers a whole decision.
///
/// The hash that a function takes is that of the outermost level. It is the hash of the whole key for a key of one level.
#[derive(Debug)]
pub(super) struct StateTable {
    states: HashTable<StateEntry>,
    room: usize,
    hasher: RandomState,
    records: Records,
}

/// A state and the policy that wrote it. It fills exactly one cache line of the processor.
#[derive(Debug)]
#[repr(align(64))]
struct StateEntry {
    key: StoredKey,
    policy: Arc<Policy>,
    state: State,
}

const _: () = assert!(size_of::<StateEntry>() == 64);

/// A state that was loaded for a decision.
struct LoadedState {
    /// The bucket that holds the stored state; `None` when no state is stored.
    index: Option<usize>,
    settled: Settled,
    fits: bool,
    /// Tells whether the state is stored. When it is not, a state that was moved out is put back unchanged.
    is_written: bool,
}

impl StateEntry {
    #[inline]
    fn is_of(&self, key: KeyProbe<'_>, policy: &Policy) -> bool {
        self.key.is(key) && (ptr::eq(&*self.policy, policy) || self.policy.shares_state(policy))
    }

    /// Records the policy that wrote the state.
    #[inline]
    fn set_policy(&mut self, policy: &Arc<Policy>) {
        if !Arc::ptr_eq(&self.policy, policy) {
            self.replace_policy(policy);
        }
    }

    #[cold]
    fn replace_policy(&mut self, policy: &Arc<Policy>) {
        if self.policy.quota_ref() != policy.quota_ref() || self.policy.algorithm() != policy.algorithm() {
            self.policy = Arc::clone(policy);
        }
    }
}

impl StateTable {
    pub(super) fn new(room: usize, hasher: RandomState) -> Self {
        let records = Records::new(room, hasher.clone());
        Self { states: HashTable::new(), room, hasher, records }
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// Decides over all policies of the check and charges all or none.
    #[inline]
    pub(super) fn check(&mut self, hash: u64, check: Check<'_>, now_us: u64) -> PolicyLevels {
        match check.policies.shared() {
            [policy] => PolicyLevels::one(self.check_one(hash, check, policy, now_us)),
            _ => self.check_all(hash, check, now_us),
        }
    }

    /// Decides as [`check_all`](Self::check_all) does, for the common case of one policy: the state
    /// is changed in place, without moving it out.
    #[inline]
    fn check_one(&mut self, hash: u64, check: Check<'_>, policy: &Arc<Policy>, now_us: u64) -> PolicyLevel {
        let cost = check.cost.units();
        let (slot, key) = (self.slot(hash, check.key, policy), probe(check.key, policy));
        if let Some(entry) = self.states.find_mut(slot, |entry| entry.is_of(key, policy)) {
            let (level, is_written) = entry.state.decide(policy, &entry.policy, now_us, cost, check.tag);
            if is_written {
                entry.set_policy(policy);
            }
            return level;
        }
        let mut state = State::fresh(policy.algorithm());
        let (level, is_written) = state.decide(policy, policy, now_us, cost, check.tag);
        if is_written {
            self.insert(slot, check.key, policy, state, now_us);
        }
        level
    }

    fn check_all(&mut self, hash: u64, check: Check<'_>, now_us: u64) -> PolicyLevels {
        let mut loaded = self.load(hash, check, now_us);
        let is_admitted = loaded.iter().all(|loaded| loaded.fits);
        let each = check.policies.shared().iter().zip(&mut loaded).enumerate();
        let levels = PolicyLevels::collect(each.map(|(at, (policy, loaded))| {
            let LoadedState { settled: Settled { state, mended }, fits, is_written, .. } = loaded;
            let cost = check.cost_of(at).units();
            let is_charged = is_admitted && cost > 0;
            if is_charged {
                state.charge(policy, now_us, cost, check.tag);
            }
            // A peek changes no stored state.
            *is_written = is_charged || (*mended && cost > 0);
            let words = state.words(policy, now_us, if *fits { 0 } else { cost });
            (&**policy, PolicyLevel { fits: *fits, words })
        }));
        self.write(hash, check, loaded, now_us);
        levels
    }

    /// Loads the states of a decision. A state that was moved out has to be written or put back.
    fn load(&mut self, hash: u64, check: Check<'_>, now_us: u64) -> SmallVec<[LoadedState; 4]> {
        let load = |(at, policy): (usize, &Arc<Policy>)| {
            let (slot, key) = (slot(&self.hasher, hash, check.key, policy), probe(check.key, policy));
            let index = self.states.find_bucket_index(slot, |entry| entry.is_of(key, policy));
            let settled = match index.and_then(|index| self.states.get_bucket_mut(index)) {
                Some(entry) => entry.state.settle(policy, &entry.policy, now_us),
                None => State::fresh(policy.algorithm()).settle(policy, policy, now_us),
            };
            LoadedState {
                index,
                fits: settled.state.fits(policy, now_us, check.cost_of(at).units()),
                settled,
                is_written: false,
            }
        };
        check.policies.shared().iter().enumerate().map(load).collect()
    }

    /// Writes the states that were charged or mended, and puts back the states that were moved out.
    fn write(&mut self, hash: u64, check: Check<'_>, loaded: SmallVec<[LoadedState; 4]>, now_us: u64) {
        let mut absent = SmallVec::<[_; 4]>::new();
        for (policy, LoadedState { index, settled: Settled { mut state, mended }, is_written, .. }) in
            check.policies.shared().iter().zip(loaded)
        {
            if is_written {
                state.mark_debt(policy, now_us);
            }
            match index.and_then(|index| self.states.get_bucket_mut(index)) {
                Some(entry) if is_written => {
                    entry.state = state;
                    entry.set_policy(policy);
                }
                Some(entry) if !mended && state.is_moved() => entry.state = state,
                None if is_written => absent.push((policy, state)),
                _ => {}
            }
        }
        // New states are inserted last, because an insertion may move the other states.
        for (policy, state) in absent {
            self.insert(self.slot(hash, check.key, policy), check.key, policy, state, now_us);
        }
    }

    /// Refunds the cost of `check`, which was spent at `spent_us`. `decision` tells the places in a queue.
    pub(super) fn refund(
        &mut self,
        hash: u64,
        check: Check<'_>,
        now_us: u64,
        spent_us: u64,
        decision: Option<&Decision>,
    ) {
        self.change(hash, check, now_us, spent_us, |at, _| {
            let cost = check.cost_of(at).units();
            let end = || decision.and_then(|decision| decision.end_of(at));
            if cost == 0 { Change::None } else { Change::Refund(cost, end()) }
        });
    }

    /// Decides a check and records what it charges, or repeats the answer of the reservation that is held.
    pub(super) fn reserve(
        &mut self,
        hash: u64,
        check: Check<'_>,
        id: &ReservationId,
        life_us: u64,
        now_us: u64,
    ) -> Reserved {
        let is_held = match self.records.get_mut(check.key, id, now_us) {
            Some(record) => match record.repeated(check.policies) {
                Some(repeated) => return repeated,
                None => true,
            },
            None => false,
        };
        // A reservation of other policies is held: this call charges nothing.
        let check = if is_held { Check::new(check.policies, check.key, Cost::ZERO) } else { check };
        let levels = self.check(hash, check, now_us);
        if !is_held && levels.fit() {
            self.records.insert(check.key, id, Record::new(check, &levels, now_us, life_us));
        }
        Reserved { levels, charge: check.charge().to_owned(), at_us: now_us }
    }

    /// Settles a reservation at the costs of `check`, by the commit of this number.
    pub(super) fn commit(
        &mut self,
        hash: u64,
        check: Check<'_>,
        id: &ReservationId,
        number: u64,
        now_us: u64,
    ) -> Settlement {
        let Some(record) = self.records.get_mut(check.key, id, now_us) else {
            return Settlement::Lapsed;
        };
        let settlement = record.settle(number);
        if settlement == Settlement::Settled {
            let record = record.clone();
            self.change(hash, check, now_us, record.at_us, |at, policy| record.change(policy, check.cost_of(at)));
        }
        settlement
    }

    /// Returns the record of a reservation.
    #[cfg(feature = "testing")]
    pub(super) fn record(&mut self, key: &Key, id: &ReservationId, now_us: u64) -> Option<&Record> {
        self.records.get_mut(key, id, now_us).map(|record| &*record)
    }

    /// Changes the states of a check. What is refunded was spent at `spent_us`. A state that is fresh after a refund is
    /// removed.
    fn change(
        &mut self,
        hash: u64,
        check: Check<'_>,
        now_us: u64,
        spent_us: u64,
        change: impl Fn(usize, &Policy) -> Change,
    ) {
        // A change may name more units than any request can cost, so it does not ask whether they fit.
        let mut loaded = self.load(hash, Check::new(check.policies, check.key, Cost::ZERO), now_us);
        let mut fresh = SmallVec::<[_; 4]>::new();
        for (at, (policy, loaded)) in check.policies.shared().iter().zip(&mut loaded).enumerate() {
            let state = &mut loaded.settled.state;
            match change(at, policy) {
                Change::None => {}
                Change::Owe(cost) => loaded.is_written = state.owe(policy, now_us, cost),
                Change::Refund(cost, end) => {
                    state.refund(policy, now_us, spent_us, cost, end);
                    loaded.is_written = state.fresh_at(policy) > now_us;
                    if !loaded.is_written {
                        fresh.push(policy);
                    }
                }
            }
        }
        self.write(hash, check, loaded, now_us);
        for policy in fresh {
            self.remove(hash, check.key, policy);
        }
    }

    /// Removes the states that belong to the key alone.
    pub(super) fn reset(&mut self, hash: u64, policies: &PolicySet, key: &Key) {
        for policy in policies.iter().filter(|policy| policy.is_own(key)) {
            self.remove(hash, key, policy);
        }
    }

    /// Returns the state of a key and the policy that wrote it.
    pub(super) fn state(&self, hash: u64, key: &Key, policy: &Policy) -> Option<(&State, &Policy)> {
        let (slot, key) = (self.slot(hash, key, policy), probe(key, policy));
        let entry = self.states.find(slot, |entry| entry.is_of(key, policy))?;
        Some((&entry.state, &entry.policy))
    }

    #[inline]
    fn slot(&self, hash: u64, key: &Key, policy: &Policy) -> u64 {
        slot(&self.hasher, hash, key, policy)
    }

    /// Adds the state of a key that has none.
    #[cold]
    fn insert(&mut self, slot: u64, key: &Key, policy: &Arc<Policy>, state: State, now_us: u64) {
        if self.states.len() >= self.room {
            self.make_room(now_us);
        }
        let hasher = &self.hasher;
        let rehash = |entry: &StateEntry| slot_hash(hash_text(hasher, entry.key.as_bytes()), &entry.policy);
        // The last two doublings are done in one step: the table is moved once and not twice.
        if self.states.len() == self.states.capacity() && self.states.len() >= self.room / 4 {
            self.states.reserve(self.room.saturating_sub(self.states.len()), rehash);
        }
        self.states.insert_unique(
            slot,
            StateEntry { key: StoredKey::of(key.level(policy.depth())), policy: Arc::clone(policy), state },
            rehash,
        );
    }

    fn remove(&mut self, hash: u64, key: &Key, policy: &Policy) {
        let (slot, key) = (self.slot(hash, key, policy), probe(key, policy));
        if let Ok(entry) = self.states.find_entry(slot, |entry| entry.is_of(key, policy)) {
            entry.remove();
        }
    }

    /// Drops the states that equal a fresh one. When a sixteenth of the room is not free then, drops
    /// the states that have spent the smallest share of their burst, until it is. One pass over the
    /// table thus makes room for many new keys.
    fn make_room(&mut self, now_us: u64) {
        self.states.retain(|entry| entry.state.fresh_at(&entry.policy) > now_us);
        let goal = self.room - (self.room / 16).max(1);
        if self.states.len() <= goal {
            return;
        }
        let mut shares: Vec<u32> = self.states.iter_mut().map(|entry| entry.spent_share(now_us)).collect();
        let surplus = shares.len() - goal;
        let (_, &mut limit, _) = shares.select_nth_unstable(surplus - 1);
        let mut below = shares.iter().filter(|&&share| share < limit).count();
        // Only as many states with exactly this share are dropped as needed.
        let mut at_limit = surplus - below;
        self.states.retain(|entry| {
            let share = entry.spent_share(now_us);
            let is_dropped = share < limit && below > 0 || share == limit && at_limit > 0;
            if is_dropped {
                let left = if share < limit { &mut below } else { &mut at_limit };
                *left -= 1;
            }
            !is_dropped
        });
    }
}

impl StateEntry {
    /// Returns the spent share of the burst, in millionths.
    fn spent_share(&mut self, now_us: u64) -> u32 {
        let Settled { state, mended } = self.state.settle(&self.policy, &self.policy, now_us);
        let level = PolicyLevel { fits: true, words: state.words(&self.policy, now_us, 0) };
        if !mended && state.is_moved() {
            self.state = state;
        }
        let remaining = crate::algorithm::numbers(&self.policy, &level, 0).remaining;
        let burst = self.policy.quota_ref().burst();
        let spent = burst - remaining.min(burst);
        // For a burst whose millionfold exceeds 64 bits, a millionth of it is counted in whole units.
        let share = spent.checked_mul(1_000_000).map_or_else(|| spent / (burst / 1_000_000), |share| share / burst);
        share as u32
    }
}

/// Returns the hash of the state of a key under one policy. `hash` is that of the outermost level.
#[inline]
fn slot(hasher: &RandomState, hash: u64, key: &Key, policy: &Policy) -> u64 {
    if key.levels() == 1 { slot_hash(hash, policy) } else { nested_slot(hasher, key, policy) }
}

#[inline(never)]
fn nested_slot(hasher: &RandomState, key: &Key, policy: &Policy) -> u64 {
    slot_hash(key.level(policy.depth()).hash(hasher), policy)
}

/// Returns the hash of a stored state. `hash` is that of the levels which the policy meters.
#[inline]
fn slot_hash(hash: u64, policy: &Policy) -> u64 {
    (hash ^ policy.name_hash()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the levels of a key that the policy meters, as they are looked for.
#[inline]
fn probe<'a>(key: &'a Key, policy: &Policy) -> KeyProbe<'a> {
    KeyProbe::of(key.level(policy.depth()))
}
