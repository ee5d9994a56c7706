use std::{pin::pin, sync::Arc};

use tokio::sync::Notify;

use super::{
    batch::{Batch, BatchLimit},
    queue::Queue,
    request::QueuedCheck,
    sent::SentBatches,
};
use crate::{
    Error,
    redis::{
        connect::Connection,
        server::{CallError, Server},
    },
};

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
/// One task cuts and sends, so checks reach the server in the order in which they came. Checks are cut when there is a
/// connection, so a check whose caller gives up while the server is dialled is never sent. Checks that were certainly not
/// executed come back to the front of the queue. When the breaker opens, the worker drops all checks from before.
pub(super) async fn serve(inbox: Arc<Inbox>, server: Arc<Server>, _alive: Arc<()>) {
    let mut sent = SentBatches::default();
    let (mut epoch, mut is_held) = (0, false);
    loop {
        let now = server.breaker().epoch();
        if now != epoch {
            epoch = now;
            sent.clear();
            let overtaken = inbox.queue.lock().take_overtaken(now);
            for check in overtaken {
                check.sender.send(Err(server.overtaken()));
            }
            continue;
        }
        let (is_empty, is_closed) = {
            let mut waiting = inbox.queue.lock();
            sent.put_back(&mut waiting.checks, epoch);
            (waiting.checks.is_empty(), waiting.is_closed)
        };
        if is_empty && is_closed && sent.is_empty() {
            return;
        }
        let is_full = sent.len() >= MOST_BATCHES || sent.has_refused();
        if is_full || is_empty || std::mem::take(&mut is_held) {
            tokio::select! {
                biased;
                () = sent.until_answered(&server) => {}
                () = server.opened().notified() => {}
                () = inbox.wake.notified(), if !is_full => {}
            }
            continue;
        }
        // The tasks that are ready now may add their checks.
        tokio::task::yield_now().await;
        let connection = tokio::select! {
            biased;
            connection = connected(&server, &mut sent) => connection,
            () = server.opened().notified() => continue,
        };
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => {
                let waiting = std::mem::take(&mut inbox.queue.lock().checks);
                for check in waiting {
                    check.sender.fail(CallError::unreachable(error.clone()));
                }
                continue;
            }
        };
        if server.breaker().epoch() != epoch {
            continue;
        }
        is_held = sent.is_held(&connection);
        if is_held {
            continue;
        }
        let batch = {
            let checks = &mut inbox.queue.lock().checks;
            let waiting = checks.len() + sent.checks();
            let limit = BatchLimit { subjects: waiting.div_ceil(MOST_BATCHES), checks: waiting.div_ceil(2) };
            Batch::cut(checks, limit, &sent)
        };
        // The first check may have to wait for the answer to another one of its key.
        is_held = batch.is_empty() && !sent.is_empty();
        if !batch.is_empty() {
            sent.send(batch, &server, connection).await;
        }
    }
}

/// Waits for a connection, and replies meanwhile to the batches under way.
async fn connected(server: &Server, sent: &mut SentBatches) -> Result<Connection, Error> {
    let mut connection = pin!(server.connection());
    loop {
        tokio::select! {
            biased;
            connection = &mut connection => return connection,
            () = sent.until_answered(server) => {}
        }
    }
}
