//! The way of a check to one server: its caller sends it, or queues it for the worker, and waits
//! for the outcome.
//! What the worker does with the queue is in `worker.rs`; whether a caller may send is decided in
//! `pacer/`.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use super::{
    pacer::Pacer,
    queue::{Queue, Waiting},
    request::{CheckRequest, CheckResult, QueuedCheck, overloaded},
    worker,
};
use crate::{
    connect::{Connection, Numbered, SharedConnection},
    deny_cache::DenyCache,
    lease::LeasedUnits,
    server::{Awaited, CallError, Sent, Server, ServerConfig},
    sync::MutexGuard,
};
use tollgate_core::{
    Decision, Error, ErrorKind,
    raw::{
        PolicySetParts,
        runtime::{self, Background},
    },
    store::{Clock, Deadline},
};
use tollgate_remote::health::Probed;

/// Represents one server with the queue before it. Callers send their checks while these are few.
/// Otherwise a [worker](worker::serve) takes them from the queue, and sends many in one call.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) server: Arc<Server>,
    deny_cache: Option<Arc<DenyCache>>,
    /// The checks that wait, their pacer, and the scripts that the server knows, under one lock.
    queue: Arc<Queue<QueuedCheck>>,
    /// Serves the queue. It is woken when a check was added, or when the queue was closed.
    worker: Background,
}

/// Holds the settings that all servers of a store share, and the deny cache.
#[derive(Clone)]
pub(crate) struct StoreConfig {
    pub(crate) server: ServerConfig,
    pub(crate) deny_cache: Option<Arc<DenyCache>>,
    /// The units of leased policies that this process holds.
    pub(crate) leased_units: Arc<LeasedUnits>,
}

impl StoreConfig {
    /// Creates the settings. Denials are remembered for at most `deny_cache_cap`.
    pub(crate) fn new(prefix: String, clock: Option<Clock>, deny_cache_cap: Duration) -> Self {
        // By a clock that the caller moves, nobody knows how long a denial holds.
        let remembers = clock.is_none() && deny_cache_cap > Duration::ZERO;
        Self {
            deny_cache: remembers.then(|| Arc::new(DenyCache::new(deny_cache_cap))),
            leased_units: LeasedUnits::new(clock.clone().unwrap_or_else(Clock::since_boot)),
            server: ServerConfig { prefix, clock },
        }
    }
}

/// The duty of the worker: to serve the queue until it is closed.
const SERVE: u32 = 1;

/// The most checks that may wait, also where none has a deadline.
const MOST_WAITING: usize = 32_768;

