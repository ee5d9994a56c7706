//! A store that loses calls and answers by chance, around any other store.
//! `tollgate::test_util::FaultyStore` fails on command, and loses no answer.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate::{
    Decision, Error, ErrorKind, Store,
    reservation::{ReservationId, Settlement},
    store::{Check, CheckFuture, StoreFuture},
};

use crate::Dice;

/// Loses reservations and commits: before they reach the store inside, or their answers. Clones
/// share the store and its chance.
#[derive(Clone)]
pub struct LosingStore {
    store: Arc<dyn Store>,
    dice: Arc<Mutex<Dice>>,
    /// One of so many calls is lost, and one of so many answers; 0 for none.
    one_of: Arc<AtomicU64>,
    reserved: Arc<AtomicU64>,
    committed: Arc<AtomicU64>,
    time_to_live: Option<Duration>,
}

enum Fate {
    Answered,
    CallLost,
    AnswerLost,
}

impl LosingStore {
    /// Wraps a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, seed: u64, one_of: u64) -> Self {
        Self {
            store,
            dice: Arc::new(Mutex::new(Dice::new(seed))),
            one_of: Arc::new(AtomicU64::new(one_of)),
            reserved: Arc::default(),
            committed: Arc::default(),
            time_to_live: None,
        }
    }

    /// Keeps each record for so long, whatever callers ask for. So they find it also on a machine that
    /// stands still.
    #[must_use]
    pub fn keeping(mut self, time_to_live: Duration) -> Self {
        self.time_to_live = Some(time_to_live);
        self
    }

    /// Loses nothing from now on.
    pub fn recover(&self) {
        self.one_of.store(0, Ordering::Relaxed);
    }

    /// Returns how often a reservation and a commit were called.
    #[must_use]
    pub fn calls(&self) -> (u64, u64) {
        (
            self.reserved.load(Ordering::Relaxed),
            self.committed.load(Ordering::Relaxed),
        )
    }

    fn fate(&self) -> Fate {
        let one_of = self.one_of.load(Ordering::Relaxed);
        if one_of == 0 {
            return Fate::Answered;
        }
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        match dice.below(one_of) {
            0 => Fate::CallLost,
            1 => Fate::AnswerLost,
            _ => Fate::Answered,
        }
    }

    fn call<T: Send + Unpin + 'static>(
        &self,
        call: impl FnOnce(&dyn Store) -> StoreFuture<T>,
    ) -> StoreFuture<T> {
        let fate = self.fate();
        if let Fate::CallLost = fate {
            let error = Error::new(ErrorKind::Timeout, "the call was lost");
            return StoreFuture::ready(Err(error));
        }
        let answer = call(&*self.store);
        StoreFuture::pending(async move {
            let answer = answer.await;
            match fate {
                Fate::AnswerLost => {
                    Err(Error::new(ErrorKind::ConnectionLost, "the answer was lost"))
                }
                _ => answer,
            }
        })
    }
}

impl Store for LosingStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.store.check(check)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.store.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.store.reset(check)
    }

    fn reserve(&self, check: Check<'_>, id: &ReservationId, time_to_live: Duration) -> CheckFuture {
        self.reserved.fetch_add(1, Ordering::Relaxed);
        let time_to_live = self.time_to_live.unwrap_or(time_to_live);
        self.call(|store| store.reserve(check, id, time_to_live))
    }

    fn commit(&self, check: Check<'_>, id: &ReservationId) -> StoreFuture<Settlement> {
        self.committed.fetch_add(1, Ordering::Relaxed);
        self.call(|store| store.commit(check, id))
    }

    fn is_in_process(&self) -> bool {
        false
    }
}

impl std::fmt::Debug for LosingStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LosingStore").finish_non_exhaustive()
    }
}
