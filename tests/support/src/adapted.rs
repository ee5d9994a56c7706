//! Stores through the adapter that every store outside of the crate has: over a map, and over what
//! else keeps bytes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::runtime::{Builder, Runtime};
use tollgate::{
    Cost, Costs, Decision, Error, ErrorKind, Key, Policy, PolicySet, Store,
    reservation::{ReservationId, Settlement},
    store::{
        Ceiling, Change, Check, Clock, KeyValue, KeyValueStore, PermitGrant, PermitRequest,
        Snapshot, StoreFuture,
    },
    testing,
};

use crate::{
    Dice, START_US, Stored, Subject,
    subject::{name_of, with_check},
};

/// Keeps bytes in a map. Clones share it, as processes share a database.
#[derive(Clone, Debug)]
pub struct Map {
    clock: Clock,
    /// One of so many writes finds that others have changed what was read; 0 for none.
    conflicts: u64,
    /// The kind of the error of each read.
    fails: Option<ErrorKind>,
    content: Arc<Mutex<Content>>,
}

#[derive(Debug)]
struct Content {
    /// The bytes, their expiry in milliseconds, and the write that stored them.
    values: BTreeMap<Vec<u8>, (Vec<u8>, u64, u64)>,
    reads: u64,
    writes: u64,
    refused: u64,
    dice: Dice,
}

impl Map {
    /// Creates an empty map.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let content = Content {
            values: BTreeMap::new(),
            reads: 0,
            writes: 0,
            refused: 0,
            dice: Dice::new(1),
        };
        Self {
            clock,
            conflicts: 0,
            fails: None,
            content: Arc::new(Mutex::new(content)),
        }
    }

    /// Returns the same map, in which one of so many writes finds a change that others have made.
    #[must_use]
    pub fn with_conflicts(mut self, one_of: u64) -> Self {
        self.conflicts = one_of;
        self
    }

    /// Returns the same map, which fails.
    #[must_use]
    pub fn failing(mut self, kind: ErrorKind) -> Self {
        self.fails = Some(kind);
        self
    }

    /// Returns the bytes of a key, and their expiry.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Stored> {
        self.content()
            .values
            .get(key)
            .map(|(value, expires_ms, _)| Stored {
                value: value.clone(),
                expires_ms: *expires_ms,
            })
    }

    /// Replaces the bytes of a key.
    pub fn plant(&self, key: &[u8], value: &[u8]) {
        let mut content = self.content();
        content.writes += 1;
        let planted = (value.to_vec(), u64::MAX, content.writes);
        content.values.insert(key.to_vec(), planted);
    }

    /// Returns all keys.
    #[must_use]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.content().values.keys().cloned().collect()
    }

    /// Returns how often it was read.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.content().reads
    }

    /// Returns how many writes were done, and how many were refused.
    #[must_use]
    pub fn writes(&self) -> (u64, u64) {
        let content = self.content();
        (content.writes, content.refused)
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyValue for Map {
    /// The write that stored each value.
    type Read = Vec<(Vec<u8>, Option<u64>)>;

    async fn read(&self, keys: &[Vec<u8>]) -> Result<Snapshot<Self::Read>, Error> {
        assert!(
            keys.is_sorted_by(|one, next| one < next),
            "keys are sorted and different"
        );
        // Others run between a read and its write.
        tokio::task::yield_now().await;
        if let Some(kind) = self.fails {
            return Err(Error::new(kind, "the map fails"));
        }
        let mut content = self.content();
        content.reads += 1;
        let found = keys.iter().map(|key| content.values.get(key));
        let (values, writes): (Vec<_>, Vec<_>) = found
            .map(|found| {
                (
                    found.map(|found| found.0.clone()),
                    found.map(|found| found.2),
                )
            })
            .unzip();
        let read = keys.iter().cloned().zip(writes).collect();
        Ok(Snapshot {
            now_us: self.clock.now_us(),
            values,
            read,
        })
    }

    async fn write(&self, read: Self::Read, changes: Vec<Change>) -> Result<Vec<bool>, Error> {
        tokio::task::yield_now().await;
        let mut content = self.content();
        let mut written = Vec::new();
        for change in changes {
            let is_injected = self.conflicts > 0 && content.dice.below(self.conflicts) == 0;
            let is_changed = |at: &usize| {
                let (key, write) = &read[*at];
                content.values.get(key).map(|found| found.2) != *write
            };
            let is_refused = is_injected || change.keys.iter().any(is_changed);
            written.push(!is_refused);
            if is_refused {
                content.refused += 1;
                continue;
            }
            content.writes += 1;
            let at = content.writes;
            for write in change.writes {
                match write.value {
                    Some(value) => content
                        .values
                        .insert(write.key, (value, write.expires_ms, at)),
                    None => content.values.remove(&write.key),
                };
            }
        }
        Ok(written)
    }
}

/// Shows the bytes that an adapter stores.
pub trait Bytes {
    /// Returns the bytes of a key, and their expiry.
    fn stored(&self, key: &[u8], runtime: &Runtime) -> Option<Stored>;
}

impl Bytes for Map {
    fn stored(&self, key: &[u8], _: &Runtime) -> Option<Stored> {
        self.get(key)
    }
}

/// The adapter over a store of bytes, on a clock that the test moves.
#[derive(Debug)]
pub struct Adapted<K, B> {
    /// The bytes.
    pub bytes: B,
    clock: Clock,
    store: KeyValueStore<K>,
    runtime: Runtime,
}

/// The adapter over a map.
pub type InMap = Adapted<Map, Map>;

impl InMap {
    /// Creates an empty store, in which one of four writes comes too late.
    ///
    /// # Panics
    ///
    /// When no runtime can be made.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Clock::manual(START_US))
    }

    /// Creates such a store on this clock.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    #[must_use]
    pub fn on(clock: Clock) -> Self {
        let map = Map::new(clock.clone()).with_conflicts(4);
        let runtime = Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        Self::over(KeyValueStore::new(map.clone()), map, clock, runtime)
    }
}

