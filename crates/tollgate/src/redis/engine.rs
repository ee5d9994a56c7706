use std::{
    collections::VecDeque,
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use tokio::sync::Notify;

use super::{
    batch::{Batch, Share},
    connection::Connection,
    denials::Denials,
    job::{Queued, Waiter},
    queue::{Queue, Refused},
};
use crate::{Error, reason::Reason};

/// Gathers concurrent checks into few calls.
///
/// There is no timer. While fewer than [`IN_FLIGHT`] batches are under way, what is queued leaves
/// at once, after the tasks that are ready now had their chance to join; while as many are under
/// way, checks gather. So a lone caller pays one trip, and the size of a batch finds itself: it
/// grows with the load and with the distance of the server. No batch takes more than its share of
/// all who wait, so that this end works on the answers to one while the server works on the next;
/// as one, the two ends would wait for each other in turns. Those who ask for the same keys, of
/// which the server looks at each once, leave in two parts.
///
/// One task cuts and sends, so checks reach the server in the order in which they came. When the
/// breaker opens, it lets go of everything that was asked before.
#[derive(Debug)]
pub(super) struct Engine {
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    denials: Option<Arc<Denials>>,
}

#[derive(Debug)]
struct Shared {
    queue: Queue<Queued>,
    wake: Notify,
}

/// So many keep both ends of the connection busy, also where a core that sleeps takes its time to wake; with more, each
/// batch shares less.
const IN_FLIGHT: usize = 4;

/// How many checks may wait. Beyond it the store is overloaded and says so at once; at the best
/// rate measured this many are decided within a deadline.
const MOST_WAITING: usize = 32_768;

impl Engine {
    pub(super) fn new(connection: Arc<Connection>, denials: Option<Arc<Denials>>) -> Self {
        Self { shared: Arc::new(Shared { queue: Queue::new(), wake: Notify::new() }), connection, denials }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Where what it answers is remembered.
    pub(super) fn denials(&self) -> Option<&Denials> {
        self.denials.as_deref()
    }

    /// Queues a check; says how often the breaker had opened then.
    pub(super) fn push(&self, waiter: Waiter) -> Result<u64, Error> {
        let room = |queued: &mut VecDeque<Queued>| {
            if queued.len() >= MOST_WAITING {
                queued.retain(|queued| queued.waiter.is_awaited());
            }
            queued.len() < MOST_WAITING
        };
        let mut asked = 0;
        let queued = |asked_after| {
            asked = asked_after;
            Queued { waiter, asked_after }
        };
        let mut queue = match self.shared.queue.push(self.connection.breaker(), room, queued) {
            Ok(queue) => queue,
            Err(Refused::Open) => return Err(self.connection.why()),
            Err(Refused::Full) => return Err(Error::new(Reason::Overload, "too many checks wait for redis")),
        };
        if queue.server.strong_count() == 0 {
            // The first check, or the runtime of the last server ended.
            let alive = Arc::new(());
            queue.server = Arc::downgrade(&alive);
            let (shared, connection) = (Arc::clone(&self.shared), Arc::clone(&self.connection));
            drop(queue);
            tokio::spawn(serve(shared, connection, alive));
        } else {
            drop(queue);
            self.shared.wake.notify_one();
        }
        Ok(asked)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.wake.notify_one();
    }
}

/// Cuts batches off the queue and sees them through, until the queue is closed and empty.
async fn serve(shared: Arc<Shared>, connection: Arc<Connection>, _alive: Arc<()>) {
    let mut under_way = UnderWay::default();
    let mut openings = 0;
    loop {
        let now = connection.breaker().openings();
        if now != openings {
            openings = now;
            under_way.let_go(now);
            let overtaken = shared.queue.lock().overtaken(now);
            for queued in overtaken {
                queued.waiter.tell(Err(connection.overtaken()));
            }
            continue;
        }
        let opened = pin!(connection.opened().notified());
        if under_way.0.len() >= IN_FLIGHT {
            under_way.until(opened).await;
            continue;
        }
        let (empty, closed) = {
            let queue = shared.queue.lock();
            (queue.jobs.is_empty(), queue.closed)
        };
        if empty {
            if closed && under_way.0.is_empty() {
                return;
            }
            let wake = pin!(shared.wake.notified());
            under_way.until(either(wake, opened)).await;
            continue;
        }
        // The tasks that are ready now may join.
        tokio::task::yield_now().await;
        if connection.breaker().openings() != openings {
            continue;
        }
        let batch = {
            let jobs = &mut shared.queue.lock().jobs;
            let waiting = jobs.len() + under_way.checks();
            Batch::cut(jobs, Share { subjects: waiting.div_ceil(IN_FLIGHT), checks: waiting.div_ceil(2) })
        };
        under_way.add(batch, openings, &connection);
        under_way.poll_once().await;
    }
}

/// The batches that were sent and not answered, oldest first.
#[derive(Default)]
struct UnderWay(Vec<Sent>);

struct Sent {
    /// How often the breaker had opened then.
    after: u64,
    checks: usize,
    answered: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl UnderWay {
    fn add(&mut self, batch: Batch, after: u64, connection: &Arc<Connection>) {
        let (checks, connection) = (batch.checks(), Arc::clone(connection));
        self.0.push(Sent { after, checks, answered: Box::pin(async move { batch.run(&connection).await }) });
    }

    /// Who waits for all of them.
    fn checks(&self) -> usize {
        self.0.iter().map(|sent| sent.checks).sum()
    }

    /// Polls every batch, drops those that are done, and says whether there was one.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.0.len();
        self.0.retain_mut(|sent| sent.answered.as_mut().poll(cx).is_pending());
        self.0.len() < before
    }

    /// Gets what was just added onto the connection.
    async fn poll_once(&mut self) {
        std::future::poll_fn(|cx| {
            self.poll(cx);
            Poll::Ready(())
        })
        .await;
    }

    /// Drops what was sent before the breaker opened for the time given.
    fn let_go(&mut self, openings: u64) {
        self.0.retain(|sent| sent.after >= openings);
    }

    /// Waits until a batch is done or `other` is.
    async fn until(&mut self, mut other: impl Future<Output = ()> + Unpin) {
        std::future::poll_fn(|cx| {
            if self.poll(cx) || Pin::new(&mut other).poll(cx).is_ready() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Waits for the first of two.
fn either<A, B>(mut one: A, mut other: B) -> impl Future<Output = ()> + Unpin
where
    A: Future<Output = ()> + Unpin,
    B: Future<Output = ()> + Unpin,
{
    std::future::poll_fn(move |cx| {
        let is_ready = Pin::new(&mut one).poll(cx).is_ready() || Pin::new(&mut other).poll(cx).is_ready();
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
}
