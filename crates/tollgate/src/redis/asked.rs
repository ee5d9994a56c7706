use std::{
    future::Future,
    hash::BuildHasher,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{RedisStore, engine::Turn, job::Job, lane::Lanes};
use crate::{Check, Decision, Error};

/// A check that has to be sent.
pub(crate) enum Asked {
    /// To the one server there is.
    Turn(Turn),
    /// To the one that has its slot, which it looks for; with its deadline.
    Route(Route, Option<Instant>),
}

type Route = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>;

impl RedisStore {
    /// A check that has to be sent, or what is known without the server. `time` is for how long its caller waits, from
    /// here on; without it the check says when that is over.
    #[inline]
    pub(crate) fn ask(&self, check: Check<'_>, time: Option<Duration>) -> Result<Asked, Result<Decision, Error>> {
        let hash = self.0.hasher.hash_one(check.key);
        if let Some(denial) = self.0.denials.as_ref().and_then(|known| known.look_up(&check, hash)) {
            return Err(Ok(denial));
        }
        let epoch = self.0.denials.as_ref().map(|known| known.epoch(hash));
        if let Some(why) = self.0.lanes.refusal(check.key) {
            return Err(Err(why));
        }
        let sent = Instant::now();
        let deadline = time.map_or(check.deadline, |time| sent.checked_add(time));
        let job = Arc::new(Job::new(Check { deadline, ..check }, hash, sent, epoch));
        Ok(match &self.0.lanes {
            Lanes::One(lane) => Asked::Turn(lane.engine.turn(job)),
            Lanes::Cluster(cluster) => Asked::Route(Box::pin(cluster.clone().check(job)), deadline),
        })
    }
}
