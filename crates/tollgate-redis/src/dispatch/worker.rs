//! The worker of a queue, and the batches that it has sent.
//! What a batch consists of is decided in `batch/`, when one may leave in `pacer/`.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use super::{
    batch::{self, AnsweredBatch, Batch, Group},
    pacer::Ticket,
    queue::{Queue, Waiting},
    request::{QueuedCheck, overloaded},
};
use crate::{
    connect::{Connection, Numbered},
    server::{CallError, Sent, Server, UnsentCount},
};
use tollgate_core::{
    Error,
    raw::runtime::{Running, now, since_epoch},
};

/// The batches that are sent without a break.
const MOST_AT_ONCE: u32 = 16;

/// Cuts batches off the queue and sends them, until the queue is closed and empty.
///
/// There is no timer. While the [pacer](super::pacer) allows it, queued checks leave at once, after
/// the tasks that are ready now had their chance to join. Otherwise checks gather. So a single
/// caller pays one round trip, and the batch size adapts to the load and to the distance of the
/// server.
///
/// One task cuts and sends, so checks reach the server in the order in which they came. Checks are
/// cut when there is a connection, so a check whose caller gives up while the server is dialled is
/// never sent. A check that would be answered after its deadline is not sent. Checks that were
/// certainly not executed come back to the front of the queue. When the breaker opens, the worker
/// drops all checks from before.
pub(super) async fn serve(queue: Arc<Queue<QueuedCheck>>, server: Arc<Server>, running: Running) {
    // What another worker had under way ended with its runtime.
    queue.lock().pacer.forget_sent();
    Worker {
        sent: SentBatches::new(Arc::clone(&queue)),
        queue,
        server,
        running,
        epoch: 0,
    }
    .run()
    .await;
}

struct Worker {
    queue: Arc<Queue<QueuedCheck>>,
    server: Arc<Server>,
    running: Running,
    sent: SentBatches,
    epoch: u64,
}

/// Says what the worker does next.
enum Turn {
    Send {
        /// One batch takes all checks.
        is_together: bool,
    },
    Wait {
        has_room: bool,
    },
    End,
}

impl Worker {
    async fn run(mut self) {
        loop {
            let epoch = self.server.health.breaker.epoch();
            if epoch != self.epoch {
                self.epoch = epoch;
                self.drop_overtaken();
                continue;
            }
            match self.turn() {
                Turn::End => return,
                Turn::Wait { has_room } => self.until_something_happens(has_room).await,
                Turn::Send { is_together } => {
                    self.let_others_run(is_together).await;
                    match self.connection().await {
                        None => {}
                        Some(Ok(connection)) => self.send_all(connection).await,
                        Some(Err(error)) => self.fail_all(&error),
                    }
                }
            }
        }
    }

    fn turn(&mut self) -> Turn {
        let mut waiting = self.queue.lock();
        self.sent.put_back(&mut waiting, self.epoch);
        let count = waiting.len();
        if count == 0 {
            waiting.pacer.rests();
            return match waiting.is_closed && self.sent.is_empty() {
                true => Turn::End,
                false => Turn::Wait {
                    has_room: !self.sent.has_refused(),
                },
            };
        }
        match !self.sent.has_refused() && waiting.pacer.may_leave(now(), count) {
            true => Turn::Send {
                is_together: waiting.pacer.is_together(count),
            },
            false => Turn::Wait { has_room: false },
        }
    }

    /// Waits until a batch is answered or the breaker opens, or until a check comes if there is
    /// room for one. The callers of an answered batch run before this returns, while another batch
    /// is under way: so their next checks leave before the next answer is settled.
    async fn until_something_happens(&mut self, has_room: bool) {
        tokio::select! {
            biased;
            () = self.sent.until_answered(&self.server) => {
                if !self.sent.is_empty() {
                    self.let_others_run(true).await;
                }
            }
            () = self.server.health.until_opened_after(self.epoch) => {}
            () = self.running.woken(), if has_room => {}
        }
    }

    /// Lets the tasks that are ready now add their checks.
    async fn let_others_run(&mut self, is_together: bool) {
        if self.sent.is_empty() {
            return requeue().await;
        }
        let began = now();
        if is_together {
            requeue().await;
        } else {
            // Answers that have arrived bring more checks.
            tokio::task::yield_now().await;
        }
        self.queue.lock().pacer.lagged(began.elapsed());
    }

