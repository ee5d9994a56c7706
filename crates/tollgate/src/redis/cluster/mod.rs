//! The servers of a Redis Cluster: which has which slot, and a call that finds its way.

mod pipeline;
mod seeds;
mod slot;
mod table;
mod topology;
mod unrun;

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{Cmd, Value};

use self::{
    topology::Topology,
    unrun::{Unrun, Why},
};
use super::{
    connection::Connection,
    job::Job,
    lane::{self, Lane, Manner},
    script::Script,
    turn::Turn,
};
use crate::redis::servers::{Node, Servers};
use crate::{Decision, Error, Key};
pub(super) use pipeline::run as pipeline;
pub(super) use seeds::nodes;

/// The servers of a cluster.
///
/// Every server that has slots is a lane: one connection, one queue, one breaker. A call goes to
/// the lane of its slot. Where that one did not run it (the slot moved, or is on its way), it goes
/// where it is sent to, within the caller's deadline; whatever may have run is never sent again.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    topology: Arc<Topology>,
}

/// So many redirects of one call are followed without a pause: two servers may disagree for a
/// moment about who has the slot.
const AT_ONCE: u32 = 3;

/// The middle of the first pause before a call that a server did not run is sent there again.
const PAUSE: Duration = Duration::from_millis(2);

impl Cluster {
    pub(super) fn new(servers: Servers, seeds: Vec<Node>, manner: Manner, connect_timeout: Duration) -> Self {
        Self { topology: Topology::new(servers, seeds, manner, connect_timeout) }
    }

    pub(super) fn refusal(&self, key: &Key) -> Option<Error> {
        let lane = match self.topology.lane_now(slot::of(key))? {
            Ok(lane) => lane,
            Err(why) => return Some(why),
        };
        self.refused(&lane)
    }

    pub(super) fn is_asked(&self) -> bool {
        self.topology.is_asked()
    }

    pub(super) async fn check(self, job: Arc<Job>) -> Result<Decision, Error> {
        self.route(slot::of(&job.key), |lane, asking| {
            let job = Arc::new(job.again(asking));
            async move { Turn::new(Arc::clone(&lane.engine), job).await? }
        })
        .await
    }

    pub(super) async fn run(
        &self,
        key: &Key,
        script: &Script,
        keys: usize,
        rest: impl Fn(&Connection, &mut Cmd),
    ) -> Result<Value, Error> {
        let rest = &rest;
        self.route(slot::of(key), |lane, asking| async move {
            let connection = &*lane.connection;
            let call = |by_body| pipeline::script(script, by_body, keys, |command| rest(connection, command));
            pipeline::one(connection, asking, call(false), Some(call(true))).await
        })
        .await
    }

    pub(super) async fn query(
        &self,
        key: &Key,
        command: &str,
        rest: impl Fn(&Connection, &mut Cmd),
    ) -> Result<Value, Error> {
        let rest = &rest;
        self.route(slot::of(key), |lane, asking| async move {
            let mut command = redis::cmd(command);
            rest(&lane.connection, &mut command);
            pipeline::one(&lane.connection, asking, command, None).await
        })
        .await
    }

    /// The servers that have slots as the cluster is now, each with a key of one of its slots.
    pub(super) async fn masters(&self) -> Result<Vec<(Arc<Lane>, Key)>, Error> {
        let masters = self.topology.masters().await?;
        // One key in 16 384 is of a given slot.
        let key = |slot| std::iter::repeat_with(lane::diagnosed).find(|key| slot::of(key) == slot);
        Ok(masters.into_iter().filter_map(|(slot, lane)| Some((lane, key(slot)?))).collect())
    }

    /// Why this server is not asked now. While it is not, the cluster is looked at.
    fn refused(&self, lane: &Lane) -> Option<Error> {
        let why = lane.connection.breaker().is_open().then(|| lane.connection.why());
        if why.is_some() {
            self.topology.look_soon();
        }
        why
    }

    /// Attempts a call at the server of the slot, and where that one sends it.
    async fn route<T, F>(&self, slot: u16, attempt: impl Fn(Arc<Lane>, bool) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let topology = &self.topology;
        let give_up = Instant::now() + topology.connect_timeout();
        let (mut sent_to, mut redirects, mut pauses, mut looked) = (None, 0, 0, false);
        loop {
            let asking = sent_to.is_some();
            let lane = match sent_to.take() {
                Some(lane) => lane,
                None => topology.lane(slot).await?,
            };
            if let Some(why) = self.refused(&lane) {
                return Err(why);
            }
            let error = match attempt(Arc::clone(&lane), asking).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            let Some(Unrun { why, error: told }) = Unrun::of(&error) else {
                topology.look_soon();
                return Err(error);
            };
            if Instant::now() >= give_up {
                return Err(told.clone());
            }
            match why {
                Why::Moved(node) => topology.moved(slot, &topology.resolve(node, &lane))?,
                Why::Ask(node) => sent_to = Some(topology.lane_at(&topology.resolve(node, &lane))?),
                Why::Again => {}
                Why::Unfit if looked => return Err(told.clone()),
                Why::Unfit => {
                    looked = true;
                    topology.look_now().await?;
                }
            }
            redirects += 1;
            if *why == Why::Again || redirects > AT_ONCE {
                tokio::time::sleep(pause(pauses)).await;
                pauses += 1;
            }
        }
    }
}

/// Uniform around a middle that grows to four times the first.
fn pause(before: u32) -> Duration {
    (PAUSE * 2_u32.pow(before.min(2))).mul_f64(0.5 + fastrand::f64())
}
