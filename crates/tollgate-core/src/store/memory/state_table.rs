//! The states of one shard in bounded memory: how they are found, kept small, and dropped for room.
//! Locks are in `shards.rs`. What a decision does with a state is in `store/step.rs` and in the
//! algorithms.

use std::{fmt, ptr, sync::Arc};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use tollgate_model::{
    algorithm::{Advanced, PolicyLevel, State},
    raw::{KeyLevel, KeyParts, PADDING, PolicyParts, hash_text},
};

use crate::{
    Key, Policy,
    store::{Check, reservation::Records},
};

/// The states of one shard. All policies of a key are in the same shard, with all levels of the
/// key, so one lock covers a whole decision. Only the branches of a key may be in several shards:
/// see [`tables`](super::tables).
///
/// The hash that a function takes is the hash of the outermost level, which is the hash of the
/// whole key for a key of one level. The key that a function takes has no branches.
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
        if self.policy.quota_ref() != policy.quota_ref()
            || self.policy.algorithm() != policy.algorithm()
        {
            self.policy = Arc::clone(policy);
        }
    }
}

impl StateTable {
    pub(super) fn new(room: usize, hasher: RandomState) -> Self {
        let records = Records::new(room, hasher.clone());
        Self {
            states: HashTable::new(),
            room,
            hasher,
            records,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    pub(super) fn records(&mut self) -> &mut Records {
        &mut self.records
    }

    /// Decides over one policy, which is the common case: the state is changed in place, without
    /// moving it out.
    #[inline]
    pub(super) fn check_one(
        &mut self,
        hash: u64,
        check: Check<'_>,
        policy: &Arc<Policy>,
        now_us: u64,
    ) -> PolicyLevel {
        let cost = check.cost.units();
        self.change_one(hash, check.key, policy, now_us, |state, interval| {
            state.decide(policy, interval, now_us, cost, check.tag)
        })
    }

    /// Decides over one policy under a ceiling, as [`check_one`](Self::check_one) does without.
    pub(super) fn check_capped(
        &mut self,
        hash: u64,
        check: Check<'_>,
        policy: &Arc<Policy>,
        now_us: u64,
    ) -> PolicyLevel {
        let ask = check.charge().ask(0);
        self.change_one(hash, check.key, policy, now_us, |state, interval| {
            state.decide_capped(policy, interval, now_us, ask, check.tag)
        })
    }

    /// Lets `decide` change the state of a key, or a fresh one, which is kept if it was written.
    /// `decide` gets the [interval](Policy::interval_us) as in [`state_at`](Self::state_at), and
    /// returns whether it has written.
    #[inline]
    fn change_one(
        &mut self,
        hash: u64,
        key: &Key,
        policy: &Arc<Policy>,
        now_us: u64,
        decide: impl FnOnce(&mut State, Option<f64>) -> (PolicyLevel, bool),
    ) -> PolicyLevel {
        let (slot, own) = (self.slot(hash, key, policy), probe(key, policy));
        if let Some(entry) = self.states.find_mut(slot, |entry| entry.is_of(own, policy)) {
            let interval = policy.other_interval_us(&entry.policy);
            let (level, is_written) = decide(&mut entry.state, interval);
            if is_written {
                entry.set_policy(policy);
            }
            return level;
        }
        let mut state = State::fresh(policy.algorithm());
        let (level, is_written) = decide(&mut state, None);
        if is_written {
            self.insert(slot, key, policy, state, now_us);
        }
        level
    }

    pub(super) fn find(&self, hash: u64, key: &Key, policy: &Policy) -> Option<usize> {
        let (slot, key) = (self.slot(hash, key, policy), probe(key, policy));
        self.states
            .find_bucket_index(slot, |entry| entry.is_of(key, policy))
    }

    /// Returns the state at a place, and the [interval](Policy::interval_us) of the policy that
    /// stored it, if this policy has another one.
    pub(super) fn state_at(
        &mut self,
        place: usize,
        policy: &Policy,
    ) -> Option<(&mut State, Option<f64>)> {
        let entry = self.states.get_bucket_mut(place)?;
        let interval = policy.other_interval_us(&entry.policy);
        Some((&mut entry.state, interval))
    }

    /// Replaces the state at a place. It is one of the policy, unless it keeps its interval.
    pub(super) fn replace(
        &mut self,
        place: usize,
        policy: &Arc<Policy>,
        state: State,
        keeps_interval: bool,
    ) {
        if let Some(entry) = self.states.get_bucket_mut(place) {
            entry.state = state;
            if !keeps_interval {
                entry.set_policy(policy);
            }
        }
    }

    /// Adds the state of a key that has none.
    pub(super) fn add(
        &mut self,
        hash: u64,
        key: &Key,
        policy: &Arc<Policy>,
        state: State,
        now_us: u64,
    ) {
        self.insert(self.slot(hash, key, policy), key, policy, state, now_us);
    }

    /// Returns the state of a key and the policy that wrote it.
    #[cfg(feature = "testing")]
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
        let rehash =
            |entry: &StateEntry| slot_hash(hash_text(hasher, entry.key.as_bytes()), &entry.policy);
        // The last two doublings are done in one step: the table is moved once and not twice.
        if self.states.len() == self.states.capacity() && self.states.len() >= self.room / 4 {
            self.states
                .reserve(self.room.saturating_sub(self.states.len()), rehash);
        }
        self.states.insert_unique(
            slot,
            StateEntry {
                key: StoredKey::of(policy.metered(key)),
                policy: Arc::clone(policy),
                state,
            },
            rehash,
        );
    }

    pub(super) fn remove(&mut self, hash: u64, key: &Key, policy: &Policy) {
        let (slot, key) = (self.slot(hash, key, policy), probe(key, policy));
        if let Ok(entry) = self
            .states
            .find_entry(slot, |entry| entry.is_of(key, policy))
        {
            entry.remove();
        }
    }

    /// Drops the states that equal a fresh one. When a sixteenth of the room is not free then,
    /// drops the states that have spent the smallest share of their burst, until it is. One pass
    /// over the table thus makes room for many new keys.
    fn make_room(&mut self, now_us: u64) {
        self.states
            .retain(|entry| entry.state.fresh_at(&entry.policy) > now_us);
        let goal = self.room - (self.room / 16).max(1);
        if self.states.len() <= goal {
            return;
        }
        let mut shares: Vec<u32> = self
            .states
            .iter_mut()
            .map(|entry| entry.spent_share(now_us))
            .collect();
        let surplus = shares.len() - goal;
        let (_, &mut limit, _) = shares.select_nth_unstable(surplus - 1);
        let mut below = shares.iter().filter(|&&share| share < limit).count();
        // Only as many states with exactly this share are dropped as needed.
        let mut at_limit = surplus - below;
        self.states.retain(|entry| {
            let share = entry.spent_share(now_us);
            let is_dropped = share < limit && below > 0 || share == limit && at_limit > 0;
            if is_dropped {
                let left = if share < limit {
                    &mut below
                } else {
                    &mut at_limit
                };
                *left -= 1;
            }
            !is_dropped
        });
    }
}

impl StateEntry {
    /// Returns the spent share of the burst, in millionths.
    fn spent_share(&mut self, now_us: u64) -> u32 {
        let Advanced { state, mended } = self.state.advance(&self.policy, None, now_us);
        let level = PolicyLevel {
            fits: true,
            reading: state.reading(&self.policy, now_us, 0),
        };
        if !mended && state.is_moved() {
            self.state = state;
        }
        let remaining = tollgate_model::algorithm::numbers(&self.policy, &level, 0).remaining;
        let burst = self.policy.quota_ref().burst();
        let spent = burst - remaining.min(burst);
        // For a burst whose millionfold exceeds 64 bits, a millionth of it is counted in whole
        // units.
        let share = spent
            .checked_mul(1_000_000)
            .map_or_else(|| spent / (burst / 1_000_000), |share| share / burst);
        share as u32
    }
}

/// Returns the hash of the state of a key under one policy. `hash` stands for the outermost level.
#[inline]
fn slot(hasher: &RandomState, hash: u64, key: &Key, policy: &Policy) -> u64 {
    if key.reach() == 1 {
        slot_hash(hash, policy)
    } else {
        nested_slot(hasher, key, policy)
    }
}

#[inline(never)]
fn nested_slot(hasher: &RandomState, key: &Key, policy: &Policy) -> u64 {
    slot_hash(policy.metered(key).hash(hasher), policy)
}

/// Returns the hash of a stored state. `hash` stands for the levels which the policy meters.
#[inline]
fn slot_hash(hash: u64, policy: &Policy) -> u64 {
    (hash ^ u64::from(policy.name_hash())).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the levels of a key that the policy meters, as they are looked for.
#[inline]
fn probe<'a>(key: &'a Key, policy: &Policy) -> KeyProbe<'a> {
    KeyProbe::of(policy.metered(key))
}