impl<K: KeyValue, B> Adapted<K, B> {
    /// Adapts a store of bytes, which decides by this clock.
    pub fn over(store: KeyValueStore<K>, bytes: B, clock: Clock, runtime: Runtime) -> Self {
        Self {
            bytes,
            clock,
            store,
            runtime,
        }
    }

    /// Decides a call for permits.
    ///
    /// # Panics
    ///
    /// When the store does not answer.
    pub fn permits(&self, request: PermitRequest<'_>) -> PermitGrant {
        let answer = self.store.permits(request);
        self.runtime.block_on(answer).expect("an answer")
    }

    /// Calls what shows the bytes.
    pub fn with_bytes<T>(&self, call: impl FnOnce(&B, &Runtime) -> T) -> T {
        call(&self.bytes, &self.runtime)
    }

    fn call<T: Unpin>(
        &self,
        policies: &PolicySet,
        key: &Key,
        costs: &Costs,
        ceilings: Option<&[Ceiling]>,
        call: impl FnOnce(&KeyValueStore<K>, Check<'_>) -> StoreFuture<T>,
    ) -> T {
        let call = |check: Check<'_>| call(&self.store, check);
        let answer = with_check(policies, key, costs, ceilings, call);
        self.runtime.block_on(answer).expect("an answer")
    }
}

impl Default for InMap {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: KeyValue, B: Bytes> Subject for Adapted<K, B> {
    fn set_now(&mut self, now_us: u64) {
        self.clock.set(now_us);
    }

    fn now(&self) -> u64 {
        self.clock.now_us()
    }

    fn check_with(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        costs: &Costs,
        ceilings: Option<&[Ceiling]>,
        tag: &str,
    ) -> Decision {
        self.call(policies, key, costs, ceilings, |store, check| {
            store.check(check.with_tag(tag.as_bytes()))
        })
    }

    fn look_with(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        costs: &Costs,
        ceilings: Option<&[Ceiling]>,
    ) -> Decision {
        self.call(policies, key, costs, ceilings, |store, check| {
            store.look(check)
        })
    }

    fn refund_costs(&mut self, policies: &PolicySet, key: &Key, costs: &Costs, spent_us: u64) {
        self.call(policies, key, costs, None, |store, check| {
            testing::refund_kept(store, check, spent_us)
        });
    }

    fn refund_decision(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        costs: &Costs,
        decision: &Decision,
        _spent_us: u64,
    ) {
        self.call(policies, key, costs, None, |store, check| {
            store.refund(check, Some(decision))
        });
    }

    fn reserve_under(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        id: &ReservationId,
        costs: &Costs,
        ceilings: Option<&[Ceiling]>,
        life_us: u64,
    ) -> Decision {
        let life = std::time::Duration::from_micros(life_us);
        self.call(policies, key, costs, ceilings, |store, check| {
            store.reserve(check, id, life)
        })
    }

    fn commit(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        id: &ReservationId,
        costs: &Costs,
        number: u64,
    ) -> Settlement {
        self.call(policies, key, costs, None, |store, check| {
            testing::commit_kept(store, check, id, number)
        })
    }

    fn reset(&mut self, policies: &PolicySet, key: &Key) {
        self.call(
            policies,
            key,
            &Costs::new(Cost::ZERO),
            None,
            |store, check| store.reset(check),
        );
    }

    fn stored(&mut self, policy: &Policy, key: &Key) -> Option<Stored> {
        self.bytes
            .stored(name_of(policy, key).as_bytes(), &self.runtime)
    }
}