    /// Waits for a connection, and replies meanwhile to the batches under way. Returns `None` when
    /// the breaker opens, or when nothing may be sent on the connection yet.
    async fn connection(&mut self) -> Option<Result<Connection, Error>> {
        let Self {
            server,
            sent,
            epoch,
            ..
        } = self;
        let connection = {
            let mut connection = pin!(server.connection());
            loop {
                tokio::select! {
                    biased;
                    connection = &mut connection => break connection,
                    () = sent.until_answered(server) => {}
                    () = server.health.until_opened_after(*epoch) => return None,
                }
            }
        };
        let Ok(connection) = connection else {
            return Some(connection);
        };
        if self.server.health.breaker.epoch() != self.epoch || self.sent.has_refused() {
            return None;
        }
        if self.sent.is_held(&connection) {
            self.until_something_happens(false).await;
            return None;
        }
        Some(Ok(connection))
    }

    /// Cuts batches and sends them, as long as the pacer allows and checks for a whole batch wait.
    async fn send_all(&mut self, connection: Connection) {
        connection.set_nagle(false);
        for batches in 1.. {
            if batches % MOST_AT_ONCE == 0 {
                // A connection of a pool accepts 50 calls until its task has written them. Later
                // ones would wait for answers.
                requeue().await;
            }
            let (mut batch, ticket, round_trip, is_more) = {
                let mut waiting = self.queue.lock();
                let (now, count) = (now(), waiting.len());
                waiting.pacer.connected(
                    connection.number(),
                    now,
                    since_epoch,
                    connection.round_trip(),
                );
                let (share, round_trip) = (waiting.pacer.share(count), waiting.pacer.round_trip());
                let batch = Batch::cut(
                    &mut waiting,
                    share,
                    (!self.sent.is_empty()).then_some((now, round_trip)),
                );
                let ticket = (!batch.is_empty())
                    .then(|| waiting.pacer.sent(now, batch.subjects(), batch.checks()));
                (
                    batch,
                    ticket,
                    round_trip,
                    waiting.len() >= share.keys.min(batch::MOST_KEYS),
                )
            };
            for late in batch.late.drain(..) {
                late.reply(Err(overloaded(round_trip).into()));
            }
            let Some(ticket) = ticket else { return };
            self.sent
                .send(batch, ticket, &self.server, &connection)
                .await;
            self.sent.take_answered(&self.server).await;
            if !is_more || self.sent.has_refused() || connection.has_ended() || !self.may_leave() {
                return;
            }
        }
    }

    fn may_leave(&self) -> bool {
        let mut waiting = self.queue.lock();
        let count = waiting.len();
        waiting.pacer.may_leave(now(), count)
    }

    fn fail_all(&mut self, error: &Error) {
        let waiting = self.queue.lock().take_all();
        for check in waiting {
            check.reply(Err(CallError::unreachable(error.clone())));
        }
    }

    /// Ends the checks from before the breaker opened.
    fn drop_overtaken(&mut self) {
        self.sent.clear();
        let overtaken = self.queue.lock().take_overtaken(self.epoch);
        for check in overtaken {
            check.reply(Err(self.server.health.overtaken().into()));
        }
    }
}

