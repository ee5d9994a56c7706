use std::{ptr, sync::Arc};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use smallvec::SmallVec;

use super::subject::Subject;
use crate::{
    Check, Key, Policy, PolicySet,
    algorithm::{Reading, Settled, State},
    readings::Readings,
};

/// The states of the keys that hash here. All policies of a key do, so one lock is one decision.
#[derive(Debug)]
pub(super) struct Shard {
    states: HashTable<Entry>,
    room: usize,
    hasher: RandomState,
}

/// A state, and the policy that wrote it: one line of the processor's cache.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    subject: Subject,
    policy: Arc<Policy>,
    state: State,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// Where a policy's state is held, if it is, and the state as it is to be.
struct Place {
    index: Option<usize>,
    settled: Settled,
    fits: bool,
    /// Otherwise what was moved out is put back.
    is_written: bool,
}

impl Entry {
    #[inline]
    fn is_of(&self, key: &Key, policy: &Policy) -> bool {
        self.subject.is(key) && (ptr::eq(&*self.policy, policy) || self.policy.shares_state(policy))
    }

    /// A state was written under this policy.
    #[inline]
    fn sign(&mut self, policy: &Arc<Policy>) {
        if !Arc::ptr_eq(&self.policy, policy) {
            self.sign_anew(policy);
        }
    }

    #[cold]
    fn sign_anew(&mut self, policy: &Arc<Policy>) {
        if self.policy.quota_ref() != policy.quota_ref() || self.policy.algorithm() != policy.algorithm() {
            self.policy = Arc::clone(policy);
        }
    }
}