impl Sender {
    pub(crate) fn new(
        shared: Arc<SharedConnection>,
        config: &StoreConfig,
        is_in_cluster: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            server: Server::new(shared, config.server.clone(), is_in_cluster),
            deny_cache: config.deny_cache.clone(),
            queue: Arc::new(Queue::new(Pacer::new(runtime::now()))),
            worker: Background::new(),
        })
    }

    /// Returns the number of checks that wait to be sent.
    pub(crate) fn queued(&self) -> usize {
        self.queue.lock().len()
    }

    /// Lets the caller send its check while checks are few, or queues it.
    ///
    /// A check that would not be answered within its deadline fails at once with
    /// [`ErrorKind::Overloaded`](tollgate_core::ErrorKind).
    fn begin(&self, request: &CheckRequest) -> Result<CheckProgress, Error> {
        let Some((mut waiting, breaker_epoch)) = self.queue.enter(&self.server.health.breaker)
        else {
            return Err(self.server.health.refusal());
        };
        // Reports of leased policies travel in batches only. A check without a deadline takes the
        // queue, where it ends when the breaker opens.
        let has_end = request.deadline().and_then(Deadline::instant).is_some();
        let may_be_direct = !request.policies().is_leased() && has_end;
        if may_be_direct && waiting.len() == 0 && waiting.pacer.begins_direct() {
            match self.server.shared.ready() {
                Some(connection) => {
                    return Ok(CheckProgress::Direct(
                        self.direct(waiting, request, connection),
                    ));
                }
                None => waiting.pacer.ends_direct(false),
            }
        }
        admit(&mut waiting, request)?;
        let is_first = waiting.len() == 0;
        waiting.push_back(QueuedCheck::new(request.clone(), breaker_epoch));
        drop(waiting);
        if self.worker.has(SERVE) {
            // The first one has woken the worker for the others.
            if is_first {
                self.worker.wake();
            }
        } else {
            // This is the first check, or the runtime of the last worker ended.
            self.worker.ask(SERVE);
            let serve =
                |running| worker::serve(Arc::clone(&self.queue), Arc::clone(&self.server), running);
            if !self.worker.start(serve) {
                runtime::current()?;
            }
        }
        Ok(CheckProgress::Queued(breaker_epoch))
    }

    /// Sends a check for its caller, without the queue and the worker: one wake-up less before the
    /// call, and one less after it. When the caller gives up before the deadline, a call that the
    /// connection has not written yet is not sent.
    fn direct(
        &self,
        mut waiting: MutexGuard<'_, Waiting<QueuedCheck>>,
        request: &CheckRequest,
        connection: Connection,
    ) -> Awaited<CheckResult> {
        let is_short = waiting.pacer.short_path() == Some(connection.number());
        let by_body = !waiting
            .scripts
            .know(connection.number(), &request.script().sha);
        drop(waiting);
        connection.set_nagle(is_short);
        let mut turn = DirectTurn {
            queue: Arc::clone(&self.queue),
            connection: connection.number(),
            first: connection.round_trip(),
            began: (!is_short).then(runtime::now),
            is_answered: false,
        };
        let (request, server) = (request.clone(), Arc::clone(&self.server));
        let deadline = request.deadline();
        // A block, and what it waits for in a part of it: the future of a function holds its arguments
        // twice, and an allocator has no blocks of more than 1 kB at hand.
        let answer = Box::pin(async move {
            // Named first, so that it is dropped first: the call is over before what it used is free.
            let turn = &mut turn;
            let sent = {
                let call = request.call(&server, by_body);
                server.send(&connection, &call).await
            };
            // Held no longer than needed: a connection of a pool is lent as long as it is held.
            drop(connection);
            let answer = match sent {
                Sent::Answered(answer) => {
                    turn.answered();
                    answer
                }
                // The server has not executed it, and the caller gave up.
                _ if request.is_over() => return Err(server.health.overtaken().into()),
                // On the heap, because few calls are sent twice, and every caller would hold the space.
                Sent::UnknownScript | Sent::Unsent(_) => {
                    let write = |by_body| request.call(&server, by_body);
                    Box::pin(server.send_one(write, true, None)).await
                }
            };
            request.decision(&answer?)
        });
        Awaited::new(&self.server, deadline, answer)
    }

    /// Notes an answer of the server, and remembers a denial.
    fn decided(&self, request: &CheckRequest, decision: &Decision) {
        let timeout = request.deadline().map(Deadline::timeout);
        self.server.health.breaker.check_answered(timeout);
        if decision.is_denied()
            && let (Some(cache), Some(epoch)) = (&self.deny_cache, request.deny_epoch)
        {
            cache.remember(
                request.key(),
                request.hash.whole,
                request.sent,
                epoch,
                decision,
            );
        }
    }

    /// Creates the error of a check that was queued at this epoch of the breaker, and was dropped
    /// without a reply.
    #[cold]
    fn dropped(&self, breaker_epoch: u64) -> Error {
        match self.server.health.breaker.epoch() == breaker_epoch {
            true => Error::new(
                ErrorKind::Unavailable,
                "the task that sends to redis was shut down",
            ),
            false => self.server.health.overtaken(),
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // The worker is woken when its handle is dropped.
        self.queue.lock().is_closed = true;
    }
}

/// Refuses a check that would come too late.
fn admit(waiting: &mut Waiting<QueuedCheck>, request: &CheckRequest) -> Result<(), Error> {
    if waiting.len() >= MOST_WAITING {
        waiting.retain(QueuedCheck::is_awaited);
        if waiting.len() >= MOST_WAITING {
            let words = format!("the queue is full: {MOST_WAITING} checks wait for redis");
            return Err(Error::new(ErrorKind::Overloaded, words));
        }
    }
    let Some(deadline) = request.deadline() else {
        return Ok(());
    };
    let (count, of_key) = (
        waiting.len(),
        waiting.waiting_of_key(request.hash.outermost),
    );
    waiting
        .pacer
        .admits(deadline.timeout(), count, of_key)
        .map_err(overloaded)
}

