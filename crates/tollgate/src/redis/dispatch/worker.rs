use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::sync::Notify;

use super::{
    batch::{Batch, BatchLimit},
    queue::Queue,
    request::QueuedCheck,
};
use crate::redis::server::Server;

/// The queue before a server, and the signal that a check was added or the queue was closed.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) queue: Queue<QueuedCheck>,
    pub(super) wake: Notify,
}

impl Inbox {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { queue: Queue::new(), wake: Notify::new() })
    }
}

/// The most batches under way. So many keep both ends of the connection busy, also where a sleeping core takes time to
/// wake. With more, each batch would share less.
const MOST_BATCHES: usize = 4;

/// Cuts batches off the queue and sends them, until the queue is closed and empty. `_alive` tells the dispatcher that this
/// worker runs.
///
/// There is no timer. While fewer than [`MOST_BATCHES`] are under way, queued checks leave at once, after the tasks that
/// are ready now had their chance to join. While as many are under way, checks gather. So a single caller pays one
/// round trip, and the batch size adapts to the load and to the distance of the server. No batch takes more than its
/// share of all waiting checks: the client then works on the answers to one batch while the server works on the next.
/// Checks of the same keys leave in two parts, because the server reads each key once.
///
/// One task cuts and sends, so checks reach the server in the order in which they came. When the breaker opens, the
/// worker drops all checks from before.
pub(super) async fn serve(inbox: Arc<Inbox>, server: Arc<Server>, _alive: Arc<()>) {
    let mut sent = SentBatches::default();
    let mut epoch = 0;
    loop {
        let now = server.breaker().epoch();
        if now != epoch {
            epoch = now;
            sent.0.clear();
            let overtaken = inbox.queue.lock().take_overtaken(now);
            for check in overtaken {
                check.sender.send(Err(server.overtaken()));
            }
            continue;
        }
        let (is_empty, is_closed) = {
            let waiting = inbox.queue.lock();
            (waiting.checks.is_empty(), waiting.is_closed)
        };
        if is_empty && is_closed && sent.0.is_empty() {
            return;
        }
        let is_full = sent.0.len() >= MOST_BATCHES;
        if is_full || is_empty {
            tokio::select! {
                biased;
                () = sent.until_answered() => {}
                () = server.opened().notified() => {}
                () = inbox.wake.notified(), if !is_full => {}
            }
            continue;
        }
        // The tasks that are ready now may add their checks.
        tokio::task::yield_now().await;
        if server.breaker().epoch() != epoch {
            continue;
        }
        let batch = {
            let checks = &mut inbox.queue.lock().checks;
            let waiting = checks.len() + sent.checks();
            let limit = BatchLimit { subjects: waiting.div_ceil(MOST_BATCHES), checks: waiting.div_ceil(2) };
            Batch::cut(checks, limit)
        };
        sent.add(batch, &server);
        sent.poll_once().await;
    }
}

/// Holds the batches that were sent and not answered, oldest first.
///
/// It polls them in that order, so that batches which wait for a connection are sent in order. `FuturesUnordered` polls
/// in the order of wake-ups.
#[derive(Default)]
struct SentBatches(Vec<SentBatch>);

struct SentBatch {
    checks: usize,
    answered: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl SentBatches {
    fn add(&mut self, batch: Batch, server: &Arc<Server>) {
        let (checks, server) = (batch.len(), Arc::clone(server));
        self.0.push(SentBatch { checks, answered: Box::pin(async move { batch.run(&server).await }) });
    }

    /// Returns the number of checks in all batches.
    fn checks(&self) -> usize {
        self.0.iter().map(|batch| batch.checks).sum()
    }

    /// Polls every batch, and removes those that are answered. Returns whether there was one.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.0.len();
        self.0.retain_mut(|batch| batch.answered.as_mut().poll(cx).is_pending());
        self.0.len() < before
    }

    /// Writes a new batch to the connection.
    async fn poll_once(&mut self) {
        poll_fn(|cx| {
            self.poll(cx);
            Poll::Ready(())
        })
        .await;
    }

    /// Waits until a batch is answered.
    async fn until_answered(&mut self) {
        poll_fn(|cx| if self.poll(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}