impl Shard {
    pub(super) fn new(room: usize, hasher: RandomState) -> Self {
        Self { states: HashTable::new(), room, hasher }
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// Decides over all policies of the check, charges all or none.
    #[inline]
    pub(super) fn check(&mut self, hash: u64, check: Check<'_>, now_us: u64) -> Readings {
        match check.policies.shared() {
            [policy] => Readings::one(self.check_one(hash, check, policy, now_us)),
            _ => self.check_all(hash, check, now_us),
        }
    }

    /// As [`check_all`](Self::check_all) where there is one policy, which is most often: its state
    /// is decided on in its place.
    #[inline]
    fn check_one(&mut self, hash: u64, check: Check<'_>, policy: &Arc<Policy>, now_us: u64) -> Reading {
        let cost = check.cost.get();
        let slot = spread(hash, policy);
        if let Some(entry) = self.states.find_mut(slot, |entry| entry.is_of(check.key, policy)) {
            let (reading, is_written) = entry.state.decide(policy, &entry.policy, now_us, cost, check.tag);
            if is_written {
                entry.sign(policy);
            }
            return reading;
        }
        let mut state = State::fresh(policy.algorithm());
        let (reading, is_written) = state.decide(policy, policy, now_us, cost, check.tag);
        if is_written {
            self.insert(slot, check.key, policy, state, now_us);
        }
        reading
    }

    fn check_all(&mut self, hash: u64, check: Check<'_>, now_us: u64) -> Readings {
        let cost = check.cost.get();
        let mut places = self.places(hash, check, now_us);
        let is_charged = cost > 0 && places.iter().all(|place| place.fits);
        let readings = Readings::collect(check.policies.shared().iter().zip(&mut places).map(|(policy, place)| {
            let Place { settled: Settled { state, mended }, fits, is_written, .. } = place;
            if is_charged {
                state.charge(policy, now_us, cost, check.tag);
            }
            // After a look all that is held stays as it is.
            *is_written = is_charged || (*mended && cost > 0);
            let words = state.words(policy, now_us, if *fits { 0 } else { cost });
            (&**policy, Reading { fits: *fits, words })
        }));
        self.write(hash, check, places, now_us);
        readings
    }

    /// The states that a decision is about. What is moved out has to be put back.
    fn places(&mut self, hash: u64, check: Check<'_>, now_us: u64) -> SmallVec<[Place; 4]> {
        let place = |policy: &Arc<Policy>| {
            let index = self.states.find_bucket_index(spread(hash, policy), |entry| entry.is_of(check.key, policy));
            let settled = match index.and_then(|index| self.states.get_bucket_mut(index)) {
                Some(entry) => entry.state.settle(policy, &entry.policy, now_us),
                None => State::fresh(policy.algorithm()).settle(policy, policy, now_us),
            };
            Place { index, fits: settled.state.fits(policy, now_us, check.cost.get()), settled, is_written: false }
        };
        check.policies.shared().iter().map(place).collect()
    }

    /// Writes the states that were charged or mended, and puts back what was moved out.
    fn write(&mut self, hash: u64, check: Check<'_>, places: SmallVec<[Place; 4]>, now_us: u64) {
        let mut absent = SmallVec::<[_; 4]>::new();
        for (policy, Place { index, settled: Settled { state, mended }, is_written, .. }) in
            check.policies.shared().iter().zip(places)
        {
            match index.and_then(|index| self.states.get_bucket_mut(index)) {
                Some(entry) if is_written => {
                    entry.state = state;
                    entry.sign(policy);
                }
                Some(entry) if !mended && state.is_moved() => entry.state = state,
                None if is_written => absent.push((policy, state)),
                _ => {}
            }
        }
        // Only now: what is inserted moves what is there.
        for (policy, state) in absent {
            self.insert(spread(hash, policy), check.key, policy, state, now_us);
        }
    }

    pub(super) fn refund(&mut self, hash: u64, check: Check<'_>, now_us: u64, spent_us: u64) {
        let mut places = self.places(hash, check, now_us);
        let mut fresh = SmallVec::<[_; 4]>::new();
        for (policy, place) in check.policies.shared().iter().zip(&mut places) {
            let state = &mut place.settled.state;
            state.refund(policy, now_us, spent_us, check.cost.get());
            place.is_written = state.fresh_at(policy) > now_us;
            if !place.is_written {
                fresh.push(policy);
            }
        }
        self.write(hash, check, places, now_us);
        for policy in fresh {
            self.remove(hash, check.key, policy);
        }
    }

    pub(super) fn reset(&mut self, hash: u64, policies: &PolicySet, key: &Key) {
        for policy in policies.iter() {
            self.remove(hash, key, policy);
        }
    }

    /// The state of a key, and the policy that wrote it.
    pub(super) fn state(&self, hash: u64, key: &Key, policy: &Policy) -> Option<(&State, &Policy)> {
        let entry = self.states.find(spread(hash, policy), |entry| entry.is_of(key, policy))?;
        Some((&entry.state, &entry.policy))
    }

    /// Adds a state that is not there yet.
    #[cold]
    fn insert(&mut self, slot: u64, key: &Key, policy: &Arc<Policy>, state: State, now_us: u64) {
        if self.states.len() >= self.room {
            self.make_room(now_us);
        }
        let hasher = &self.hasher;
        let rehash = |entry: &Entry| spread(super::hash(hasher, entry.subject.as_bytes()), &entry.policy);
        // Two doublings in one, the last: half as much is moved, and half as much is left behind for others.
        if self.states.len() == self.states.capacity() && self.states.len() >= self.room / 4 {
            self.states.reserve(self.room.saturating_sub(self.states.len()), rehash);
        }
        self.states.insert_unique(slot, Entry { subject: Subject::of(key), policy: Arc::clone(policy), state }, rehash);
    }

    fn remove(&mut self, hash: u64, key: &Key, policy: &Policy) {
        if let Ok(entry) = self.states.find_entry(spread(hash, policy), |entry| entry.is_of(key, policy)) {
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
        let Settled { state, mended } = self.state.settle(&self.policy, &self.policy, now_us);
        let reading = Reading { fits: true, words: state.words(&self.policy, now_us, 0) };
        if !mended && state.is_moved() {
            self.state = state;
        }
        let remaining = crate::algorithm::numbers(&self.policy, &reading, 0).remaining;
        let burst = u64::from(self.policy.quota_ref().burst());
        ((burst - remaining.min(burst)) * 1_000_000 / burst) as u32
    }
}

/// The slot of a key's state under one policy.
#[inline]
fn spread(hash: u64, policy: &Policy) -> u64 {
    (hash ^ policy.mark()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
