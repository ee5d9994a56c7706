//! Stores that tests use in place of a real one.

use std::{
    future,
    sync::{Arc, Mutex, PoisonError},
};

use tollgate::{
    Decision, Error, ErrorKind, Store,
    store::{Check, CheckFuture, Deadline, StoreFuture},
};

/// Records the deadline of every check and never answers.
#[derive(Clone, Debug)]
pub struct SilentStore {
    is_in_process: bool,
    deadlines: Arc<Mutex<Vec<Option<Deadline>>>>,
}

impl SilentStore {
    /// Creates a store that says whether it decides in process.
    #[must_use]
    pub fn new(is_in_process: bool) -> Self {
        Self {
            is_in_process,
            deadlines: Arc::default(),
        }
    }

    /// Returns the deadlines of the checks so far.
    #[must_use]
    pub fn deadlines(&self) -> Vec<Option<Deadline>> {
        self.deadlines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Store for SilentStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.deadlines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(check.deadline);
        StoreFuture::pending(future::pending())
    }

    fn refund(&self, _: Check<'_>, _: Option<&Decision>) -> StoreFuture<()> {
        StoreFuture::ready(Err(Error::new(
            ErrorKind::Unavailable,
            "the store is silent",
        )))
    }

    fn reset(&self, _: Check<'_>) -> StoreFuture<()> {
        StoreFuture::ready(Err(Error::new(
            ErrorKind::Unavailable,
            "the store is silent",
        )))
    }

    fn is_in_process(&self) -> bool {
        self.is_in_process
    }
}
