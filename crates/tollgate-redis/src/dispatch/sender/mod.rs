//! The way of a check to one server: its caller sends it, or queues it for the worker, and waits
//! for the outcome.
//! What the worker does with the queue is in `worker.rs`; whether a caller may send is decided in
//! `pacer/`.

use std::{
    mem,
    ops::Deref,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    time::{Duration, Instant},
};

use redis::{Cmd, Value};

use super::{
    pacer::Pacer,
    queue::{Queue, Queued, Waiting},
    worker,
};
use crate::{
    connect::{Connection, Numbered, SharedConnection},
    deny_cache::{DenyCache, Epoch, KeyHash},
    lease::{LeaseCall, LeasedUnits},
    protocol::{self, Script, ScriptsOf},
    server::{Awaited, Call, CallError, Sent, Server, ServerConfig},
    sync::MutexGuard,
};
use tollgate_core::{
    Decision, Error, ErrorKind, Key, PolicySet,
    raw::{
        ChargeRef, CheckParts, DecisionParts, Lock, PolicySetParts,
        runtime::{self, Background},
    },
    store::{Check, Clock, Deadline, KeptCheck},
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
        let Some((mut waiting, breaker_epoch)) = self.queue.enter(self.server.breaker()) else {
            return Err(self.server.last_refusal());
        };
        // Reports of leased policies travel in batches only. A check without a deadline takes the
        // queue, where it ends when the breaker opens.
        let may_be_direct = !request.policies().is_leased() && request.has_end();
        if may_be_direct && waiting.len() == 0 && waiting.pacer.begins_direct() {
            match self.server.ready_connection() {
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
        let turn = DirectTurn {
            queue: Arc::clone(&self.queue),
            connection: connection.number(),
            first: connection.round_trip(),
            began: (!is_short).then(runtime::now),
            is_answered: false,
        };
        let (request, server) = (request.clone(), Arc::clone(&self.server));
        Awaited::new(
            &self.server,
            request.deadline(),
            call(request, by_body, server, connection, turn),
        )
    }

    /// Notes an answer of the server, and remembers a denial.
    fn decided(&self, request: &CheckRequest, decision: &Decision) {
        self.server.check_answered(request.deadline());
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
        match self.server.breaker().epoch() == breaker_epoch {
            true => Error::new(
                ErrorKind::Unavailable,
                "the task that sends to redis was shut down",
            ),
            false => self.server.overtaken(),
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
    let (count, of_key) = (waiting.len(), waiting.waiting_of_key(request.key_hash()));
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
    /// `None` when the line is known to be short. Otherwise the round trip is measured.
    began: Option<Instant>,
    is_answered: bool,
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

async fn call(
    request: CheckRequest,
    by_body: bool,
    server: Arc<Server>,
    connection: Connection,
    mut turn: DirectTurn,
) -> CheckResult {
    let sent = server
        .send(&connection, request.call(&server, by_body))
        .await;
    // Held no longer than needed: a connection of a pool is lent as long as it is held.
    drop(connection);
    let answer = match sent {
        Sent::Answered(answer) => {
            turn.is_answered = true;
            answer
        }
        // The server has not executed it, and the caller gave up.
        _ if request.is_over() => return Err(server.overtaken().into()),
        // On the heap, because few calls are sent twice, and every caller would hold the space.
        Sent::UnknownScript | Sent::Unsent(_) => {
            Box::pin(server.send_one(|by_body| request.call(&server, by_body), true, None)).await
        }
    };
    request.decision(&answer?)
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

/// Holds a check and, later, its reply.
///
/// The caller and the worker share it in one allocation, as clones.
#[derive(Clone)]
pub(crate) struct CheckRequest(KeptCheck<Request>);

/// What the store has to know of a check.
pub(crate) struct Request {
    /// The hashes of the key.
    pub(crate) hash: KeyHash,
    pub(crate) sent: Instant,
    /// When the check was made, on the clock that decides instead of the server's.
    pub(crate) clock_us: Option<u64>,
    /// The epoch of the deny cache, taken before the check was sent. `None` without a deny cache.
    pub(crate) deny_epoch: Option<Epoch>,
    /// Connects a check of leased policies with the leased units.
    pub(crate) lease_call: Option<LeaseCall>,
    /// The part of the slot that the server has.
    pub(crate) share: SlotShare,
    /// There is a reply, or no caller that waits for one.
    is_over: AtomicBool,
    reply: Lock<Reply>,
}

/// The part of a slot that a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotShare {
    /// All of it.
    Whole,
    /// Some keys, because the slot is being moved away. The server refuses a call of which it has
    /// only some keys, so each subject is a call of its own.
    Leaving,
    /// Some keys, because the slot is being moved here. The same holds, and each call says
    /// `ASKING`.
    Arriving,
}

/// The decision on a check, or the error and whether the server certainly did not execute the
/// check.
pub(crate) type CheckResult = Result<Decision, CallError>;

enum Reply {
    Awaited(Option<Waker>),
    Given(CheckResult),
    /// There will be no reply, or the caller has it.
    Over,
}

/// A check in the queue or in a batch, which has to be replied to. When it is dropped, the caller
/// gets no reply.
#[derive(Debug)]
pub(super) struct QueuedCheck {
    request: CheckRequest,
    /// The epoch of the breaker when the check was queued.
    pub(super) breaker_epoch: u64,
}

impl Deref for CheckRequest {
    type Target = Request;

    #[inline]
    fn deref(&self) -> &Request {
        self.0.data()
    }
}

impl CheckRequest {
    #[inline]
    pub(crate) fn new(
        check: Check<'_>,
        hash: KeyHash,
        deny_epoch: Option<Epoch>,
        clock_us: Option<u64>,
        lease_call: Option<LeaseCall>,
    ) -> Self {
        let uncapped;
        let check = if check.policies.is_leased() && check.charge().is_capped() {
            // Units that were granted in advance are spent without looking at what others have
            // spent.
            uncapped = check.charge().uncapped();
            check.with_charge(&uncapped)
        } else {
            check
        };
        Self(check.keep_with(Request {
            hash,
            sent: check.deadline.map_or_else(runtime::now, Deadline::start),
            clock_us,
            deny_epoch,
            lease_call,
            share: SlotShare::Whole,
            is_over: AtomicBool::new(false),
            reply: Lock::new(Reply::Awaited(None)),
        }))
    }

    /// Returns the check that the store is asked.
    #[inline]
    pub(super) fn check(&self) -> Check<'_> {
        self.0.check()
    }

    #[inline]
    pub(super) fn policies(&self) -> &PolicySet {
        self.check().policies
    }

    #[inline]
    pub(super) fn key(&self) -> &Key {
        self.check().key
    }

    #[inline]
    pub(super) fn charge(&self) -> ChargeRef<'_> {
        self.check().charge()
    }

    #[inline]
    pub(super) fn tag(&self) -> &[u8] {
        self.check().tag
    }

    #[inline]
    pub(super) fn deadline(&self) -> Option<Deadline> {
        self.check().deadline
    }

    /// Returns the copy of the check, which a limiter may share.
    #[inline]
    pub(crate) fn kept(&self) -> KeptCheck {
        self.0.clone().into()
    }

    /// Reads the reply to the call of this check alone.
    pub(super) fn decision(&self, value: &Value) -> CheckResult {
        // Stands for the time of a reply without one.
        let asked_us = self
            .clock_us
            .unwrap_or_else(|| Decision::here_us(self.sent));
        Ok(protocol::decision(
            self.policies(),
            self.charge(),
            asked_us,
            value,
        )?)
    }

    /// Returns the same request, to be sent to a server that has this share of its slot.
    pub(crate) fn again(&self, share: SlotShare) -> Self {
        Self(self.check().keep_with(Request {
            hash: self.hash.clone(),
            lease_call: self.lease_call.clone(),
            share,
            is_over: AtomicBool::new(false),
            reply: Lock::new(Reply::Awaited(None)),
            ..**self
        }))
    }

    /// Returns whether the check has ceilings.
    pub(super) fn is_capped(&self) -> bool {
        self.charge().is_capped()
    }

    /// Returns the script that decides this check alone.
    pub(super) fn script(&self) -> &Script {
        self.policies().shape().check(self.is_capped())
    }

    /// Writes the call of this script.
    pub(super) fn call(&self, server: &Server, by_body: bool) -> Call {
        let fill = |command: &mut Cmd| {
            server.add_keys([(self.policies(), self.key())], command);
            self.add_arguments(server, command);
        };
        Call::of(self.script(), by_body, self.policies().shape().keys(), fill)
            .asking(self.share == SlotShare::Arriving)
    }

    /// Adds the arguments that checks of the same policies, costs and tag share.
    pub(super) fn add_arguments(&self, server: &Server, command: &mut Cmd) {
        command.arg(&*protocol::pack(
            server.now(),
            self.charge(),
            self.policies(),
        ));
        if self.policies().is_tagged() {
            command.arg(self.tag());
        }
    }

    /// Returns whether there is a reply, or no caller that waits for one.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns whether there is a time at which the check ends.
    pub(super) fn has_end(&self) -> bool {
        self.deadline().and_then(Deadline::instant).is_some()
    }

    /// Returns the key whose slot is that of the check: the branch that the first policy meters.
    pub(crate) fn routed_key(&self) -> &Key {
        self.policies().first_branch(self.key())
    }

    /// Returns the hash by which the checks of a key are counted. All keys below one outermost
    /// level count as one. Of a key with branches, the first one counts.
    pub(super) fn key_hash(&self) -> u64 {
        self.hash.outermost
    }

    fn end(&self, end: Reply) {
        let mut reply = self.reply.lock();
        if let Reply::Awaited(waker) = &mut *reply {
            let waker = waker.take();
            *reply = end;
            drop(reply);
            self.give_up();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Notes that no caller waits for a reply any more.
    pub(super) fn give_up(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Waits for the reply. `None` when there will be none.
    pub(super) fn poll_reply(&self, cx: &Context<'_>) -> Poll<Option<CheckResult>> {
        let mut reply = self.reply.lock();
        if let Reply::Awaited(waker) = &mut *reply {
            match waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => *waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        Poll::Ready(match mem::replace(&mut *reply, Reply::Over) {
            Reply::Given(outcome) => Some(outcome),
            Reply::Awaited(_) | Reply::Over => None,
        })
    }
}

/// Creates the error of a check that would be answered too late, because others wait before it.
pub(super) fn overloaded(wait: Duration) -> Error {
    Error::new(
        ErrorKind::Overloaded,
        format!("the answer of redis would take {wait:?}, because many checks wait for it"),
    )
}

impl QueuedCheck {
    pub(super) fn new(request: CheckRequest, breaker_epoch: u64) -> Self {
        Self {
            request,
            breaker_epoch,
        }
    }

    pub(super) fn request(&self) -> &CheckRequest {
        &self.request
    }

    /// Returns whether the caller still waits.
    pub(super) fn is_awaited(&self) -> bool {
        !self.request.is_over()
    }

    /// Replies. A caller that gave up meanwhile gets nothing.
    pub(super) fn reply(self, outcome: CheckResult) {
        self.request.end(Reply::Given(outcome));
    }
}

impl Drop for QueuedCheck {
    fn drop(&mut self) {
        if self.is_awaited() {
            self.request.end(Reply::Over);
        }
    }
}

impl Queued for QueuedCheck {
    fn breaker_epoch(&self) -> u64 {
        self.breaker_epoch
    }

    fn key_hash(&self) -> u64 {
        self.request.key_hash()
    }
}

// Leaves out the key and the tag: both may identify a person.
tollgate_core::debug_fields! { CheckRequest: policies = .policies(), charge = .charge(), .. }

#[cfg(test)]
mod tests;
