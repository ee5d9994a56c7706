use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use super::{
    connection,
    engine::Engine,
    job::{self, Answered, Job, Unanswered, Waiter},
};
use crate::{Check, Decision, Error, ErrorKind};

/// A check at a server, which is queued when it is first polled, and its decision.
///
/// A caller that gives up before its batch left is taken out of the queue: nothing is charged
/// then. Afterwards the charge stands. One that gives up at its deadline is a miss.
///
/// It is polled by hand, because the state of an `async` block is moved as a whole each time another is put around it, and
/// a check was moved seven times.
#[derive(Debug)]
pub(crate) struct Turn {
    engine: Arc<Engine>,
    answered: Answered,
    state: State,
}

/// How far a check came.
#[derive(Debug)]
enum State {
    Ahead(Waiter),
    /// It was queued after so many openings of the breaker.
    Queued(u64),
    Over,
}

/// The deadline came before the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late;

impl Turn {
    pub(super) fn new(engine: Arc<Engine>, job: Arc<Job>) -> Self {
        let (waiter, answered) = job::sides(job);
        Self { engine, state: State::Ahead(waiter), answered }
    }

    pub(crate) fn check(&self) -> Check<'_> {
        self.job().check()
    }

    pub(super) fn job(&self) -> &Arc<Job> {
        self.answered.job()
    }

    /// The answer to a check that was queued after so many openings of the breaker.
    fn outcome(
        &self,
        answer: Result<Result<Decision, Error>, Unanswered>,
        asked_after: u64,
    ) -> Result<Result<Decision, Error>, Late> {
        let connection = self.engine.connection();
        Ok(match answer {
            Ok(Ok(decision)) => {
                connection.breaker().served();
                if let (Some(denials), Some(epoch)) = (self.engine.denials(), self.job().epoch)
                    && decision.is_denied()
                {
                    denials.remember(self.job(), epoch, &decision);
                }
                Ok(decision)
            }
            Ok(Err(error)) => Err(error),
            Err(Unanswered::Late) => {
                connection.missed();
                return Err(Late);
            }
            Err(Unanswered::Dropped) if connection.breaker().openings() != asked_after => Err(connection.overtaken()),
            Err(Unanswered::Dropped) => {
                Err(Error::new(ErrorKind::Unavailable, "the task that speaks to redis was shut down"))
            }
        })
    }
}

impl Future for Turn {
    type Output = Result<Result<Decision, Error>, Late>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Ahead(_) = &self.state
            && let State::Ahead(waiter) = std::mem::replace(&mut self.state, State::Over)
        {
            match self.engine.push(waiter) {
                Ok(asked_after) => self.state = State::Queued(asked_after),
                Err(why) => return Poll::Ready(Ok(Err(why))),
            }
        }
        let answer = ready!(Pin::new(&mut self.answered).poll(cx));
        let asked_after = match std::mem::replace(&mut self.state, State::Over) {
            State::Queued(asked_after) => asked_after,
            State::Ahead(_) | State::Over => self.engine.connection().breaker().openings(),
        };
        Poll::Ready(self.outcome(answer, asked_after))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let is_late = |deadline| tokio::time::Instant::now().into_std() >= deadline;
        if matches!(self.state, State::Queued(_)) && self.job().deadline.is_some_and(is_late) {
            self.engine.connection().missed();
        }
    }
}

impl From<Late> for Error {
    fn from(_: Late) -> Self {
        connection::late()
    }
}
