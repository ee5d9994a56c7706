use std::{
    future::Future,
    hash::BuildHasher,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use super::{RedisStore, engine::Turn, job::Job, lane::Lanes, slots::Epoch};
use crate::{Check, Decision, Error};

impl RedisStore {
    /// A check that has to be sent, or what is known without the server.
    #[inline]
    pub(crate) fn ask(&self, check: Check<'_>) -> Result<Asked, Result<Decision, Error>> {
        let hash = self.0.hasher.hash_one(check.key);
        if let Some(denial) = self.0.denials.as_ref().and_then(|known| known.look_up(&check, hash)) {
            return Err(Ok(denial));
        }
        let epoch = self.0.denials.as_ref().map(|known| known.epoch(hash));
        if let Some(why) = self.0.lanes.refusal(check.key) {
            return Err(Err(why));
        }
        let way = Way::Ahead(Arc::new(Job::new(check, hash)));
        Ok(Asked { way, epoch, sent: Instant::now(), deadline: check.deadline })
    }
}

/// A check that is sent when it is first polled.
///
/// It is polled by hand, and not by an `async` block, because a state of that kind is moved as a whole each time another
/// one is put around it: half of what a caller had to do was that.
pub(crate) struct Asked {
    way: Way,
    /// Where denials are remembered.
    epoch: Option<Epoch>,
    sent: Instant,
    deadline: Option<Instant>,
}

/// How far it came.
enum Way {
    Ahead(Arc<Job>),
    /// The one server has it.
    One(Turn),
    /// It looks for the server of its slot.
    Cluster(Arc<Job>, Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>),
    Over(Arc<Job>),
}

impl Asked {
    /// The same check, with the time that its caller waits, and when that is over.
    pub(crate) fn within(self, time: Duration) -> (Self, Option<Instant>) {
        let deadline = self.sent.checked_add(time);
        (Self { deadline, ..self }, deadline)
    }

    pub(crate) fn check(&self) -> Check<'_> {
        self.way.job().check()
    }

    /// The decision of the store that was asked; nothing is heard of a check after it.
    pub(crate) fn poll(&mut self, store: &RedisStore, cx: &mut Context<'_>) -> Poll<Result<Decision, Error>> {
        if let Way::Ahead(job) = &self.way {
            let job = Arc::clone(job);
            self.way = match &store.0.lanes {
                Lanes::One(lane) => Way::One(lane.engine.submit(job, self.deadline)?),
                Lanes::Cluster(cluster) => {
                    let decision = cluster.clone().check(Arc::clone(&job), self.deadline);
                    Way::Cluster(job, Box::pin(decision))
                }
            };
        }
        let decision = ready!(match &mut self.way {
            Way::One(turn) => Pin::new(turn).poll(cx),
            Way::Cluster(_, decision) => decision.as_mut().poll(cx),
            Way::Ahead(_) | Way::Over(_) => Poll::Pending,
        });
        if let (Some(denials), Some(epoch), Ok(decision)) = (&store.0.denials, self.epoch, &decision)
            && decision.is_denied()
        {
            let job = self.way.job();
            denials.remember(&job.key, job.hash, epoch, decision, self.sent);
        }
        Poll::Ready(decision)
    }

    /// The caller does not wait any longer.
    pub(crate) fn give_up(&mut self) {
        self.way = Way::Over(Arc::clone(self.way.job()));
    }
}

impl Way {
    fn job(&self) -> &Arc<Job> {
        match self {
            Self::One(turn) => turn.job(),
            Self::Ahead(job) | Self::Cluster(job, _) | Self::Over(job) => job,
        }
    }
}
