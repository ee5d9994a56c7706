use std::{
    future::Future,
    hash::BuildHasher,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{RedisStore, job::Job, lane::Lanes, turn::Turn};
use crate::{Check, CheckFuture, Decision, Error, Key};

/// A check that has to be sent.
pub(crate) enum Asked {
    /// To the one server there is.
    Turn(Turn),
    /// To the one that has its slot, which it looks for; with its deadline.
    Route(Route, Option<Instant>),
}

type Route = Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>;

impl RedisStore {
    /// The hash by which a key is found here.
    #[inline]
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        self.0.hasher.hash_one(key)
    }

    /// The answer to a check that is known to be denied; `hash` is that of its key, here and below.
    #[inline]
    pub(crate) fn denied(&self, check: &Check<'_>, hash: u64) -> Option<CheckFuture> {
        self.0.denials.as_ref()?.look_up(check, hash)
    }

    /// A check that has to be sent. `time` is for how long its caller waits, from here on; without it the check says when
    /// that is over.
    ///
    /// # Errors
    ///
    /// The server is not asked now.
    #[inline]
    pub(crate) fn ask(&self, check: Check<'_>, hash: u64, time: Option<Duration>) -> Result<Asked, Error> {
        let epoch = self.0.denials.as_ref().map(|known| known.epoch(hash));
        if let Some(why) = self.0.lanes.refusal(check.key) {
            return Err(why);
        }
        let sent = Instant::now();
        let deadline = time.map_or(check.deadline, |time| sent.checked_add(time));
        let job = Arc::new(Job::new(Check { deadline, ..check }, hash, sent, epoch));
        Ok(match &self.0.lanes {
            Lanes::One(lane) => Asked::Turn(Turn::new(Arc::clone(&lane.engine), job)),
            Lanes::Cluster(cluster) => Asked::Route(Box::pin(cluster.clone().check(job)), deadline),
        })
    }
}
