use std::{
    collections::HashSet,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use super::{
    check::DeadlineTimer,
    load::{Load, Traffic},
    queue::{NotQueued, Queue, Waiting},
    request::{self, CheckRequest, NoReply, QueuedCheck, ReplySender},
    worker,
};
use crate::{
    Decision, Error,
    clock::Clock,
    redis::{
        connect::{Connection, Numbered, SharedConnection},
        deny_cache::DenyCache,
        pots::Pots,
        protocol::{self, Script},
        server::{Awaited, CallError, Outgoing, Sent, Server, ServerConfig},
    },
    runtime::Background,
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

/// The duty of the worker: to serve the queue until it is closed.
const SERVE: u32 = 1;

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

    /// Lets the caller send its check while checks are few. Otherwise gives the sender back.
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
        match self.inbox.queue.push(self.server.breaker(), sender, admit, queued) {
            Ok(waiting) => drop(waiting),
            Err(NotQueued::BreakerOpen) => return Err(self.server.last_refusal()),
            Err(NotQueued::Refused(error)) => return Err(error),
        }
        self.inbox.traffic.queued();
        let worker = &self.inbox.worker;
        if worker.has(SERVE) {
            worker.wake();
        } else {
            // This is the first check, or the runtime of the last worker ended.
            worker.ask(SERVE);
            worker.start(|running| worker::serve(Arc::clone(&self.inbox), Arc::clone(&self.server), running));
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
        self.inbox.worker.wake();
    }
}

/// Represents one server and the queue before it.
#[derive(Clone, Debug)]
pub(in crate::redis) struct ServerHandle {
    pub(in crate::redis) server: Arc<Server>,
    pub(super) dispatcher: Arc<Dispatcher>,
}

/// Holds the settings that all servers of a store share, and the deny cache.
#[derive(Clone)]
pub(in crate::redis) struct StoreConfig {
    pub(in crate::redis) server: ServerConfig,
    pub(in crate::redis) deny_cache: Option<Arc<DenyCache>>,
    /// The units of leased policies that this process holds.
    pub(in crate::redis) pots: Arc<Pots>,
}

impl StoreConfig {
    /// Creates the settings. Denials are remembered for at most `deny_cache_cap`.
    pub(in crate::redis) fn new(prefix: String, clock: Option<Clock>, deny_cache_cap: Duration) -> Self {
        // By a clock that the caller moves, nobody knows how long a denial holds.
        let remembers = clock.is_none() && deny_cache_cap > Duration::ZERO;
        Self {
            deny_cache: remembers.then(|| Arc::new(DenyCache::new(deny_cache_cap))),
            pots: Pots::new(clock.clone().unwrap_or_else(Clock::since_boot)),
            server: ServerConfig { prefix, clock },
        }
    }
}

impl ServerHandle {
    pub(in crate::redis) fn new(shared: Arc<SharedConnection>, config: &StoreConfig, is_in_cluster: bool) -> Self {
        let server = Server::new(shared, config.server.clone(), is_in_cluster);
        let dispatcher = Arc::new(Dispatcher::new(Arc::clone(&server), config.deny_cache.clone()));
        Self { server, dispatcher }
    }

    /// Returns the number of checks that wait to be sent.
    #[cfg(feature = "metrics")]
    pub(in crate::redis) fn queued(&self) -> usize {
        self.dispatcher.queued()
    }

    /// Returns whether both are the same server, not only servers at the same address.
    pub(in crate::redis) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.server, &other.server)
    }
}

/// The queue before a server, and the worker that is woken when a check was added or the queue was closed.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) queue: Queue<QueuedCheck>,
    pub(super) worker: Background,
    pub(super) load: Load,
    pub(super) traffic: Traffic,
    pub(super) scripts: KnownScripts,
}

impl Inbox {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: Queue::new(),
            worker: Background::new(),
            load: Load::new(),
            traffic: Traffic::new(),
            scripts: KnownScripts::default(),
        })
    }
}

/// The scripts that were sent on the current connection by their bodies, so that the server knows them.
#[derive(Debug, Default)]
pub(super) struct KnownScripts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    connection: u64,
    shas: HashSet<String>,
    /// The last one. Most calls are of the same script.
    last: String,
}

