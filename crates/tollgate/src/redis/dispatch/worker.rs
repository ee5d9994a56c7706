use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::{
    batch::{self, Batch, BatchLimit},
    dispatcher::Inbox,
    load::{MOST_DIRECT, SpeedMeter},
    request::overloaded,
    sent::SentBatches,
    window::Window,
};
use crate::{
    Error,
    redis::{
        connect::{Connection, Numbered},
        server::{CallError, Server},
    },
    runtime::{Running, now},
};

/// The parts into which many checks are divided, so that the client works on the answers to one batch while the server works
/// on the next.
const PARTS: usize = 4;

/// The checks, waiting and under way, that are few. Near a server they are not divided, because a call of a part would cost
/// more than the time that it saves.
const FEW: usize = batch::MOST_KEYS;

/// The checks at a time that are so few that their callers send them again. Half of those that callers may send, so that
/// the two do not take turns.
const LITTLE: usize = MOST_DIRECT as usize / 2;

/// The part by which the peak of the checks falls with each batch.
const PEAK_FALLS: usize = 16;

/// The batches that are sent without a break.
const MOST_AT_ONCE: u32 = 16;

/// Cuts batches off the queue and sends them, until the queue is closed and empty.
///
/// There is no timer. While the [`Window`] allows it, queued checks leave at once, after the tasks that are ready now had
/// their chance to join. Otherwise checks gather. So a single caller pays one round trip, and the batch size adapts to the
/// load and to the distance of the server. When checks are many, no batch takes more than its share of them. Checks of the
/// same keys leave in two parts, because the server reads each key once.
///
/// One task cuts and sends, so checks reach the server in the order in which they came. Checks are cut when there is a
/// connection, so a check whose caller gives up while the server is dialled is never sent. A check that would be answered
/// after its deadline is not sent. Checks that were certainly not executed come back to the front of the queue. When the
/// breaker opens, the worker drops all checks from before.
pub(super) async fn serve(inbox: Arc<Inbox>, server: Arc<Server>, running: Running) {
    Worker {
        sent: SentBatches::new(Arc::clone(&inbox)),
        inbox,
        server,
        running,
        line: None,
        meter: SpeedMeter::new(),
        lag: Duration::ZERO,
        peak: 0,
        epoch: 0,
    }
    .run()
    .await;
}

struct Worker {
    inbox: Arc<Inbox>,
    server: Arc<Server>,
    running: Running,
    sent: SentBatches,
    line: Option<Line>,
    meter: SpeedMeter,
    /// The time for which the runtime kept this task waiting, lately.
    lag: Duration,
    /// The most checks that waited or were under way at a time, lately.
    peak: usize,
    epoch: u64,
}

/// The connection that is in use, and its window.
struct Line {
    number: u64,
    began: Instant,
    /// The time of `began` by the clock, which other processes have too.
    began_at: Duration,
    window: Window,
}

impl Line {
    fn new(connection: &Connection, now: Instant) -> Self {
        let began_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let window = Window::new(began_at, connection.round_trip());
        Self { number: connection.number(), began: now, began_at, window }
    }

    /// Returns a time as the window counts it.
    fn time(&self, now: Instant) -> Duration {
        self.began_at + now.saturating_duration_since(self.began)
    }

    /// Returns a function that returns the time at which it is called.
    fn time_of_call(&self) -> impl FnOnce() -> Duration + use<> {
        let (began_at, began) = (self.began_at, self.began);
        move || began_at + now().saturating_duration_since(began)
    }
}

impl Worker {
    async fn run(mut self) {
        loop {
            let epoch = self.server.breaker().epoch();
            if epoch != self.epoch {
                self.epoch = epoch;
                self.drop_overtaken();
                continue;
            }
            let (waiting, is_closed) = {
                let mut waiting = self.inbox.queue.lock();
                self.sent.put_back(&mut waiting, self.epoch);
                (waiting.len(), waiting.is_closed)
            };
            let is_empty = waiting == 0;
            if is_empty {
                self.meter.rests(&self.inbox.load);
            }
            if is_empty && is_closed && self.sent.is_empty() {
                return;
            }
            let is_full = self.sent.has_refused() || (!is_empty && !self.has_room(waiting));
            if is_empty && (self.sent.is_empty() || self.peak <= LITTLE) {
                // Until its checks were few for a while.
                self.peak = FEW;
                self.inbox.traffic.rests();
            }
            if is_full || is_empty {
                self.until_something_happens(!is_full).await;
                continue;
            }
            self.let_others_run(waiting).await;
            match self.connection().await {
                None => {}
                Some(Ok(connection)) => self.send_all(connection).await,
                Some(Err(error)) => self.fail_all(&error),
            }
        }
    }

    /// Waits until a batch is answered or the breaker opens, or until a check comes if there is room for one.
    async fn until_something_happens(&mut self, has_room: bool) {
        tokio::select! {
            biased;
            () = self.sent.until_answered(&self.server) => {}
            () = self.server.until_opened_after(self.epoch) => {}
            () = self.running.woken(), if has_room => {}
        }
        self.note_answers();
    }

