use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::Inner;
use crate::{
    Decision, Error,
    redis::{Late, Turn},
};

/// A check that Redis is at, until the deadline.
pub(super) struct AtRedis {
    limiter: Arc<Inner>,
    turn: Turn,
    is_watched: bool,
}

impl AtRedis {
    pub(super) fn new(limiter: Arc<Inner>, turn: Turn) -> Self {
        Self { limiter, turn, is_watched: false }
    }
}

impl Future for AtRedis {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let answer = match Pin::new(&mut this.turn).poll(cx) {
            Poll::Ready(Ok(answer)) => answer,
            Poll::Ready(Err(Late)) => Err(this.limiter.late()),
            Poll::Pending => {
                if !this.is_watched {
                    this.is_watched = true;
                    this.limiter.watch.over(&this.turn);
                }
                return Poll::Pending;
            }
        };
        Poll::Ready(this.limiter.settle(this.turn.check(), answer))
    }
}