/// The most scripts that are known of. With one more, all are sent by their bodies again.
const MOST_SCRIPTS: usize = 4_096;

impl KnownScripts {
    /// Returns whether the server knows the script. It knows the script for the next call in any case.
    pub(super) fn know(&self, connection: &Connection, script: &Script) -> bool {
        let mut known = self.lock();
        if known.connection != connection.number() || known.shas.len() > MOST_SCRIPTS {
            *known = Known { connection: connection.number(), ..Known::default() };
        }
        if known.last == script.sha {
            return true;
        }
        known.last.clone_from(&script.sha);
        !known.shas.insert(script.sha.clone())
    }

    /// Forgets all scripts, because the server has.
    pub(super) fn forget(&self) {
        *self.lock() = Known::default();
    }

    /// A panic cannot leave a partial set behind this lock, so a poisoned lock is used as it is.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A check that its caller sends, without the queue and the worker.
///
/// It costs one wake-up less before the call and one less after it.
///
/// When the caller gives up before the deadline, a call that the connection has not written yet is not sent.
pub(super) struct DirectCheck {
    sender: ReplySender,
    outcome: Awaited<Outcome>,
}

type Outcome = Result<Result<Decision, Error>, NoReply>;

/// Notes that the check was answered, or its caller gave up.
struct Turn(Arc<Inbox>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.traffic.ends_direct();
    }
}

impl DirectCheck {
    /// Prepares the call, if nothing waits for the server, few checks are under way to it, and there is a connection.
    /// Otherwise gives the sender back.
    ///
    /// A check without a deadline takes the queue, where it ends when the breaker opens.
    pub(super) fn begin(sender: ReplySender, inbox: &Arc<Inbox>, server: &Arc<Server>) -> Result<Self, ReplySender> {
        let has_end = sender.request().deadline.is_some_and(|deadline| deadline.instant().is_some());
        // Reports travel in batches only.
        if sender.request().policies.is_leased()
            || !has_end
            || server.breaker().is_open()
            || !inbox.traffic.begins_direct()
        {
            return Err(sender);
        }
        let turn = Turn(Arc::clone(inbox));
        let Some(connection) = server.ready_connection() else { return Err(sender) };
        let request = Arc::clone(sender.request());
        let by_body = !inbox.scripts.know(&connection, request.policies.shape().check(request.is_capped()));
        let deadline = request.deadline;
        let outcome = Awaited::new(server, deadline, call(request, by_body, Arc::clone(server), connection, turn));
        Ok(Self { sender, outcome })
    }

    /// Returns the epoch of the breaker when the check was sent.
    pub(super) fn breaker_epoch(&self) -> u64 {
        self.outcome.breaker_epoch()
    }

    /// Sends the check at the first call, and polls for the outcome. Ends the request with it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = ready!(Pin::new(&mut self.outcome).poll(cx));
        self.sender.finish();
        Poll::Ready(outcome)
    }
}

async fn call(
    request: Arc<CheckRequest>,
    by_body: bool,
    server: Arc<Server>,
    connection: Connection,
    _turn: Turn,
) -> Outcome {
    let sent = server.send(&connection, &[Outgoing { call: request.call(&server), by_body }]).await.pop();
    // Held no longer than needed: a connection of a pool is lent as long as it is held.
    drop(connection);
    let answer = match sent {
        Some(Sent::Answered(answer)) => answer,
        // The server has not executed it, and the caller gave up.
        _ if request.is_over() => return Err(NoReply::Dropped),
        Some(Sent::UnknownScript | Sent::Unsent(_)) | None => server.send_one(request.call(&server), true, None).await,
    };
    match answer {
        Ok(value) => Ok(protocol::decision(&request.policies, request.charge.borrow(), request.sent, &value)),
        Err(CallError::NotExecuted(not_executed)) => Err(NoReply::NotExecuted(not_executed)),
        Err(CallError::Failed(error)) => Ok(Err(error)),
    }
}

impl std::fmt::Debug for DirectCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DirectCheck").field(&self.sender).finish()
    }
}