    /// Lets the tasks that are ready now add their checks.
    async fn let_others_run(&mut self, waiting: usize) {
        if self.sent.is_empty() {
            return requeue().await;
        }
        let began = now();
        if self.are_few(waiting) {
            requeue().await;
        } else {
            // Answers that have arrived bring more checks.
            tokio::task::yield_now().await;
        }
        self.lag = (self.lag * 3 + began.elapsed()) / 4;
    }

    /// Returns whether one batch can hold all checks, those that wait and those under way, and could lately, and the line is
    /// short.
    fn are_few(&self, waiting: usize) -> bool {
        let all = waiting + self.sent.checks();
        self.peak.max(all) <= FEW && self.line.as_ref().is_some_and(|line| line.window.is_short())
    }

    /// Returns whether a batch of the waiting checks may leave.
    fn has_room(&mut self, waiting: usize) -> bool {
        let (batches, subjects, are_few) = (self.sent.len(), self.sent.subjects(), self.are_few(waiting));
        self.line.as_mut().is_none_or(|line| {
            let time = line.time_of_call();
            line.window.allows(batches, subjects, are_few, time)
        })
    }

    /// Waits for a connection, and replies meanwhile to the batches under way. Returns `None` when the breaker opens, or
    /// when nothing may be sent on the connection yet.
    async fn connection(&mut self) -> Option<Result<Connection, Error>> {
        let Self { server, sent, epoch, .. } = self;
        let connection = {
            let mut connection = pin!(server.connection());
            loop {
                tokio::select! {
                    biased;
                    connection = &mut connection => break connection,
                    () = sent.until_answered(server) => {}
                    () = server.until_opened_after(*epoch) => return None,
                }
            }
        };
        self.note_answers();
        let Ok(connection) = connection else { return Some(connection) };
        if self.server.breaker().epoch() != self.epoch || self.sent.has_refused() {
            return None;
        }
        if self.sent.is_held(&connection) {
            self.until_something_happens(false).await;
            return None;
        }
        Some(Ok(connection))
    }

    /// Cuts batches and sends them, as long as the window allows and checks for a whole batch wait.
    async fn send_all(&mut self, connection: Connection) {
        for batches in 1.. {
            if batches % MOST_AT_ONCE == 0 {
                // A connection of a pool accepts 50 calls until its task has written them. Later ones would wait for
                // answers.
                requeue().await;
            }
            let now = now();
            let line = match &mut self.line {
                Some(line) if line.number == connection.number() => line,
                line => line.insert(Line::new(&connection, now)),
            };
            let (sent_at, round_trip) = (line.time(now), line.window.round_trip());
            self.inbox.load.set_round_trip(round_trip);
            let (mut batch, left, limit) = {
                let mut waiting = self.inbox.queue.lock();
                let all = waiting.len() + self.sent.checks();
                self.peak = all.max(self.peak - self.peak.div_ceil(PEAK_FALLS));
                let limit = BatchLimit {
                    subjects: if self.are_few(waiting.len()) { all } else { all.div_ceil(PARTS) },
                    checks: all.div_ceil(2),
                    timing: (!self.sent.is_empty()).then_some((now, round_trip)),
                };
                let batch = Batch::cut(&mut waiting, limit);
                (batch, waiting.len(), limit)
            };
            for late in batch.late.drain(..) {
                late.send(Err(overloaded(round_trip)));
            }
            if batch.is_empty() {
                return;
            }
            let ticket = Window::sent(sent_at, batch.subjects());
            self.sent.send(batch, ticket, &self.server, &connection).await;
            self.sent.settle_answered(&self.server).await;
            self.note_answers();
            let is_more = left >= limit.subjects.min(batch::MOST_KEYS);
            if !is_more || self.sent.has_refused() || connection.has_ended() || !self.has_room(left) {
                return;
            }
        }
    }

    /// Tells the window and the meter of the batches that were answered.
    fn note_answers(&mut self) {
        let mut at = None;
        for answered in self.sent.take_answered() {
            let now = *at.get_or_insert_with(now);
            self.meter.answered(now, answered.checks, &self.inbox.load);
            if let Some(line) = self.line.as_mut().filter(|line| line.number == answered.connection) {
                line.window.answered(line.time(now), answered.ticket, self.lag);
            }
        }
    }

    fn fail_all(&mut self, error: &Error) {
        let waiting = self.inbox.queue.lock().take_all();
        for check in waiting {
            check.sender.fail(CallError::unreachable(error.clone()));
        }
    }

    /// Ends the checks from before the breaker opened.
    fn drop_overtaken(&mut self) {
        self.sent.clear();
        let overtaken = self.inbox.queue.lock().take_overtaken(self.epoch);
        for check in overtaken {
            check.sender.send(Err(self.server.overtaken()));
        }
    }
}

/// Lets the tasks run that are ready now. Unlike `yield_now`, this does not look for what the network brings, which takes a
/// system call.
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
