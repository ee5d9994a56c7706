//! Requests that wait for their turn instead of being denied.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    time::{Instant, sleep_until, timeout_at},
};
use tollgate::{Algorithm, CheckFuture, Cost, Decision, Error, Key, Limiter, StoreFuture};

use crate::metrics;

/// The queues of one layer, one for each key that has somebody waiting.
pub(crate) struct Queues {
    pub(crate) max_wait: Duration,
    pub(crate) max_waiting: usize,
    waiting: AtomicUsize,
    queues: Mutex<HashMap<(usize, Key), Arc<Queue>>>,
}

/// The default of [`RateLimitBuilder::max_waiting`](crate::RateLimitBuilder::max_waiting).
const MAX_WAITING: usize = 1024;

/// Those who wait for one key. The first holds the turn and asks the store, the others wait for it
/// in the order in which they came.
struct Queue {
    turn: Semaphore,
    length: AtomicUsize,
    last: Mutex<Option<Denied>>,
}

/// The last denial, and when it was told.
#[derive(Clone)]
struct Denied {
    decision: Decision,
    at: Instant,
}

/// What is checked.
struct Ask {
    limiter: Limiter,
    at: usize,
    key: Key,
    cost: Cost,
}

impl Queues {
    pub(crate) fn new(max_wait: Duration, max_waiting: Option<usize>) -> Self {
        let max_waiting = max_waiting.unwrap_or(MAX_WAITING);
        Self { max_wait, max_waiting, waiting: AtomicUsize::new(0), queues: Mutex::default() }
    }

    /// The decision that [`Limiter::check_cost`] would make, when it is the request's turn. `at`
    /// tells the limiters of a layer apart.
    pub(crate) fn check(self: &Arc<Self>, limiter: &Limiter, at: usize, key: Key, cost: Cost) -> CheckFuture {
        let queues = Arc::clone(self);
        let ask = Ask { limiter: limiter.clone(), at, key, cost };
        if self.has_queue(&ask) {
            return StoreFuture::pending(queues.wait(ask, None));
        }
        match ask.check().into_ready() {
            Ok(answer) => match self.denied_for_now(&answer) {
                Some(denied) => StoreFuture::pending(queues.wait(ask, Some(denied))),
                None => StoreFuture::ready(answer),
            },
            Err(pending) => StoreFuture::pending(async move {
                let answer = pending.await;
                match queues.denied_for_now(&answer) {
                    Some(denied) => queues.wait(ask, Some(denied)).await,
                    None => answer,
                }
            }),
        }
    }

    /// A denial that ends while the request may wait.
    fn denied_for_now(&self, answer: &Result<Decision, Error>) -> Option<Denied> {
        let decision = answer.as_ref().ok()?;
        let retry_after = decision.retry_after()?;
        (retry_after <= self.max_wait).then(|| Denied { decision: decision.clone(), at: Instant::now() })
    }

    async fn wait(self: Arc<Self>, ask: Ask, denied: Option<Denied>) -> Result<Decision, Error> {
        let deadline = Instant::now() + self.max_wait;
        let place = match self.join(&ask, denied.as_ref()) {
            Ok(place) => place,
            Err(Some(denied)) => return Ok(denied.decision),
            Err(None) => return ask.check().await,
        };
        let Ok(Ok(_turn)) = timeout_at(deadline, place.queue.turn.acquire()).await else {
            let last = lock(&place.queue.last).clone();
            return match last.or(denied) {
                Some(denied) => Ok(denied.decision),
                None => ask.check().await,
            };
        };
        let mut denied = denied;
        loop {
            if let Some(Denied { decision, at }) = denied {
                lock(&place.queue.last).replace(Denied { decision: decision.clone(), at });
                match decision.retry_after() {
                    Some(retry_after) if at + retry_after <= deadline => sleep_until(at + retry_after).await,
                    _ => return Ok(decision),
                }
            }
            match ask.check().await {
                Ok(decision) if decision.is_denied() => denied = Some(Denied { decision, at: Instant::now() }),
                answer => return answer,
            }
        }
    }

    /// A place at the end of the key's queue, unless there is none, or the turn would come too
    /// late: then the denial to answer with, if one is known.
    fn join(self: &Arc<Self>, ask: &Ask, denied: Option<&Denied>) -> Result<Place, Option<Box<Denied>>> {
        let id = (ask.at, ask.key.clone());
        let mut queues = lock(&self.queues);
        let last = queues.get(&id).and_then(|queue| lock(&queue.last).clone());
        let known = || denied.or(last.as_ref()).cloned().map(Box::new);
        if self.waiting.load(Ordering::Relaxed) >= self.max_waiting {
            return Err(known());
        }
        if let (Some(queue), Some(last)) = (queues.get(&id), &last) {
            let turn = last.turn_after(queue.length.load(Ordering::Relaxed));
            if turn > Instant::now() + self.max_wait {
                return Err(known());
            }
        }
        let queue = Arc::clone(queues.entry(id.clone()).or_insert_with(|| {
            Arc::new(Queue { turn: Semaphore::new(1), length: AtomicUsize::new(0), last: Mutex::default() })
        }));
        queue.length.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        metrics::waiting(1.0);
        Ok(Place { queues: Arc::clone(self), id, queue })
    }

    fn has_queue(&self, ask: &Ask) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 && lock(&self.queues).contains_key(&(ask.at, ask.key.clone()))
    }
}

impl Ask {
    fn check(&self) -> CheckFuture {
        self.limiter.check_cost(self.key.clone(), self.cost)
    }
}

impl Denied {
    /// The earliest turn of one who has this many before it: each of them spends a unit at least.
    fn turn_after(&self, ahead: usize) -> Instant {
        let first = self.at + self.decision.retry_after().unwrap_or_default();
        let Some(state) = self.decision.binding() else { return first };
        let (quota, ahead) = (state.policy().quota(), u32::try_from(ahead).unwrap_or(u32::MAX));
        let wait = match state.policy().algorithm() {
            Algorithm::TokenBucket => quota.period().saturating_mul(ahead) / quota.amount(),
            // The others may give back all at once.
            _ => quota.period().saturating_mul(ahead / quota.amount()),
        };
        first.checked_add(wait).unwrap_or(first)
    }
}

/// A place in a queue. To drop it leaves the queue.
struct Place {
    queues: Arc<Queues>,
    id: (usize, Key),
    queue: Arc<Queue>,
}

impl Drop for Place {
    fn drop(&mut self) {
        metrics::waiting(-1.0);
        let mut queues = lock(&self.queues.queues);
        self.queues.waiting.fetch_sub(1, Ordering::Relaxed);
        if self.queue.length.fetch_sub(1, Ordering::Relaxed) == 1 {
            queues.remove(&self.id);
        }
    }
}

/// Nothing that holds one of these locks can leave half of a change behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
