use std::{collections::VecDeque, sync::Arc};

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::{
    cluster,
    connection::Connection,
    job::{Job, Queued, Waiter},
    reply,
    script::Script,
};
use crate::{Decision, Error, Key};

/// Checks that leave together.
///
/// Checks of one policy set, one cost and one tag are one script call over many keys; equal keys among them
/// are coalesced, and served in the order they came. Calls of different sets follow each other on
/// the connection. At a server of a cluster every key is a call of its own, all written in one go.
#[derive(Debug, Default)]
pub(super) struct Batch {
    groups: SmallVec<[Group; 1]>,
}

#[derive(Debug)]
pub(super) struct Group {
    /// What all of them ask, but for the key.
    like: Arc<Job>,
    items: Vec<Item>,
    /// How many wait, for all keys together.
    waiting: usize,
}

/// The most that leaves together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// Different keys of callers.
    pub(super) subjects: usize,
    pub(super) checks: usize,
}

/// Those who wait for a key, in the order they came; there is one at least.
type Item = SmallVec<[Waiter; 1]>;

/// Keys at the server in one batch: a call over so many holds the server for well under a tenth of
/// a millisecond.
const MOST_KEYS: usize = 64;

/// Checks in one batch, when many are for the same key.
const MOST_CHECKS: usize = 1_024;

impl Batch {
    /// Takes from the front of the queue what may leave together, at least one check.
    ///
    /// A check of a key that the batch holds already under other policies or at another cost waits
    /// for the next one, so that checks of one key are decided in the order they came.
    pub(super) fn cut(queue: &mut VecDeque<Queued>, most: Share) -> Self {
        let mut batch = Self::default();
        // Where each key of the batch stands: its group, and its place there.
        let mut places: HashTable<(u64, usize, usize)> = HashTable::with_capacity(queue.len().min(MOST_KEYS));
        let (mut keys, mut subjects, mut checks) = (0, 0, 0);
        while let Some(queued) = queue.pop_front() {
            if !queued.waiter.is_awaited() {
                continue;
            }
            let job = queued.waiter.job();
            let group = batch.groups.iter().position(|group| group.like.is_alike(job));
            let is_of = |&(hash, group, item): &(u64, usize, usize)| {
                hash == job.hash && batch.groups[group].key(item) == &job.key
            };
            let place = places.find(job.hash, is_of).map(|&(_, group, item)| (group, item));
            let fits = match place {
                Some((at, _)) => Some(at) == group,
                None => keys == 0 || (subjects < most.subjects && keys + job.policies.len() <= MOST_KEYS),
            };
            if !fits || checks == most.checks.min(MOST_CHECKS) {
                queue.push_front(queued);
                break;
            }
            checks += 1;
            if place.is_none() {
                keys += job.policies.len();
                subjects += 1;
            }
            let at = group.unwrap_or_else(|| {
                let items = Vec::with_capacity(most.subjects.min(MOST_KEYS).min(queue.len() + 1));
                batch.groups.push(Group { like: Arc::clone(job), items, waiting: 0 });
                batch.groups.len() - 1
            });
            let hash = job.hash;
            let group = &mut batch.groups[at];
            group.waiting += 1;
            match place {
                Some((_, item)) => group.items[item].push(queued.waiter),
                None => {
                    places.insert_unique(hash, (hash, at, group.items.len()), |&(hash, ..)| hash);
                    group.items.push(SmallVec::from_buf([queued.waiter]));
                }
            }
        }
        batch
    }

    pub(super) fn checks(&self) -> usize {
        self.groups.iter().map(|group| group.waiting).sum()
    }

    /// Asks the server, and tells everybody who waits.
    pub(super) async fn run(self, connection: &Connection) {
        if connection.is_in_cluster() {
            return cluster::pipeline(self.groups.into_iter().flat_map(Group::apart).collect(), connection).await;
        }
        let mut calls: SmallVec<[_; 1]> =
            self.groups.into_iter().map(|group| Box::pin(group.run(connection))).collect();
        // Polled in order, so they are sent in order.
        std::future::poll_fn(|cx| {
            calls.retain(|call| call.as_mut().poll(cx).is_pending());
            if calls.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

impl Group {
    async fn run(self, connection: &Connection) {
        let reply = connection.run(self.script(), self.keys(), |command| self.fill(connection, command)).await;
        self.answer(reply);
    }

    /// The same, a group for each key.
    fn apart(self) -> impl Iterator<Item = Self> {
        let Self { like, items, .. } = self;
        items.into_iter().map(move |item| Self { like: Arc::clone(&like), waiting: item.len(), items: vec![item] })
    }

    /// Whether the server has the slot only for those who say that they were sent there.
    pub(super) fn is_asking(&self) -> bool {
        self.like.asking
    }

    fn key(&self, item: usize) -> &Key {
        &self.items[item][0].job().key
    }

    pub(super) fn script(&self) -> &Script {
        let plan = self.like.policies.plan();
        if self.waiting == 1 { &plan.check } else { &plan.batch }
    }

    /// How many keys the call has.
    pub(super) fn keys(&self) -> usize {
        self.items.len() * self.like.policies.len()
    }

    /// Adds the keys and the arguments.
    pub(super) fn fill(&self, connection: &Connection, command: &mut redis::Cmd) {
        let plan = self.like.policies.plan();
        connection.keys(plan, (0..self.items.len()).map(|item| self.key(item)), command);
        command.arg(&*plan.pack(&[connection.now(), self.like.cost.units().into()]));
        if plan.tagged {
            command.arg(&*self.like.tag);
        }
        if self.waiting > self.items.len() {
            for item in &self.items {
                command.arg(item.len());
            }
        }
    }

    /// Tells everybody who waits what the server said.
    pub(super) fn answer(self, reply: Result<redis::Value, Error>) {
        let Self { like, items, waiting } = self;
        let (policies, cost, plan) = (&like.policies, like.cost, like.policies.plan());
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => return tell_all(items, &Err(error)),
        };
        if waiting == 1 {
            return tell_all(items, &reply::decision(plan, policies, cost, &reply));
        }
        let counts: SmallVec<[usize; MOST_KEYS]> = items.iter().map(Item::len).collect();
        let counted = waiting > items.len();
        let outcomes = match reply::outcomes(plan, policies, counts.into_iter(), counted, &reply) {
            Ok(outcomes) => outcomes,
            Err(error) => return tell_all(items, &Err(error)),
        };
        for (item, outcome) in items.into_iter().zip(outcomes) {
            for (at, waiter) in item.into_iter().enumerate() {
                // Who gave up meanwhile has charged all the same.
                waiter.tell(match &outcome {
                    Ok(outcome) => Ok(outcome.decision(at, policies, cost)),
                    Err(error) => Err(error.clone()),
                });
            }
        }
    }
}

fn tell_all(items: Vec<Item>, answer: &Result<Decision, Error>) {
    for waiter in items.into_iter().flatten() {
        waiter.tell(answer.clone());
    }
}
