//! A store in the process that takes several steps for a request, as a cluster does.
//! Stores that fail or are late are in `tollgate::test_util`.

use tollgate::{
    Decision, Key, MemoryStore, PolicySet, Store,
    store::{Check, CheckFuture, StoreFuture},
};

/// Decides each branch of a key in a step of its own, as a cluster does.
pub(super) struct Apart(pub(super) MemoryStore);

impl Store for Apart {
    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }

    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.0.check(check)
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.0.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.0.reset(check)
    }

    fn can_decide(&self, _: &PolicySet, key: &Key) -> bool {
        key.branches().len() == 1
    }
}
