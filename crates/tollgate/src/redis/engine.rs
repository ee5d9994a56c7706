use std::{
    collections::VecDeque,
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, Weak},
    task::{Context, Poll},
};

use tokio::sync::{Notify, oneshot};

use super::{batch::Batch, connection::Connection};
use crate::{Cost, Decision, Error, ErrorKind, Key, PolicySet};

/// A check that waits for its batch.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) policies: PolicySet,
    pub(super) key: Key,
    pub(super) cost: Cost,
    /// What the logs among the policies note.
    pub(super) tag: Box<[u8]>,
    pub(super) answer: oneshot::Sender<Result<Decision, Error>>,
}

/// Gathers concurrent checks into few calls.
///
/// There is no timer. While fewer than [`IN_FLIGHT`] batches are under way, what is queued leaves
/// at once, after the tasks that are ready now had their chance to join; while as many are under
/// way, checks gather. So a lone caller pays one trip, and the size of a batch finds itself: it
/// grows with the load and with the distance of the server.
///
/// One task cuts and sends, so checks reach the server in the order in which they came.
#[derive(Debug)]
pub(super) struct Engine {
    shared: Arc<Shared>,
    connection: Arc<Connection>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Alive as long as the task that serves this queue is.
    server: Weak<()>,
    /// Nobody can add to the queue any more.
    closed: bool,
}

/// More batches under way share less: two keep both ends of the connection busy.
const IN_FLIGHT: usize = 2;

/// How many checks may wait. Beyond it the store is overloaded and says so at once; at the best
/// rate measured this many are decided within a deadline.
const MOST_WAITING: usize = 32_768;

impl Engine {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self { shared: Arc::default(), connection }
    }

    /// Queues a check and waits for its decision.
    ///
    /// A caller that gives up before its batch left is taken out of the queue: nothing is charged
    /// then. Afterwards the charge stands.
    pub(super) async fn check(
        &self,
        policies: PolicySet,
        key: Key,
        cost: Cost,
        tag: Box<[u8]>,
    ) -> Result<Decision, Error> {
        let (answer, decided) = oneshot::channel();
        self.submit(Job { policies, key, cost, tag, answer })?;
        match decided.await {
            Ok(decision) => decision,
            Err(_) => Err(Error::new(ErrorKind::Unavailable, "the task that speaks to redis was shut down")),
        }
    }

    fn submit(&self, job: Job) -> Result<(), Error> {
        let mut queue = self.shared.lock();
        if queue.jobs.len() >= MOST_WAITING {
            queue.jobs.retain(|job| !job.answer.is_closed());
        }
        if queue.jobs.len() >= MOST_WAITING {
            return Err(Error::new(ErrorKind::Unavailable, "too many checks wait for redis"));
        }
        queue.jobs.push_back(job);
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
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_one();
    }
}

impl Shared {
    /// A panic while the lock is held leaves a whole queue behind, so the lock is never poisoned.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Cuts batches off the queue and sees them through, until the queue is closed and empty.
async fn serve(shared: Arc<Shared>, connection: Arc<Connection>, _alive: Arc<()>) {
    let mut under_way = UnderWay::default();
    loop {
        if under_way.0.len() >= IN_FLIGHT {
            under_way.next().await;
            continue;
        }
        let (empty, closed) = {
            let queue = shared.lock();
            (queue.jobs.is_empty(), queue.closed)
        };
        if empty {
            if closed && under_way.0.is_empty() {
                return;
            }
            under_way.until(pin!(shared.wake.notified())).await;
            continue;
        }
        // The tasks that are ready now may join.
        tokio::task::yield_now().await;
        let batch = Batch::cut(&mut shared.lock().jobs);
        let connection = Arc::clone(&connection);
        under_way.0.push(Box::pin(async move { batch.run(&connection).await }));
        under_way.poll_once().await;
    }
}

/// The batches that were sent and not answered, oldest first.
#[derive(Default)]
struct UnderWay(Vec<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl UnderWay {
    /// Polls every batch, drops those that are done, and says whether there was one.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.0.len();
        self.0.retain_mut(|batch| batch.as_mut().poll(cx).is_pending());
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

    /// Waits until a batch is done.
    async fn next(&mut self) {
        std::future::poll_fn(|cx| if self.poll(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Waits until a batch is done or `other` is.
    async fn until(&mut self, mut other: Pin<&mut impl Future<Output = ()>>) {
        std::future::poll_fn(|cx| {
            if self.poll(cx) || other.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