/// Stores a key, or outer levels of a key, beside the state. Most fit in place, a longer one is one
/// allocation.
pub(super) enum StoredKey {
    /// The bytes of the key, with the key's own padding.
    Short {
        len: u8,
        text: [u8; SHORT],
    },
    Long(Box<[u8]>),
}

/// A key that is looked for. It is prepared once, and then compared with the keys of all entries
/// that may be meant.
#[derive(Clone, Copy)]
pub(super) struct KeyProbe<'a> {
    bytes: &'a [u8],
    /// A short whole key with its padding. Two of them are compared without a loop.
    padded: Option<&'a [u8; SHORT]>,
}

impl<'a> KeyProbe<'a> {
    #[inline]
    pub(super) fn of(key: KeyLevel<'a>) -> Self {
        Self {
            bytes: key.as_bytes(),
            padded: key.padded(),
        }
    }
}

/// The longest key that is stored in place, in bytes. The key of an IPv6 /64 network takes up to 25.
const SHORT: usize = 30;

impl StoredKey {
    pub(super) fn of(key: KeyLevel<'_>) -> Self {
        let bytes = key.as_bytes();
        if bytes.len() > SHORT {
            return Self::Long(bytes.into());
        }
        let mut text = [PADDING; SHORT];
        text[..bytes.len()].copy_from_slice(bytes);
        Self::Short {
            len: bytes.len() as u8,
            text,
        }
    }

    /// Returns `true` when this is the key of the probe.
    #[inline]
    pub(super) fn is(&self, probe: KeyProbe<'_>) -> bool {
        match (self, probe.padded) {
            (Self::Short { len, text }, Some(other)) => {
                usize::from(*len) == probe.bytes.len() && text == other
            }
            _ => self.as_bytes() == probe.bytes,
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, text } => &text[..usize::from(*len).min(SHORT)],
            Self::Long(text) => text,
        }
    }
}

impl fmt::Debug for StoredKey {
    /// Omits the key: it may identify a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredKey(..)")
    }
}
