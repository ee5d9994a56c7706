use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::{
    batch::{self, AnsweredBatch, Batch, BatchKeys, UnderWay},
    group::Group,
    request::{CheckRequest, QueuedCheck},
};
use crate::redis::{
    connect::{Connection, Numbered},
    protocol::Script,
    server::{Sent, Server, UnsentCount},
};

/// Holds the batches that were sent and not answered, oldest first, and the groups of checks that were not executed.
///
/// The batches of one connection are answered in the order in which they were sent. So a group that was not executed is
/// known before a later batch is replied to.
#[derive(Default)]
pub(super) struct SentBatches {
    batches: Vec<SentBatch>,
    /// Groups that were certainly not executed, in the order in which they were sent, with their connection.
    refused: Option<(u64, Vec<Group>)>,
    scripts: KnownScripts,
    unsent: UnsentCount,
}

struct SentBatch {
    connection: Connection,
    keys: BatchKeys,
    checks: usize,
    answer: Pin<Box<dyn Future<Output = AnsweredBatch> + Send>>,
}

/// The scripts that were sent on a connection by their bodies, so that the server knows them.
#[derive(Debug, Default)]
struct KnownScripts {
    connection: u64,
    shas: Vec<String>,
}

impl KnownScripts {
    /// Returns whether the server knows the script. It knows the script for the next call in any case.
    fn know(&mut self, connection: &Connection, script: &Script) -> bool {
        if self.connection != connection.number() {
            *self = Self { connection: connection.number(), shas: Vec::new() };
        }
        let is_known = self.shas.contains(&script.sha);
        if !is_known {
            self.shas.push(script.sha.clone());
        }
        is_known
    }
}

impl SentBatches {
    /// Forgets all batches and groups. Their callers get no reply.
    pub(super) fn clear(&mut self) {
        self.batches.clear();
        self.refused = None;
    }

    pub(super) fn len(&self) -> usize {
        self.batches.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.refused.is_none()
    }

    /// Returns the number of checks in all batches.
    pub(super) fn checks(&self) -> usize {
        self.batches.iter().map(|batch| batch.checks).sum()
    }

    /// Returns whether nothing may be sent on this connection yet: checks were not executed, and batches behind them are
    /// not answered, or the connection before it has ended and its batches do not know it yet.
    pub(super) fn is_held(&self, connection: &Connection) -> bool {
        self.refused.is_some()
            || self
                .batches
                .iter()
                .any(|batch| batch.connection.number() != connection.number() && batch.connection.has_ended())
    }

    /// Returns whether checks that were not executed wait for the batches behind them.
    pub(super) fn has_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Puts the checks that were not executed back to the front of the queue, once all batches behind them are answered.
    /// Returns whether it did.
    pub(super) fn put_back(&mut self, queue: &mut VecDeque<QueuedCheck>, breaker_epoch: u64) -> bool {
        let is_settled = |connection| self.batches.iter().all(|batch| batch.connection.number() != connection);
        if !self.refused.as_ref().is_some_and(|(connection, _)| is_settled(*connection)) {
            return false;
        }
        let groups = self.refused.take().map(|(_, groups)| groups).unwrap_or_default();
        for sender in groups.into_iter().rev().flat_map(|group| group.into_senders().rev()) {
            queue.push_front(QueuedCheck { sender, breaker_epoch });
        }
        true
    }

    /// Writes a batch to the connection.
    ///
    /// The first call of a script on a connection carries the body. So the server knows the script when the next call of it
    /// arrives, and no call is refused while others are under way behind it.
    pub(super) async fn send(&mut self, batch: Batch, server: &Arc<Server>, connection: Connection) {
        let checks = batch.len();
        let (mut groups, keys) = batch.into_calls(server);
        for group in &mut groups {
            group.by_body = !self.scripts.know(&connection, group.script()) || group.firm.is_some();
        }
        let (server_of, server, on) = (server, Arc::clone(server), connection.clone());
        let mut answer: Pin<Box<dyn Future<Output = AnsweredBatch> + Send>> =
            Box::pin(async move { batch::send(groups, &server, &on).await });
        // The first poll writes the calls. An answer is taken only after those of the batches before.
        let first = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await;
        if let Poll::Ready(answered) = first {
            answer = Box::pin(std::future::ready(answered));
        }
        self.batches.push(SentBatch { connection, keys, checks, answer });
        poll_fn(|cx| {
            self.poll(server_of, cx);
            Poll::Ready(())
        })
        .await;
    }

    /// Polls the batches, and settles those that are answered. Returns whether there was one.
    fn poll(&mut self, server: &Server, cx: &mut Context<'_>) -> bool {
        let (mut at, mut is_any) = (0, false);
        while let Some(batch) = self.batches.get_mut(at) {
            let connection = batch.connection.number();
            let is_first = self.batches[..at].iter().all(|before| before.connection.number() != connection);
            let answered = match is_first {
                true => self.batches[at].answer.as_mut().poll(cx),
                false => Poll::Pending,
            };
            match answered {
                Poll::Ready(answered) => {
                    self.batches.remove(at);
                    self.settle(connection, answered, server);
                    is_any = true;
                }
                Poll::Pending => at += 1,
            }
        }
        is_any
    }

    /// Waits until a batch is answered.
    pub(super) async fn until_answered(&mut self, server: &Server) {
        poll_fn(|cx| if self.poll(server, cx) { Poll::Ready(()) } else { Poll::Pending }).await;
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
                    self.scripts = KnownScripts::default();
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

impl UnderWay for SentBatches {
    fn rivals(&self, request: &CheckRequest) -> u8 {
        let is_rival = |(at, batch): (usize, &SentBatch)| u8::from(batch.keys.is_rival(request)) << at;
        self.batches.iter().enumerate().map(is_rival).sum()
    }

    fn holds(&self, rivals: u8, request: &CheckRequest) -> bool {
        self.batches.iter().enumerate().any(|(at, batch)| rivals >> at & 1 == 1 && batch.keys.holds(request))
    }
}
