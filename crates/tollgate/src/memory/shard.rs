use std::{ptr, sync::Arc};

use hashbrown::{HashTable, hash_table::Entry as Slot};
use smallvec::SmallVec;

use crate::{
    Check, Key, Policy, PolicySet,
    algorithm::{Reading, Settled, State},
    decision::Readings,
};

/// The states of the keys that hash here. All policies of a key do, so one lock is one decision.
#[derive(Debug)]
pub(super) struct Shard {
    states: HashTable<Entry>,
    room: usize,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    key: SmallVec<[u8; SHORT_KEY]>,
    policy: Arc<Policy>,
    state: State,
}

/// Keys up to this length lie in the entry itself: addresses, numbers, most names of tenants.
const SHORT_KEY: usize = 24;

impl Entry {
    fn is_of(&self, hash: u64, key: &Key, policy: &Policy) -> bool {
        self.hash == hash
            && *self.key == *key.as_bytes()
            && (ptr::eq(&*self.policy, policy)
                || self.policy.algorithm().reads(policy.algorithm()) && self.policy.name() == policy.name())
    }

    fn write(&mut self, policy: &Arc<Policy>, state: State) {
        self.state = state;
        if !Arc::ptr_eq(&self.policy, policy)
            && (self.policy.quota() != policy.quota() || self.policy.algorithm() != policy.algorithm())
        {
            self.policy = Arc::clone(policy);
        }
    }
}

