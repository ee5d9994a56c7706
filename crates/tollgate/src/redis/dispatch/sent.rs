use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::{
    batch::{self, AnsweredBatch, Batch},
    dispatcher::Inbox,
    group::Group,
    queue::Waiting,
    request::QueuedCheck,
    window::Ticket,
};
use crate::redis::{
    connect::{Connection, Numbered},
    server::{Sent, Server, UnsentCount},
};

/// Holds the batches that were sent and not answered, and the groups of checks that were not executed.
///
/// The batches of one connection are answered in the order in which they were sent. So a group that was not executed is
/// known before a later batch is replied to.
pub(super) struct SentBatches {
    inbox: Arc<Inbox>,
    /// The batches of each connection. There is more than one only while an old connection ends.
    lanes: Vec<Lane>,
    batches: usize,
    subjects: usize,
    checks: usize,
    /// Groups that were certainly not executed, in the order in which they were sent, with their connection.
    refused: Option<(u64, Vec<Group>)>,
    unsent: UnsentCount,
    answered: Vec<Answered>,
}

/// The batches of one connection, oldest first. There is at least one.
struct Lane {
    connection: Connection,
    batches: VecDeque<SentBatch>,
}

struct SentBatch {
    ticket: Ticket,
    subjects: usize,
    checks: usize,
    answer: Pin<Box<dyn Future<Output = AnsweredBatch> + Send>>,
}

/// A batch that was answered.
#[derive(Debug)]
pub(super) struct Answered {
    /// The number of the connection.
    pub(super) connection: u64,
    pub(super) ticket: Ticket,
    pub(super) checks: usize,
}

impl SentBatches {
    pub(super) fn new(inbox: Arc<Inbox>) -> Self {
        Self {
            inbox,
            lanes: Vec::new(),
            batches: 0,
            subjects: 0,
            checks: 0,
            refused: None,
            unsent: UnsentCount::default(),
            answered: Vec::new(),
        }
    }

    /// Forgets all batches and groups. Their callers get no reply.
    pub(super) fn clear(&mut self) {
        self.lanes.clear();
        (self.batches, self.subjects, self.checks) = (0, 0, 0);
        self.refused = None;
    }

    /// Returns the number of batches.
    pub(super) fn len(&self) -> usize {
        self.batches
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches == 0 && self.refused.is_none()
    }

    /// Returns the number of keys of callers in all batches.
    pub(super) fn subjects(&self) -> usize {
        self.subjects
    }

    /// Returns the number of checks in all batches.
    pub(super) fn checks(&self) -> usize {
        self.checks
    }

    /// Takes the batches that were answered since the last call.
    pub(super) fn take_answered(&mut self) -> impl Iterator<Item = Answered> + '_ {
        self.answered.drain(..)
    }

    /// Returns whether nothing may be sent on this connection yet: the connection before it has ended, and its batches do
    /// not know it yet.
    pub(super) fn is_held(&self, connection: &Connection) -> bool {
        let has_ended = |lane: &Lane| lane.connection.number() != connection.number() && lane.connection.has_ended();
        self.lanes.iter().any(has_ended)
    }

    /// Returns whether checks that were not executed wait for the batches behind them.
    pub(super) fn has_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Puts the checks that were not executed back to the front of the queue, once all batches behind them are answered.
    pub(super) fn put_back(&mut self, queue: &mut Waiting<QueuedCheck>, breaker_epoch: u64) {
        let is_settled = |connection| self.lanes.iter().all(|lane| lane.connection.number() != connection);
        if self.refused.as_ref().is_some_and(|(connection, _)| is_settled(*connection)) {
            let groups = self.refused.take().map(|(_, groups)| groups).unwrap_or_default();
            for sender in groups.into_iter().rev().flat_map(|group| group.into_senders().rev()) {
                queue.push_front(QueuedCheck { sender, breaker_epoch });
            }
        }
    }

    /// Writes a batch to the connection.
    ///
    /// The first call of a script on a connection carries the body. So the server knows the script when the next call of it
    /// arrives, and no call is refused while others are under way behind it.
    pub(super) async fn send(&mut self, batch: Batch, ticket: Ticket, server: &Arc<Server>, connection: &Connection) {
        let (subjects, checks) = (batch.subjects(), batch.checks());
        let mut groups = batch.into_calls(server);
        for group in &mut groups {
            group.by_body = !self.inbox.scripts.know(connection, group.script());
        }
        let (server, on) = (Arc::clone(server), connection.clone());
        let mut answer: Pin<Box<dyn Future<Output = AnsweredBatch> + Send>> =
            Box::pin(async move { batch::send(groups, &server, &on).await });
        // The first poll writes the calls. An answer is taken only after those of the batches before.
        if let Poll::Ready(answered) = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
            answer = Box::pin(std::future::ready(answered));
        }
        let sent = SentBatch { ticket, subjects, checks, answer };
        match self.lanes.iter_mut().find(|lane| lane.connection.number() == connection.number()) {
            Some(lane) => lane.batches.push_back(sent),
            None => self.lanes.push(Lane { connection: connection.clone(), batches: VecDeque::from([sent]) }),
        }
        self.batches += 1;
        self.subjects += subjects;
        self.checks += checks;
    }

    /// Polls the oldest batch of each connection, and settles the first that is answered. Returns whether there was one.
    ///
    /// The callers of a batch run before the next one is settled. So their next checks are on their way while the client
    /// works on the next answers.
    fn poll(&mut self, server: &Server, cx: &mut Context<'_>) -> bool {
        for at in 0..self.lanes.len() {
            let lane = &mut self.lanes[at];
            let Some(oldest) = lane.batches.front_mut() else { continue };
            let Poll::Ready(answered) = oldest.answer.as_mut().poll(cx) else { continue };
            let connection = lane.connection.number();
            if let Some(sent) = lane.batches.pop_front() {
                self.batches -= 1;
                self.subjects -= sent.subjects;
                self.checks -= sent.checks;
                self.answered.push(Answered { connection, ticket: sent.ticket, checks: sent.checks });
            }
            if lane.batches.is_empty() {
                self.lanes.remove(at);
            }
            self.settle(connection, answered, server);
            return true;
        }
        false
    }

    /// Waits until a batch is answered.
    pub(super) async fn until_answered(&mut self, server: &Server) {
        poll_fn(|cx| if self.poll(server, cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Settles a batch that is answered by now, if there is one.
    pub(super) async fn settle_answered(&mut self, server: &Server) {
        poll_fn(|cx| {
            self.poll(server, cx);
            Poll::Ready(())
        })
        .await;
    }

    /// Replies to the checks of a batch, and keeps those that were not executed.
    fn settle(&mut self, connection: u64, answered: AnsweredBatch, server: &Server) {
        for (mut group, sent) in answered.groups.into_iter().zip(answered.sent) {
            match sent {
                Sent::Answered(outcome) => {
                    self.unsent = UnsentCount::default();
                    if let Some((_, refused)) = &mut self.refused {
                        refused.iter_mut().rev().for_each(|earlier| group.change_places(earlier));
                    }
                    group.reply(outcome);
                }
                Sent::UnknownScript => {
                    self.inbox.scripts.forget();
                    self.refuse(connection, group);
                }
                Sent::Unsent(error) if self.unsent.is_last(connection) => group.fail(&server.cannot_send(error)),
                Sent::Unsent(_) => self.refuse(connection, group),
            }
        }
    }

    fn refuse(&mut self, connection: u64, group: Group) {
        let (_, groups) = self.refused.get_or_insert_with(|| (connection, Vec::new()));
        groups.push(group);
    }
}
