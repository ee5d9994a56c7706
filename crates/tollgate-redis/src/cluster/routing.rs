//! Sends a call to the server of its slot, and follows redirects until the deadline.
//! Which server has the slot is known in `topology.rs`; proof that a call did not run comes from
//! `server/not_executed.rs`.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::Value;

use super::topology::Cluster;
use crate::{
    dispatch::{CheckRequest, PendingCheck, Sender, SlotShare},
    protocol::hash_slot,
    server::{Call, CallError, NotExecutedReason, Server},
};
use tollgate_core::{Decision, Error, ErrorKind, Key, raw::runtime, store::Deadline};

/// The number of redirects that a call follows without a pause. Two servers may disagree for a
/// moment about a slot.
const REDIRECTS_AT_ONCE: u32 = 3;

/// The middle of the first pause before a call is sent again.
const PAUSE: Duration = Duration::from_millis(2);

/// Sends each call to the server of its slot.
///
/// Every server that has slots has one connection, one queue and one breaker. A call that a server
/// did not execute (the slot moved, or is being moved) follows the redirect, within the deadline of
/// the caller. A call that may have been executed is never sent again.
impl Cluster {
    /// Returns the error of a call for this key that is not sent: its server is not asked, or not
    /// within this deadline.
    pub(crate) fn refusal(
        self: &Arc<Self>,
        key: &Key,
        deadline: Option<Deadline>,
    ) -> Option<Error> {
        match self.by_slot_now(hash_slot::of(key))? {
            Ok(sender) => self
                .refusal_of(&sender)
                .or_else(|| sender.server.refusal(deadline)),
            Err(error) => Some(error),
        }
    }

    /// Decides a check at the server of its slot.
    pub(crate) async fn check(self: Arc<Self>, request: CheckRequest) -> Result<Decision, Error> {
        // A caller without a limiter may have no runtime.
        runtime::current()?;
        let slot = hash_slot::of(request.routed_key());
        self.route(slot, |sender, share| {
            PendingCheck::new(&sender, request.again(share))
        })
        .await
    }

    /// Makes a call at the server of the key, for a caller that waits until the deadline. `write`
    /// writes it, by the body of its script or not.
    pub(crate) async fn call(
        self: &Arc<Self>,
        key: &Key,
        deadline: Option<Deadline>,
        write: impl Fn(&Server, bool) -> Call,
    ) -> Result<Value, Error> {
        let write = &write;
        self.route(hash_slot::of(key), |sender, share| async move {
            let (server, is_asking) = (&sender.server, share == SlotShare::Arriving);
            server
                .call(|by_body| write(server, by_body).asking(is_asking), deadline)
                .await
        })
        .await
    }

    /// Returns the error of a call while this server is not asked, and requests a refresh then.
    fn refusal_of(self: &Arc<Self>, sender: &Arc<Sender>) -> Option<Error> {
        let refusal = sender.server.refusal(None);
        if refusal.is_some() {
            self.request_refresh();
        }
        refusal
    }

    /// Attempts a call at the server of the slot, and follows redirects.
    async fn route<T, F>(
        self: &Arc<Self>,
        slot: u16,
        attempt: impl Fn(Arc<Sender>, SlotShare) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let give_up = Instant::now() + self.connect_timeout;
        let (mut sent_to, mut redirects, mut pauses, mut has_refreshed) = (None, 0, 0, false);
        loop {
            let (sender, share) = match sent_to.take() {
                Some(sender) => (sender, SlotShare::Arriving),
                None => (self.by_slot(slot).await?, self.share(slot)),
            };
            if let Some(refusal) = self.refusal_of(&sender) {
                return Err(refusal);
            }
            let not_executed = match attempt(sender.clone(), share).await {
                Ok(outcome) => return Ok(outcome),
                Err(CallError::NotExecuted(not_executed)) => not_executed,
                Err(CallError::Failed(error)) => {
                    // A check that was not sent because of the load says nothing about the cluster.
                    if error.kind() != ErrorKind::Overloaded {
                        self.request_refresh();
                    }
                    return Err(error);
                }
            };
            let reason = not_executed.reason;
            // A move that goes on is not waited for: the same call, sent twice, met keys at both
            // ends. A check of a leased policy is not decided by the state alone. The key of its
            // units is known to be absent only while nobody can create it, and a slot that is
            // closed in that moment would let a unit pass twice.
            let is_stuck =
                reason == NotExecutedReason::TryAgain && pauses > 0 && self.is_stuck(slot);
            if is_stuck || Instant::now() >= give_up {
                return Err(match reason {
                    NotExecutedReason::Unreachable => not_executed.error,
                    _ => moving(),
                });
            }
            match &reason {
                NotExecutedReason::Moved(address) => {
                    self.slot_moved(slot, &self.resolve(address, &sender))?;
                }
                NotExecutedReason::Ask(address) => {
                    self.slot_opened(slot)?;
                    sent_to = Some(self.by_address(&self.resolve(address, &sender))?);
                }
                NotExecutedReason::TryAgain | NotExecutedReason::TryApart => {
                    self.slot_opened(slot)?;
                }
                NotExecutedReason::Unreachable if has_refreshed => return Err(not_executed.error),
                NotExecutedReason::Unreachable => {
                    has_refreshed = true;
                    self.refresh().await?;
                }
            }
            redirects += 1;
            if reason == NotExecutedReason::TryAgain || redirects > REDIRECTS_AT_ONCE {
                tokio::time::sleep(pause(pauses)).await;
                pauses += 1;
            }
        }
    }
}

fn moving() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "a slot of the redis cluster is being moved",
    )
}

/// Returns a random pause. Its middle grows to four times the first.
fn pause(before: u32) -> Duration {
    (PAUSE * 2_u32.pow(before.min(2))).mul_f64(0.5 + fastrand::f64())
}
