//! The side of the callers: a check is sent by its caller or queued, and its outcome is waited for.

use std::{
    collections::HashSet,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use super::{
    pacer::Pacer,
    queue::{NotQueued, Queue, Waiting},
    request::{self, CheckRequest, NoReply, QueuedCheck, ReplyReceiver, ReplySender},
    worker,
};
use crate::{
    Decision, Error, ErrorKind,
    clock::Clock,
    redis::{
        connect::{Connection, Numbered, SharedConnection},
        deny_cache::DenyCache,
        pots::Pots,
        protocol::{self, Script},
        server::{Awaited, CallError, Outgoing, Sent, Server, ServerConfig},
    },
    runtime::{self, Background},
    store::Deadline,
};

/// Sends the checks for one server, in few calls.
///
/// A [worker](worker::serve) takes them from the queue.
#[derive(Debug)]
struct Dispatcher {
    inbox: Arc<Inbox>,
    server: Arc<Server>,
    deny_cache: Option<Arc<DenyCache>>,
}

/// The duty of the worker: to serve the queue until it is closed.
const SERVE: u32 = 1;

/// The most checks that may wait, also where none has a deadline.
const MOST_WAITING: usize = 32_768;

impl Dispatcher {
    fn new(server: Arc<Server>, deny_cache: Option<Arc<DenyCache>>) -> Self {
        Self { inbox: Inbox::new(), server, deny_cache }
    }

    /// Returns the number of checks that wait to be sent.
    fn queued(&self) -> usize {
        self.inbox.queue.lock().len()
    }

    /// Lets the caller send its check while checks are few, or queues it.
    ///
    /// A check that would not be answered within its deadline fails at once with
    /// [`ErrorKind::Overloaded`](crate::ErrorKind).
    fn begin(&self, sender: ReplySender, may_be_direct: bool) -> Result<State, Error> {
        let mut epoch = 0;
        let admit = |waiting: &mut Waiting<QueuedCheck>, breaker_epoch| {
            if may_be_direct && waiting.len() == 0 && waiting.pacer.begins_direct() {
                return Err(Elsewhere::Direct(sender, waiting.pacer.short_line()));
            }
            admit(waiting, sender.request()).map_err(Elsewhere::Refused)?;
            epoch = breaker_epoch;
            Ok(QueuedCheck { sender, breaker_epoch })
        };
        match self.inbox.queue.push(self.server.breaker(), admit) {
            Ok(()) => {}
            Err(NotQueued::BreakerOpen) => return Err(self.server.last_refusal()),
            Err(NotQueued::Elsewhere(Elsewhere::Refused(error))) => return Err(error),
            Err(NotQueued::Elsewhere(Elsewhere::Direct(sender, short_line))) => {
                let mut turn = Turn::new(&self.inbox);
                return match self.server.ready_connection() {
                    Some(connection) => {
                        turn.begin(&connection, short_line);
                        Ok(State::Direct(DirectCheck::new(sender, turn, connection, &self.server)))
                    }
                    None => {
                        drop(turn);
                        self.begin(sender, false)
                    }
                };
            }
        }
        let worker = &self.inbox.worker;
        if worker.has(SERVE) {
            worker.wake();
        } else {
            // This is the first check, or the runtime of the last worker ended.
            worker.ask(SERVE);
            worker.start(|running| worker::serve(Arc::clone(&self.inbox), Arc::clone(&self.server), running));
        }
        Ok(State::Queued(epoch))
    }
}

/// The reason why a check is not queued.
enum Elsewhere {
    /// Its caller sends it. The line of this connection is short.
    Direct(ReplySender, Option<u64>),
    /// Its answer would come too late.
    Refused(Error),
}

/// Refuses a check that would come too late.
fn admit(waiting: &mut Waiting<QueuedCheck>, request: &CheckRequest) -> Result<(), Error> {
    if waiting.len() >= MOST_WAITING {
        waiting.retain(|check| check.sender.is_awaited());
        if waiting.len() >= MOST_WAITING {
            return Err(request::crowded(MOST_WAITING));
        }
    }
    let Some(deadline) = request.deadline else { return Ok(()) };
    let crowd = || waiting.crowd(request.key_hash());
    waiting.pacer.admits(deadline.timeout(), waiting.len(), crowd).map_err(request::overloaded)
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
    dispatcher: Arc<Dispatcher>,
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
    pub(super) scripts: KnownScripts,
}

impl Inbox {
    fn new() -> Arc<Self> {
        let queue = Queue::new(Pacer::new(runtime::now()));
        Arc::new(Self { queue, worker: Background::new(), scripts: KnownScripts::default() })
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
struct DirectCheck {
    sender: ReplySender,
    outcome: Awaited<Outcome>,
}

type Outcome = Result<Result<Decision, Error>, NoReply>;

/// A check that its caller sends is under way until this is dropped: it was answered, or its caller gave up.
struct Turn {
    inbox: Arc<Inbox>,
    /// `None` when the line is known to be short.
    measurement: Option<Measurement>,
    is_answered: bool,
}

/// Measures the round trip of a check that its caller sends.
struct Measurement {
    connection: u64,
    /// The time of the first answer on the connection.
    first: Duration,
    began: Instant,
}

impl Turn {
    fn new(inbox: &Arc<Inbox>) -> Self {
        Self { inbox: Arc::clone(inbox), measurement: None, is_answered: false }
    }

    /// Begins on a connection. While its line is not known to be short, the round trip is measured.
    fn begin(&mut self, connection: &Connection, short_line: Option<u64>) {
        let is_short = short_line == Some(connection.number());
        connection.gather(is_short);
        if !is_short {
            let (connection, first) = (connection.number(), connection.round_trip());
            self.measurement = Some(Measurement { connection, first, began: runtime::now() });
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut waiting = self.inbox.queue.lock();
        waiting.pacer.ends_direct(self.is_answered);
        if let Some(Measurement { connection, first, began }) = self.measurement.take_if(|_| self.is_answered) {
            waiting.pacer.connected(connection, began, worker::since_epoch, first);
            waiting.pacer.measured(connection, runtime::now().saturating_duration_since(began));
        }
    }
}

impl DirectCheck {
    /// Prepares the call.
    fn new(sender: ReplySender, turn: Turn, connection: Connection, server: &Arc<Server>) -> Self {
        let request = Arc::clone(sender.request());
        let by_body = !turn.inbox.scripts.know(&connection, request.policies.shape().check(request.is_capped()));
        let deadline = request.deadline;
        let outcome = Awaited::new(server, deadline, call(request, by_body, Arc::clone(server), connection, turn));
        Self { sender, outcome }
    }

    /// Returns the epoch of the breaker when the check was sent.
    fn breaker_epoch(&self) -> u64 {
        self.outcome.breaker_epoch()
    }

    /// Sends the check at the first call, and polls for the outcome. Ends the request with it.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
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
    mut turn: Turn,
) -> Outcome {
    let sent = server.send(&connection, &Outgoing { call: request.call(&server), by_body }).await;
    // Held no longer than needed: a connection of a pool is lent as long as it is held.
    drop(connection);
    let answer = match sent {
        Sent::Answered(answer) => {
            turn.is_answered = true;
            answer
        }
        // The server has not executed it, and the caller gave up.
        _ if request.is_over() => return Err(NoReply::Dropped),
        // On the heap, because few calls are sent twice, and every caller would hold the space.
        Sent::UnknownScript | Sent::Unsent(_) => Box::pin(server.send_one(request.call(&server), true, None)).await,
    };
    match answer {
        Ok(value) => Ok(protocol::decision(&request.policies, request.charge.borrow(), request.asked_us(), &value)),
        Err(CallError::NotExecuted(not_executed)) => Err(NoReply::NotExecuted(not_executed)),
        Err(CallError::Failed(error)) => Ok(Err(error)),
    }
}

impl fmt::Debug for DirectCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirectCheck").field(&self.sender).finish()
    }
}

/// Resolves to the decision of one server.
///
/// The check is queued when it is first polled, or sent at once while checks are few. A caller that
/// gives up before its batch left takes the check out of the queue, and nothing is charged. Afterwards the charge
/// stands. A caller that gives up at its deadline counts as a miss.
///
/// It is a hand-written future: the state of an `async` block is moved each time another block is put around it, and a
/// check was moved seven times.
#[derive(Debug)]
pub(in crate::redis) struct PendingCheck {
    dispatcher: Arc<Dispatcher>,
    receiver: ReplyReceiver,
    state: State,
}

#[derive(Debug)]
enum State {
    NotQueued(ReplySender),
    /// Sent by the caller.
    Direct(DirectCheck),
    /// Queued at this epoch of the breaker.
    Queued(u64),
    /// Refused for an overload, which the caller learns at the next poll.
    Refused(Error),
    /// Replied to. The epoch is that of the queueing.
    Over(u64),
}

impl PendingCheck {
    pub(in crate::redis) fn new(handle: &ServerHandle, request: Arc<CheckRequest>) -> Self {
        let (sender, receiver) = request::channel(request);
        Self { dispatcher: Arc::clone(&handle.dispatcher), state: State::NotQueued(sender), receiver }
    }

    fn request(&self) -> &Arc<CheckRequest> {
        self.receiver.request()
    }

    /// Polls for the outcome. The error says whether the server certainly did not execute the check.
    pub(in crate::redis) fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decision, CallError>> {
        match ready!(self.poll_reply(cx)) {
            Ok(reply) => Poll::Ready(reply.map_err(CallError::Failed)),
            Err(NoReply::NotExecuted(not_executed)) => Poll::Ready(Err(CallError::NotExecuted(not_executed))),
            Err(no_reply) => Poll::Ready(Err(CallError::Failed(self.error_of(no_reply)))),
        }
    }

    /// Queues the check at the first call, and polls for the reply.
    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Result<Result<Decision, Error>, NoReply>> {
        if let State::Refused(_) = &self.state
            && let State::Refused(error) = std::mem::replace(&mut self.state, State::Over(0))
        {
            return Poll::Ready(Ok(Err(error)));
        }
        if let State::NotQueued(_) = &self.state
            && let State::NotQueued(sender) = std::mem::replace(&mut self.state, State::Over(0))
        {
            let queued = runtime::current().and_then(|_| {
                // Reports of leased policies travel in batches only. A check without a deadline takes the queue, where it
                // ends when the breaker opens.
                let may_be_direct = !sender.request().policies.is_leased() && sender.request().has_end();
                self.state = self.dispatcher.begin(sender, may_be_direct)?;
                Ok(())
            });
            match queued {
                Ok(()) => {}
                Err(refusal) if refusal.kind() == ErrorKind::Overloaded => {
                    // Callers that check again at once would keep the worker from running.
                    self.state = State::Refused(refusal);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(refusal) => return Poll::Ready(Ok(Err(refusal))),
            }
        }
        let reply = match self.poll_direct(cx) {
            Poll::Pending => Pin::new(&mut self.receiver).poll(cx),
            outcome => outcome,
        };
        if let Poll::Ready(outcome) = &reply {
            match &self.state {
                State::Direct(direct) => self.state = State::Over(direct.breaker_epoch()),
                &State::Queued(epoch) => self.state = State::Over(epoch),
                _ => {}
            }
            if let Ok(Ok(decision)) = outcome {
                self.decided(decision);
            }
        }
        reply
    }

    /// Polls for the outcome of a check that the caller sends. A check in the queue has none.
    fn poll_direct(&mut self, cx: &mut Context<'_>) -> Poll<Result<Result<Decision, Error>, NoReply>> {
        match &mut self.state {
            State::Direct(direct) => direct.poll(cx),
            _ => Poll::Pending,
        }
    }

    /// Notes an answer of the server, and remembers a denial.
    fn decided(&self, decision: &Decision) {
        let request = self.request();
        self.dispatcher.server.check_answered(request.deadline);
        if decision.is_denied()
            && let (Some(cache), Some(epoch)) = (&self.dispatcher.deny_cache, request.deny_epoch)
        {
            cache.remember(&request.key, request.hash.whole, request.sent, epoch, decision);
        }
    }

    #[cold]
    fn error_of(&self, no_reply: NoReply) -> Error {
        let server = &self.dispatcher.server;
        match no_reply {
            NoReply::NotExecuted(not_executed) => not_executed.error,
            NoReply::Dropped if matches!(self.state, State::Over(epoch) if server.breaker().epoch() != epoch) => {
                server.overtaken()
            }
            NoReply::Dropped => Error::new(ErrorKind::Unavailable, "the task that sends to redis was shut down"),
        }
    }
}

impl Future for PendingCheck {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match ready!(self.poll_reply(cx)) {
            Ok(reply) => Poll::Ready(reply),
            Err(no_reply) => Poll::Ready(Err(self.error_of(no_reply))),
        }
    }
}

impl Drop for PendingCheck {
    fn drop(&mut self) {
        let deadline = self.request().deadline;
        if matches!(self.state, State::Queued(_) | State::Direct(_)) && deadline.is_some_and(Deadline::is_over) {
            self.dispatcher.server.missed(deadline);
        }
    }
}
