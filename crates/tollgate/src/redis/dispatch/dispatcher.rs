use std::{collections::VecDeque, sync::Arc};

use super::{
    deadline::DeadlineTimer,
    queue::NotQueued,
    request::{QueuedCheck, ReplySender},
    worker::{self, Inbox},
};
use crate::{
    Error, ErrorKind,
    redis::{deny_cache::DenyCache, server::Server},
};

/// Sends the checks for one server, in few calls.
///
/// A [worker](worker::serve) takes them from the queue.
#[derive(Debug)]
pub(super) struct Dispatcher {
    inbox: Arc<Inbox>,
    server: Arc<Server>,
    deny_cache: Option<Arc<DenyCache>>,
    timer: DeadlineTimer,
}

/// The most checks that may wait. One more fails with [`ErrorKind::Overloaded`]. At the best rate that was measured so
/// many are decided within a deadline.
const MOST_WAITING: usize = 32_768;

impl Dispatcher {
    pub(super) fn new(server: Arc<Server>, deny_cache: Option<Arc<DenyCache>>) -> Self {
        Self { inbox: Inbox::new(), server, deny_cache, timer: DeadlineTimer::default() }
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn deny_cache(&self) -> Option<&DenyCache> {
        self.deny_cache.as_deref()
    }

    /// Returns the number of checks that wait to be sent.
    #[cfg(feature = "metrics")]
    pub(super) fn queued(&self) -> usize {
        self.inbox.queue.lock().checks.len()
    }

    pub(super) fn timer(&self) -> &DeadlineTimer {
        &self.timer
    }

    /// Queues a check. Returns the epoch of the breaker at that time.
    pub(super) fn push(&self, sender: ReplySender) -> Result<u64, Error> {
        let has_room = |checks: &mut VecDeque<QueuedCheck>| {
            if checks.len() >= MOST_WAITING {
                checks.retain(|check| check.sender.is_awaited());
            }
            checks.len() < MOST_WAITING
        };
        let mut epoch = 0;
        let check = |breaker_epoch| {
            epoch = breaker_epoch;
            QueuedCheck { sender, breaker_epoch }
        };
        let mut waiting = match self.inbox.queue.push(self.server.breaker(), has_room, check) {
            Ok(waiting) => waiting,
            Err(NotQueued::BreakerOpen) => return Err(self.server.last_refusal()),
            Err(NotQueued::Full) => {
                return Err(Error::new(
                    ErrorKind::Overloaded,
                    format!("{MOST_WAITING} checks wait for redis, which is the most"),
                ));
            }
        };
        if waiting.worker.strong_count() == 0 {
            // This is the first check, or the runtime of the last worker ended.
            let alive = Arc::new(());
            waiting.worker = Arc::downgrade(&alive);
            drop(waiting);
            tokio::spawn(worker::serve(Arc::clone(&self.inbox), Arc::clone(&self.server), alive));
        } else {
            drop(waiting);
            self.inbox.wake.notify_one();
        }
        Ok(epoch)
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.inbox.queue.lock().is_closed = true;
        self.inbox.wake.notify_one();
    }
}
