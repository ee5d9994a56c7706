use std::sync::Arc;

use super::{
    deadline::DeadlineTimer,
    direct::DirectCheck,
    inbox::Inbox,
    queue::{NotQueued, Waiting},
    request::{self, CheckRequest, QueuedCheck, ReplySender},
    worker,
};
use crate::{
    Error,
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

/// The most checks that may wait, also where none has a deadline.
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
        self.inbox.queue.lock().len()
    }

    pub(super) fn timer(&self) -> &DeadlineTimer {
        &self.timer
    }

    /// Lets the caller send its check if nothing else keeps the server busy. Otherwise gives the sender back.
    pub(super) fn direct(&self, sender: ReplySender) -> Result<DirectCheck, ReplySender> {
        DirectCheck::begin(sender, &self.inbox, &self.server)
    }

    /// Queues a check. Returns the epoch of the breaker at that time.
    ///
    /// A check that would not be answered within its deadline fails at once with
    /// [`ErrorKind::Overloaded`](crate::ErrorKind). When the checks of one key are many, they fail sooner than others:
    /// half of the wait is kept for the other keys.
    pub(super) fn push(&self, sender: ReplySender) -> Result<u64, Error> {
        let admit = |waiting: &mut Waiting<QueuedCheck>, sender: &ReplySender| self.admit(waiting, sender.request());
        let mut epoch = 0;
        let queued = |sender, breaker_epoch| {
            epoch = breaker_epoch;
            QueuedCheck { sender, breaker_epoch }
        };
        let mut waiting = match self.inbox.queue.push(self.server.breaker(), sender, admit, queued) {
            Ok(waiting) => waiting,
            Err(NotQueued::BreakerOpen) => return Err(self.server.last_refusal()),
            Err(NotQueued::Refused(error)) => return Err(error),
        };
        self.inbox.traffic.queued();
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

impl Dispatcher {
    /// Refuses a check that would come too late.
    fn admit(&self, waiting: &mut Waiting<QueuedCheck>, request: &CheckRequest) -> Result<(), Error> {
        if waiting.len() >= MOST_WAITING {
            waiting.retain(|check| check.sender.is_awaited());
            if waiting.len() >= MOST_WAITING {
                return Err(request::crowded(MOST_WAITING));
            }
        }
        let Some(deadline) = request.deadline else { return Ok(()) };
        let crowd = || waiting.crowd(request.key_hash());
        self.inbox.load.admits(deadline.timeout(), waiting.len(), crowd).map_err(request::overloaded)
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.inbox.queue.lock().is_closed = true;
        self.inbox.wake.notify_one();
    }
}
