use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
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
    let mut batches = FuturesUnordered::new();
    let (mut checks_under_way, mut epoch) = (0, 0);
    loop {
        let now = server.breaker().epoch();
        if now != epoch {
            epoch = now;
            batches.clear();
            checks_under_way = 0;
            let overtaken = inbox.queue.lock().take_overtaken(now);
            for check in overtaken {
                check.sender.send(Err(server.overtaken().into()));
            }
            continue;
        }
        let (is_empty, is_closed) = {
            let waiting = inbox.queue.lock();
            (waiting.checks.is_empty(), waiting.is_closed)
        };
        if is_empty && is_closed && batches.is_empty() {
            return;
        }
        let is_full = batches.len() >= MOST_BATCHES;
        if is_full || is_empty {
            tokio::select! {
                biased;
                Some(checks) = batches.next() => checks_under_way -= checks,
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
            let waiting = checks.len() + checks_under_way;
            let limit = BatchLimit { subjects: waiting.div_ceil(MOST_BATCHES), checks: waiting.div_ceil(2) };
            Batch::cut(checks, limit)
        };
        checks_under_way += batch.len();
        batches.push(run(batch, Arc::clone(&server)));
        // Writes the new batch to the connection.
        if let Some(Some(checks)) = batches.next().now_or_never() {
            checks_under_way -= checks;
        }
    }
}

/// Runs a batch, and returns the number of its checks.
async fn run(batch: Batch, server: Arc<Server>) -> usize {
    let checks = batch.len();
    batch.run(&server).await;
    checks
}
