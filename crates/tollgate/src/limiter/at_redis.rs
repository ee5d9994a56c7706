use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::Inner;
use crate::{Decision, Error, redis::Asked};

pin_project! {
    /// A check that Redis is at, until the deadline.
    pub(super) struct AtRedis {
        limiter: Arc<Inner>,
        asked: Asked,
        deadline: Option<Instant>,
        // Set when the check was sent.
        #[pin]
        timer: Option<Sleep>,
    }
}

impl AtRedis {
    pub(super) fn new(limiter: Arc<Inner>, asked: Asked) -> Self {
        let (asked, deadline) = asked.within(limiter.deadline);
        Self { limiter, asked, deadline: deadline.map(Instant::from_std), timer: None }
    }
}

impl Future for AtRedis {
    type Output = Result<Decision, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let answer = match &this.limiter.redis {
            Some(redis) => this.asked.poll(redis, cx),
            None => Poll::Pending,
        };
        if let Poll::Ready(answer) = answer {
            return Poll::Ready(this.limiter.settle(this.asked.check(), answer));
        }
        if this.timer.is_none() {
            let limit = this.limiter.deadline;
            this.timer.set(Some(this.deadline.map_or_else(|| sleep(limit), sleep_until)));
        }
        if let Some(timer) = this.timer.as_mut().as_pin_mut() {
            ready!(timer.poll(cx));
        }
        this.asked.give_up();
        Poll::Ready(this.limiter.settle(this.asked.check(), Err(this.limiter.late())))
    }
}