/// Lets the tasks run that are ready now. Unlike `yield_now`, this does not look for what the
/// network brings, which takes a system call.
async fn requeue() {
    let mut is_queued = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_queued, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Holds the batches that were sent and not answered, and the groups of checks that were not
/// executed.
///
/// The batches of one connection are answered in the order in which they were sent. So a group that
/// was not executed is known before a later batch is replied to.
struct SentBatches {
    queue: Arc<Queue<QueuedCheck>>,
    /// The batches of each connection. There is more than one only while an old connection ends.
    connections: Vec<ConnectionBatches>,
    /// Groups that were certainly not executed, in the order in which they were sent, with their
    /// connection.
    refused: Option<(u64, Vec<Group>)>,
    unsent: UnsentCount,
}

/// The batches of one connection, oldest first. There is at least one.
struct ConnectionBatches {
    connection: Connection,
    batches: VecDeque<SentBatch>,
}

struct SentBatch {
    ticket: Ticket,
    answer: Pin<Box<dyn Future<Output = AnsweredBatch> + Send>>,
}

impl SentBatches {
    fn new(queue: Arc<Queue<QueuedCheck>>) -> Self {
        Self {
            queue,
            connections: Vec::new(),
            refused: None,
            unsent: UnsentCount::default(),
        }
    }

    /// Forgets all batches and groups. Their callers get no reply.
    fn clear(&mut self) {
        self.connections.clear();
        self.refused = None;
        self.queue.lock().pacer.forget_sent();
    }

    fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.refused.is_none()
    }

    /// Returns whether this connection has to wait: an earlier one has ended, and some of its batches
    /// have no outcome yet. Those that were not executed go back to the queue, before all others.
    fn is_held(&self, connection: &Connection) -> bool {
        let has_ended = |pending: &ConnectionBatches| {
            pending.connection.number() != connection.number() && pending.connection.has_ended()
        };
        self.connections.iter().any(has_ended)
    }

    /// Returns whether checks that were not executed wait for the batches behind them.
    fn has_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Puts the checks that were not executed back to the front of the queue, once all batches
    /// behind them are answered.
    fn put_back(&mut self, queue: &mut Waiting<QueuedCheck>, breaker_epoch: u64) {
        let is_settled = |connection| {
            self.connections
                .iter()
                .all(|pending| pending.connection.number() != connection)
        };
        if self
            .refused
            .as_ref()
            .is_some_and(|(connection, _)| is_settled(*connection))
        {
            let groups = self
                .refused
                .take()
                .map(|(_, groups)| groups)
                .unwrap_or_default();
            for mut check in groups
                .into_iter()
                .rev()
                .flat_map(|group| group.into_checks().rev())
            {
                check.breaker_epoch = breaker_epoch;
                queue.push_front(check);
            }
        }
    }

    /// Writes a batch to the connection.
    ///
    /// The first call of a script on a connection carries the body. So the server knows the script
    /// when the next call of it arrives, and no call is refused while others are under way behind
    /// it.
    async fn send(
        &mut self,
        batch: Batch,
        ticket: Ticket,
        server: &Arc<Server>,
        connection: &Connection,
    ) {
        let mut groups = batch.into_calls(server);
        for group in &mut groups {
            group.by_body = !self
                .queue
                .lock()
                .scripts
                .know(connection.number(), &group.script().sha);
        }
        let (server, on) = (Arc::clone(server), connection.clone());
        let mut answer: Pin<Box<dyn Future<Output = AnsweredBatch> + Send>> =
            Box::pin(async move { batch::send(groups, &server, &on).await });
        // The first poll writes the calls. An answer is taken only after those of the batches
        // before.
        if let Poll::Ready(answered) = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
            answer = Box::pin(std::future::ready(answered));
        }
        let sent = SentBatch { ticket, answer };
        match self
            .connections
            .iter_mut()
            .find(|pending| pending.connection.number() == connection.number())
        {
            Some(pending) => pending.batches.push_back(sent),
            None => self.connections.push(ConnectionBatches {
                connection: connection.clone(),
                batches: VecDeque::from([sent]),
            }),
        }
    }

    /// Polls the oldest batch of each connection, and settles the first that is answered. Pending
    /// when there is none.
    fn poll(&mut self, server: &Server, cx: &mut Context<'_>) -> Poll<()> {
        for at in 0..self.connections.len() {
            let pending = &mut self.connections[at];
            let Some(oldest) = pending.batches.front_mut() else {
                continue;
            };
            let Poll::Ready(answered) = oldest.answer.as_mut().poll(cx) else {
                continue;
            };
            let connection = pending.connection.number();
            if let Some(sent) = pending.batches.pop_front() {
                self.queue.lock().pacer.answered(now(), sent.ticket);
            }
            if pending.batches.is_empty() {
                self.connections.remove(at);
            }
            self.take(connection, answered, server);
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Waits until a batch is answered.
    async fn until_answered(&mut self, server: &Server) {
        poll_fn(|cx| self.poll(server, cx)).await;
    }

    /// Takes the answer of a batch that is answered by now, if there is one.
    async fn take_answered(&mut self, server: &Server) {
        let _ = poll_fn(|cx| Poll::Ready(self.poll(server, cx))).await;
    }

    /// Replies to the checks of a batch, and keeps those that were not executed.
    fn take(&mut self, connection: u64, answered: AnsweredBatch, server: &Server) {
        for (mut group, sent) in answered.groups.into_iter().zip(answered.sent) {
            match sent {
                Sent::Answered(outcome) => {
                    self.unsent = UnsentCount::default();
                    if let Some((_, refused)) = &mut self.refused {
                        refused
                            .iter_mut()
                            .rev()
                            .for_each(|earlier| group.change_places(earlier));
                    }
                    group.reply(outcome);
                }
                Sent::UnknownScript => {
                    self.queue.lock().scripts.forget();
                    self.refuse(connection, group);
                }
                Sent::Unsent(error) if self.unsent.is_last(connection) => {
                    group.fail(&server.cannot_send(error));
                }
                Sent::Unsent(_) => self.refuse(connection, group),
            }
        }
    }

    fn refuse(&mut self, connection: u64, group: Group) {
        let (_, groups) = self.refused.get_or_insert_with(|| (connection, Vec::new()));
        groups.push(group);
    }
}
