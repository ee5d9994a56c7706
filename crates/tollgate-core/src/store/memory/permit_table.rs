//! The permits of all keys in this process.
//! What a call does with those of one key is decided in `store/permits.rs`.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::shards::Shards;
use crate::{
    Key,
    clock::Clock,
    store::{PermitGrant, PermitRequest, permits::PermitState},
};

/// The number of parts, each behind its own lock.
const SHARDS: usize = 16;

/// The number of keys of a part from which on lapsed states are looked for as the part grows.
const CROWDED: usize = 1_024;

/// The permits of all keys. A key has a place in the table while permits of it are held.
pub(super) struct PermitTable(Shards<PermitShard>);

struct PermitShard {
    keys: HashMap<Key, SmallVec<[Named; 1]>, RandomState>,
    /// The number of keys at which lapsed states are dropped.
    crowded: usize,
}

struct Named {
    name: Box<str>,
    state: PermitState,
}

impl PermitTable {
    pub(super) fn new(hasher: &RandomState) -> Self {
        Self(Shards::new(SHARDS, || PermitShard {
            keys: HashMap::with_hasher(hasher.clone()),
            crowded: CROWDED,
        }))
    }

    /// Decides a call. `hash` is the hash of the key.
    pub(super) fn decide(
        &self,
        hash: u64,
        clock: &Clock,
        request: &PermitRequest<'_>,
    ) -> PermitGrant {
        let (mut timed, now_us) = self.0.lock_at(hash, || clock.now_us());
        let shard = &mut timed.shard;
        let Some(names) = shard.keys.get_mut(request.key) else {
            let mut state = PermitState::default();
            let grant = state.decide(now_us, request);
            if !state.is_empty() {
                shard.insert(now_us, request, state);
            }
            return grant;
        };
        let name = request.policy.name();
        let at = names
            .iter()
            .position(|named| *named.name == *name)
            .unwrap_or_else(|| {
                names.push(Named {
                    name: name.into(),
                    state: PermitState::default(),
                });
                names.len() - 1
            });
        let grant = names[at].state.decide(now_us, request);
        if names[at].state.is_empty() {
            names.swap_remove(at);
            if names.is_empty() {
                shard.keys.remove(request.key);
            }
        }
        grant
    }

    /// Returns the state as it is stored elsewhere, and its expiry in milliseconds.
    #[cfg(feature = "testing")]
    pub(super) fn stored(&self, hash: u64, key: &Key, name: &str) -> Option<(Vec<u8>, u64)> {
        let timed = self.0.lock(hash);
        let state = &timed
            .shard
            .keys
            .get(key)?
            .iter()
            .find(|named| *named.name == *name)?
            .state;
        Some((state.to_bytes(), state.expires_ms()))
    }
}

impl PermitShard {
    fn insert(&mut self, now_us: u64, request: &PermitRequest<'_>, state: PermitState) {
        if self.keys.len() >= self.crowded {
            self.keys
                .retain(|_, names| names.iter().any(|named| !named.state.is_lapsed(now_us)));
            self.crowded = (2 * self.keys.len()).max(CROWDED);
        }
        let named = Named {
            name: request.policy.name().into(),
            state,
        };
        self.keys
            .entry(request.key.clone())
            .or_default()
            .push(named);
    }
}
