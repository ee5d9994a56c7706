use std::{
    hash::BuildHasher,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Inner, RedisStore, job::Job, slots::Epoch};
use crate::{Check, CheckFuture, Decision, Error, Key};

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

    /// A check that has to be sent.
    ///
    /// # Errors
    ///
    /// The server is not asked now.
    #[inline]
    pub(crate) fn ask(&self, check: Check<'_>, hash: u64) -> Result<Asked, Error> {
        let epoch = self.0.denials.as_ref().map(|known| known.epoch(hash));
        if let Some(why) = self.0.lanes.refusal(check.key) {
            return Err(why);
        }
        let job = Arc::new(Job::new(check, hash));
        Ok(Asked { store: Arc::clone(&self.0), job, epoch, sent: Instant::now(), deadline: check.deadline })
    }
}

/// A check that is sent when its decision is waited for.
pub(crate) struct Asked {
    store: Arc<Inner>,
    job: Arc<Job>,
    /// Where denials are remembered.
    epoch: Option<Epoch>,
    sent: Instant,
    deadline: Option<Instant>,
}

impl Asked {
    /// The same check, with the time that its caller waits, and when that is over.
    pub(crate) fn within(self, time: Duration) -> (Self, Option<Instant>) {
        let deadline = self.sent.checked_add(time);
        (Self { deadline, ..self }, deadline)
    }

    pub(crate) fn check(&self) -> Check<'_> {
        self.job.check()
    }

    pub(crate) async fn decide(&self) -> Result<Decision, Error> {
        let decision = self.store.lanes.check(&self.job, self.deadline).await?;
        if let (Some(denials), Some(epoch)) = (&self.store.denials, self.epoch)
            && decision.is_denied()
        {
            denials.remember(&self.job.key, self.job.hash, epoch, &decision, self.sent);
        }
        Ok(decision)
    }
}
