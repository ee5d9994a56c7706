use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{Cmd, Value};

use super::topology::Topology;
use crate::{
    Decision, Error, ErrorKind, Key,
    redis::{
        connect::{Address, ConnectionTemplate},
        dispatch::{CheckRequest, PendingCheck, ServerHandle, SlotShare, StoreConfig},
        protocol::{Script, hash_slot},
        server::{CallError, NotExecutedReason, PlainCall, ScriptCall, Server},
    },
    store::Deadline,
};

/// Sends each call to the server of its slot.
///
/// Every server that has slots has one connection, one queue and one breaker. A call that a server did not execute
/// (the slot moved, or is being moved) follows the redirect, within the deadline of the caller. A call that may have been
/// executed is never sent again.
#[derive(Clone, Debug)]
pub(in crate::redis) struct Cluster {
    topology: Arc<Topology>,
}

/// The number of redirects that a call follows without a pause. Two servers may disagree for a moment about a slot.
const REDIRECTS_AT_ONCE: u32 = 3;

/// The middle of the first pause before a call is sent again.
const PAUSE: Duration = Duration::from_millis(2);

impl Cluster {
    pub(in crate::redis) fn new(
        template: ConnectionTemplate,
        seeds: Vec<Address>,
        config: StoreConfig,
        connect_timeout: Duration,
    ) -> Self {
        Self { topology: Topology::new(template, seeds, config, connect_timeout) }
    }

    /// Returns the error of a call for this key, while its server is not asked.
    pub(in crate::redis) fn refusal(&self, key: &Key) -> Option<Error> {
        match self.topology.by_slot_now(hash_slot::of(key))? {
            Ok(handle) => self.refusal_of(&handle),
            Err(error) => Some(error),
        }
    }

    /// Returns the error of a check for this key that is not sent within this deadline.
    pub(in crate::redis) fn refusal_within(&self, key: &Key, deadline: Option<Deadline>) -> Option<Error> {
        match self.topology.by_slot_now(hash_slot::of(key))? {
            Ok(handle) => self.refusal_of(&handle).or_else(|| handle.server.refusal_within(deadline)),
            Err(error) => Some(error),
        }
    }

    pub(in crate::redis) fn is_available(&self) -> bool {
        self.topology.is_available()
    }

    /// Decides a check at the server of its slot.
    pub(in crate::redis) async fn check(self, request: Arc<CheckRequest>) -> Result<Decision, Error> {
        self.route(hash_slot::of(request.routed_key()), |handle, share| {
            let request = Arc::new(request.again(share));
            async move {
                let mut check = PendingCheck::new(&handle, request);
                std::future::poll_fn(|cx| check.poll_outcome(cx)).await
            }
        })
        .await
    }

    /// Runs a script at the server of the key, for a caller that waits until the deadline. `fill` adds the keys and the
    /// arguments.
    pub(in crate::redis) async fn run(
        &self,
        key: &Key,
        deadline: Option<Deadline>,
        script: &Script,
        keys: usize,
        fill: impl Fn(&Server, &mut Cmd),
    ) -> Result<Value, Error> {
        let fill = &fill;
        self.route(hash_slot::of(key), |handle, share| async move {
            let (server, is_asking) = (&handle.server, share == SlotShare::Arriving);
            let fill = |command: &mut Cmd| fill(server, command);
            server.call(ScriptCall { script, keys, is_asking, fill }, deadline).await
        })
        .await
    }

    /// Sends a command to the server of the key, for a caller that waits until the deadline. `fill` adds the keys and the
    /// arguments.
    pub(in crate::redis) async fn query(
        &self,
        key: &Key,
        deadline: Option<Deadline>,
        command: &str,
        fill: impl Fn(&Server, &mut Cmd),
    ) -> Result<Value, Error> {
        let fill = &fill;
        self.route(hash_slot::of(key), |handle, share| async move {
            let mut command = redis::cmd(command);
            fill(&handle.server, &mut command);
            handle.server.call(PlainCall { command, is_asking: share == SlotShare::Arriving }, deadline).await
        })
        .await
    }

    /// Returns the servers that have slots now, each with a key of one of its slots.
    pub(in crate::redis) async fn masters(&self) -> Result<Vec<(Arc<Server>, Key)>, Error> {
        let masters = self.topology.masters().await?;
        Ok(masters.into_iter().map(|(slot, handle)| (handle.server, hash_slot::unused_key_in(slot))).collect())
    }

    /// Returns the servers that are known to have slots.
    pub(in crate::redis) fn known_masters(&self) -> Vec<ServerHandle> {
        self.topology.known_masters()
    }

    /// Returns the error of a call while this server is not asked, and requests a refresh then.
    fn refusal_of(&self, handle: &ServerHandle) -> Option<Error> {
        let refusal = handle.server.refusal();
        if refusal.is_some() {
            self.topology.request_refresh();
        }
        refusal
    }

    /// Attempts a call at the server of the slot, and follows redirects.
    async fn route<T, F>(&self, slot: u16, attempt: impl Fn(ServerHandle, SlotShare) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let topology = &self.topology;
        let give_up = Instant::now() + topology.connect_timeout();
        let (mut sent_to, mut redirects, mut pauses, mut has_refreshed) = (None, 0, 0, false);
        loop {
            let (handle, share) = match sent_to.take() {
                Some(handle) => (handle, SlotShare::Arriving),
                None => (topology.by_slot(slot).await?, topology.share(slot)),
            };
            if let Some(refusal) = self.refusal_of(&handle) {
                return Err(refusal);
            }
            let not_executed = match attempt(handle.clone(), share).await {
                Ok(outcome) => return Ok(outcome),
                Err(CallError::NotExecuted(not_executed)) => not_executed,
                Err(CallError::Failed(error)) => {
                    // A check that was not sent because of the load says nothing about the cluster.
                    if error.kind() != ErrorKind::Overloaded {
                        topology.request_refresh();
                    }
                    return Err(error);
                }
            };
            let reason = not_executed.reason;
            // A move that goes on is not waited for: the same call, sent twice, met keys at both ends. A check of a leased policy is
            // not decided by the state alone. The key of its units is known to be absent only while nobody can create it, and a slot
            // that is closed in that moment would let a unit pass twice.
            let is_stuck = reason == NotExecutedReason::TryAgain && pauses > 0 && topology.is_stuck(slot);
            if is_stuck || Instant::now() >= give_up {
                return Err(match reason {
                    NotExecutedReason::Unreachable => not_executed.error,
                    _ => moving(),
                });
            }
            match &reason {
                NotExecutedReason::Moved(address) => topology.slot_moved(slot, &topology.resolve(address, &handle))?,
                NotExecutedReason::Ask(address) => {
                    topology.slot_opened(slot)?;
                    sent_to = Some(topology.by_address(&topology.resolve(address, &handle))?);
                }
                NotExecutedReason::TryAgain | NotExecutedReason::TryApart => topology.slot_opened(slot)?,
                NotExecutedReason::Unreachable if has_refreshed => return Err(not_executed.error),
                NotExecutedReason::Unreachable => {
                    has_refreshed = true;
                    topology.refresh().await?;
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
    Error::new(ErrorKind::Unavailable, "a slot of the redis cluster is being moved")
}

/// Returns a random pause. Its middle grows to four times the first.
fn pause(before: u32) -> Duration {
    (PAUSE * 2_u32.pow(before.min(2))).mul_f64(0.5 + fastrand::f64())
}