impl Shard {
    pub(super) fn new(room: usize) -> Self {
        Self { states: HashTable::new(), room }
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// Decides over all policies of the check, charges all or none.
    pub(super) fn check(&mut self, hash: u64, check: Check<'_>, now_us: u64) -> Readings {
        match check.policies.shared() {
            [policy] => Readings::from_iter([self.check_one(hash, check, policy, now_us)]),
            _ => self.check_all(hash, check, now_us),
        }
    }

    /// As [`check_all`](Self::check_all) where there is one policy, which is most often: its state
    /// is looked up once.
    fn check_one(&mut self, hash: u64, check: Check<'_>, policy: &Arc<Policy>, now_us: u64) -> Reading {
        let cost = check.cost.get();
        let mut entry = self.find_mut(hash, check.key, policy);
        let Settled { mut state, mended } = match &mut entry {
            Some(entry) => entry.state.settle(policy, now_us),
            None => State::fresh(policy.algorithm()).settle(policy, now_us),
        };
        let fits = state.fits(policy, now_us, cost);
        let charged = fits && cost > 0;
        if charged {
            state.charge(policy, now_us, cost, check.tag);
        }
        let words = state.words(policy, now_us, if fits { 0 } else { cost });
        let is_written = charged || (mended && cost > 0);
        match entry {
            Some(entry) if is_written => entry.write(policy, state),
            Some(entry) if !mended && state.is_moved() => entry.state = state,
            None if is_written => self.put(hash, check.key, policy, state, now_us),
            _ => {}
        }
        Reading { fits, words }
    }

    fn check_all(&mut self, hash: u64, check: Check<'_>, now_us: u64) -> Readings {
        let cost = check.cost.get();
        let states = self.settle(hash, check, now_us);
        let fits: SmallVec<[bool; 4]> = states
            .iter()
            .zip(check.policies.iter())
            .map(|(settled, policy)| settled.state.fits(policy, now_us, cost))
            .collect();
        let charged = cost > 0 && fits.iter().all(|&fits| fits);
        let mut readings = Readings::new();
        for ((policy, Settled { mut state, mended }), fits) in check.policies.shared().iter().zip(states).zip(fits) {
            if charged {
                state.charge(policy, now_us, cost, check.tag);
            }
            let denied = if fits { 0 } else { cost };
            readings.push(Reading { fits, words: state.words(policy, now_us, denied) });
            if charged || (mended && cost > 0) {
                self.put(hash, check.key, policy, state, now_us);
            } else if !mended && state.is_moved() {
                self.put_back(hash, check.key, policy, state);
            }
        }
        readings
    }

    pub(super) fn refund(&mut self, hash: u64, check: Check<'_>, now_us: u64, spent_us: u64) {
        let states = self.settle(hash, check, now_us);
        for (policy, Settled { mut state, .. }) in check.policies.shared().iter().zip(states) {
            state.refund(policy, now_us, spent_us, check.cost.get());
            if state.fresh_at(policy) > now_us {
                self.put(hash, check.key, policy, state, now_us);
            } else {
                self.remove(hash, check.key, policy);
            }
        }
    }

    pub(super) fn reset(&mut self, hash: u64, policies: &PolicySet, key: &Key) {
        for policy in policies.iter() {
            self.remove(hash, key, policy);
        }
    }

    /// The states that a decision is about. What is moved out has to be put back.
    fn settle(&mut self, hash: u64, check: Check<'_>, now_us: u64) -> SmallVec<[Settled; 2]> {
        let settle = |policy: &Policy| match self.find_mut(hash, check.key, policy) {
            Some(entry) => entry.state.settle(policy, now_us),
            None => State::fresh(policy.algorithm()).settle(policy, now_us),
        };
        check.policies.iter().map(settle).collect()
    }

    /// The state of a key, and the policy that wrote it.
    pub(super) fn state(&self, hash: u64, key: &Key, policy: &Policy) -> Option<(&State, &Policy)> {
        let slot = spread(hash, policy);
        let entry = self.states.find(slot, |entry| entry.is_of(hash, key, policy))?;
        Some((&entry.state, &entry.policy))
    }

    fn find_mut(&mut self, hash: u64, key: &Key, policy: &Policy) -> Option<&mut Entry> {
        let slot = spread(hash, policy);
        self.states.find_mut(slot, |entry| entry.is_of(hash, key, policy))
    }

    /// Moves a state that was moved out back, unchanged.
    fn put_back(&mut self, hash: u64, key: &Key, policy: &Policy, state: State) {
        if let Some(entry) = self.find_mut(hash, key, policy) {
            entry.state = state;
        }
    }

    fn put(&mut self, hash: u64, key: &Key, policy: &Arc<Policy>, state: State, now_us: u64) {
        if self.states.len() >= self.room && self.state(hash, key, policy).is_none() {
            self.make_room(now_us);
        }
        let slot = spread(hash, policy);
        let rehash = |entry: &Entry| spread(entry.hash, &entry.policy);
        match self.states.entry(slot, |entry| entry.is_of(hash, key, policy), rehash) {
            Slot::Occupied(mut slot) => slot.get_mut().write(policy, state),
            Slot::Vacant(slot) => {
                let key = SmallVec::from_slice(key.as_bytes());
                slot.insert(Entry { hash, key, policy: Arc::clone(policy), state });
            }
        }
    }

    fn remove(&mut self, hash: u64, key: &Key, policy: &Policy) {
        let slot = spread(hash, policy);
        if let Ok(entry) = self.states.find_entry(slot, |entry| entry.is_of(hash, key, policy)) {
            entry.remove();
        }
    }

    /// Drops what is fresh; if that is little, drops a sixteenth: what is nearest to fresh, by the
    /// share of the burst that is spent. A pass over the shard thus pays for many new keys.
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
        // Of those that stand at the limit only as many go as are needed.
        let mut at_limit = surplus - below;
        self.states.retain(|entry| {
            let share = entry.spent_share(now_us);
            let goes = share < limit && below > 0 || share == limit && at_limit > 0;
            if goes {
                let left = if share < limit { &mut below } else { &mut at_limit };
                *left -= 1;
            }
            !goes
        });
    }
}

impl Entry {
    /// How much of the burst is spent, in millionths.
    fn spent_share(&mut self, now_us: u64) -> u32 {
        let Settled { state, mended } = self.state.settle(&self.policy, now_us);
        let reading = Reading { fits: true, words: state.words(&self.policy, now_us, 0) };
        if !mended && state.is_moved() {
            self.state = state;
        }
        let remaining = crate::algorithm::numbers(&self.policy, &reading, 0).remaining;
        let burst = u64::from(self.policy.quota().burst());
        ((burst - remaining.min(burst)) * 1_000_000 / burst) as u32
    }
}

/// The slot of a key's state under one policy.
fn spread(hash: u64, policy: &Policy) -> u64 {
    (hash ^ policy.mark()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
