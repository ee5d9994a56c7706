//! Calls to the store for one key.
//! What a call says and what its reply means is decided in `pool.rs`; when it is made, in
//! `limiter.rs` and `upkeep.rs`.

use std::sync::atomic::Ordering;

use super::{
    pool::PoolCall,
    shared::{PoolRef, PoolState},
    upkeep,
};
use crate::{
    Error, ErrorKind, Store,
    store::{
        Deadline, StoreFuture, answer_by,
        permits::{PermitGrant, PermitOutcome, PermitRequest},
    },
};

impl PoolRef {
    /// Calls the store, and waits for the reply until the deadline. The caller holds the lock
    /// `calling`.
    ///
    /// A call whose future is dropped counts as one without a reply.
    pub(super) async fn call(&self, deadline: Deadline) -> Result<(), Error> {
        upkeep::start(&self.shared);
        let call = self.begin(&mut self.lock());
        let unanswered = UnansweredCall { pool: self };
        match answer_by(Some(deadline), self.send(call, Some(deadline))).await {
            Ok(grant) => {
                std::mem::forget(unanswered);
                self.shared.limiter.fallback.heard_since(deadline.start());
                self.end(&mut self.lock(), call, &grant)
            }
            Err(error) => Err(error),
        }
    }

    /// Calls a store in the process, which answers at once.
    pub(super) fn call_in_process(&self, state: &mut PoolState) -> Result<(), Error> {
        let call = self.begin(state);
        let answer = self.send(call, None).into_ready().unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::Unavailable,
                "a store in the process did not answer at once",
            ))
        });
        match answer {
            Ok(grant) => self.end(state, call, &grant),
            Err(error) => {
                state
                    .pool
                    .fail(self.shared.clock.now_us(), self.shared.rules);
                Err(error)
            }
        }
    }

    /// Gives back what is idle, when a call is due.
    pub(super) async fn give_back(&self, deadline: Deadline) -> Result<(), Error> {
        let _calling = self.calling.lock().await;
        if self
            .lock()
            .pool
            .is_due(self.shared.clock.now_us(), self.shared.rules)
        {
            self.call(deadline).await?;
        }
        Ok(())
    }

    fn begin(&self, state: &mut PoolState) -> PoolCall {
        state.begun += 1;
        state.pool.begin(
            self.shared.clock.now_us(),
            self.limit.load(Ordering::Relaxed),
            self.shared.rules,
        )
    }

    fn send(&self, call: PoolCall, deadline: Option<Deadline>) -> StoreFuture<PermitGrant> {
        let shared = &self.shared;
        shared.limiter.store.permits(PermitRequest {
            policy: &shared.policy,
            key: &self.key,
            limit: call.limit,
            replica: shared.replica,
            number: shared.next_number(),
            kept: call.kept,
            used: call.used,
            needed: call.needed,
            extra: call.extra,
            waits: shared.rules.is_pooled,
            life: std::time::Duration::from_micros(shared.rules.life_us),
            deadline,
        })
    }

    fn end(&self, state: &mut PoolState, call: PoolCall, grant: &PermitGrant) -> Result<(), Error> {
        state
            .pool
            .end(call, grant, self.shared.clock.now_us(), self.shared.rules);
        if grant.outcome == PermitOutcome::TooManyReplicas {
            let name = self.shared.policy.name();
            let message =
                format!("64 other replicas hold permits of this key of concurrency {name}");
            return Err(Error::config(message));
        }
        if grant.held < call.needed {
            state.denied_in = state.begun;
        }
        Ok(())
    }
}

/// Marks a call as unanswered when it is dropped: the store may have granted permits.
struct UnansweredCall<'a> {
    pool: &'a PoolRef,
}

impl Drop for UnansweredCall<'_> {
    fn drop(&mut self) {
        let shared = &self.pool.shared;
        self.pool
            .lock()
            .pool
            .fail(shared.clock.now_us(), shared.rules);
    }
}