/// A check that its caller sends is under way until this is dropped: it was answered, or its caller
/// gave up.
struct DirectTurn {
    queue: Arc<Queue<QueuedCheck>>,
    connection: u64,
    /// The time of the first answer on the connection.
    first: Duration,
    /// `None` when the network path is known to be short. Otherwise the round trip is measured.
    began: Option<Instant>,
    is_answered: bool,
}

impl DirectTurn {
    /// Notes the answer. A method, so that the future of the call owns the whole turn.
    fn answered(&mut self) {
        self.is_answered = true;
    }
}

impl Drop for DirectTurn {
    fn drop(&mut self) {
        let mut waiting = self.queue.lock();
        waiting.pacer.ends_direct(self.is_answered);
        if let Some(began) = self.began.filter(|_| self.is_answered) {
            waiting
                .pacer
                .connected(self.connection, began, runtime::since_epoch, self.first);
            waiting.pacer.measured(
                self.connection,
                runtime::now().saturating_duration_since(began),
            );
        }
    }
}

/// Resolves to the decision of one server, or to an error that says whether the server certainly
/// did not execute the check.
///
/// The check is queued when this is first polled, or sent at once while checks are few. A caller
/// that gives up before its batch left takes the check out of the queue, and nothing is charged.
/// Afterwards the charge stands. A caller that gives up at its deadline counts as a miss.
///
/// It is a hand-written future: the state of an `async` block is moved each time another block is
/// put around it, and a check was moved seven times.
pub(crate) struct PendingCheck {
    sender: Arc<Sender>,
    request: CheckRequest,
    state: CheckProgress,
}

enum CheckProgress {
    New,
    /// Sent by the caller.
    Direct(Awaited<CheckResult>),
    /// Queued at this epoch of the breaker.
    Queued(u64),
    /// Refused for an overload, which the caller learns at the next poll.
    Refused(Error),
    Over,
}

impl PendingCheck {
    pub(crate) fn new(sender: &Arc<Sender>, request: CheckRequest) -> Self {
        Self {
            sender: Arc::clone(sender),
            request,
            state: CheckProgress::New,
        }
    }
}

impl Future for PendingCheck {
    type Output = CheckResult;

    /// Stays pending after the outcome.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CheckResult> {
        let Self {
            sender,
            request,
            state,
        } = &mut *self;
        if let CheckProgress::New = state {
            *state = match sender.begin(request) {
                Ok(begun) => begun,
                Err(refusal) if refusal.kind() == ErrorKind::Overloaded => {
                    // Callers that check again at once would keep the worker from running.
                    *state = CheckProgress::Refused(refusal);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(refusal) => {
                    *state = CheckProgress::Over;
                    return Poll::Ready(Err(refusal.into()));
                }
            };
        }
        let outcome = match state {
            CheckProgress::Direct(answer) => ready!(Pin::new(answer).poll(cx)),
            &mut CheckProgress::Queued(epoch) => {
                ready!(request.poll_reply(cx)).unwrap_or_else(|| Err(sender.dropped(epoch).into()))
            }
            CheckProgress::Refused(refusal) => Err(CallError::Failed(refusal.clone())),
            CheckProgress::New | CheckProgress::Over => return Poll::Pending,
        };
        *state = CheckProgress::Over;
        if let Ok(decision) = &outcome {
            sender.decided(request, decision);
        }
        Poll::Ready(outcome)
    }
}

impl Drop for PendingCheck {
    fn drop(&mut self) {
        self.request.give_up();
        let deadline = self.request.deadline();
        if matches!(
            self.state,
            CheckProgress::Queued(_) | CheckProgress::Direct(_)
        ) && deadline.is_some_and(Deadline::is_over)
        {
            self.sender.server.missed(deadline);
        }
    }
}
