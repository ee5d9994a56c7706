use std::{collections::VecDeque, hash::BuildHasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::{
    cluster,
    connection::Connection,
    engine::Job,
    reply::{self, Outcome},
    script::Script,
};
use crate::{Cost, Decision, Error, Key, PolicySet};

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
    policies: PolicySet,
    cost: Cost,
    tag: Box<[u8]>,
    /// Whether the server has the slot only for those who say that they were sent there.
    pub(super) asking: bool,
    items: Vec<Item>,
}

/// A key, and those who wait for it, in the order they came.
#[derive(Debug)]
struct Item {
    key: Key,
    waiters: SmallVec<[Waiter; 1]>,
}

type Waiter = oneshot::Sender<Result<Decision, Error>>;

/// Keys at the server in one batch: a call over so many holds the server for well under a tenth of
/// a millisecond.
const MOST_KEYS: usize = 64;

/// Checks in one batch, when many are for the same key.
const MOST_CHECKS: usize = 1_024;

impl Batch {
    /// Takes from the front of the queue what may leave together, `most` checks or fewer.
    ///
    /// A check of a key that the batch holds already under other policies or at another cost waits
    /// for the next one, so that checks of one key are decided in the order they came.
    pub(super) fn cut(jobs: &mut VecDeque<Job>, most: usize) -> Self {
        let mut batch = Self::default();
        // Where each key of the batch stands: its group, and its place there.
        let mut places: HashTable<(u64, usize, usize)> = HashTable::with_capacity(jobs.len().min(MOST_KEYS));
        let hasher = RandomState::default();
        let (mut keys, mut checks) = (0, 0);
        while let Some(job) = jobs.pop_front() {
            if job.answer.is_closed() {
                continue;
            }
            let group = batch.group_of(&job);
            let hash = hasher.hash_one(&job.key);
            let is_of = |&(_, group, item): &(u64, usize, usize)| batch.groups[group].items[item].key == job.key;
            let place = places.find(hash, is_of).map(|&(_, group, item)| (group, item));
            let room = keys + job.policies.len() <= MOST_KEYS || keys == 0;
            let fits = match place {
                Some((at, _)) => Some(at) == group,
                None => room,
            };
            if !fits || checks == most.min(MOST_CHECKS) {
                jobs.push_front(job);
                break;
            }
            checks += 1;
            match place {
                Some((group, item)) => batch.groups[group].items[item].waiters.push(job.answer),
                None => {
                    keys += job.policies.len();
                    let at = group.unwrap_or(batch.groups.len());
                    if group.is_none() {
                        batch.groups.push(Group {
                            policies: job.policies,
                            cost: job.cost,
                            tag: job.tag,
                            asking: job.asking,
                            items: Vec::new(),
                        });
                    }
                    let items = &mut batch.groups[at].items;
                    places.insert_unique(hash, (hash, at, items.len()), |&(hash, ..)| hash);
                    items.push(Item { key: job.key, waiters: [job.answer].into_iter().collect() });
                }
            }
        }
        batch
    }

    fn group_of(&self, job: &Job) -> Option<usize> {
        let alike = |group: &Group| group.cost == job.cost && group.tag == job.tag && group.asking == job.asking;
        self.groups.iter().position(|group| alike(group) && group.policies.is_same(&job.policies))
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
        let Self { policies, cost, tag, asking, items } = self;
        items.into_iter().map(move |item| Self {
            policies: policies.clone(),
            cost,
            tag: tag.clone(),
            asking,
            items: vec![item],
        })
    }

    fn waiting(&self) -> usize {
        self.items.iter().map(|item| item.waiters.len()).sum()
    }

    pub(super) fn script(&self) -> &Script {
        let plan = self.policies.plan();
        if self.waiting() == 1 { &plan.check } else { &plan.batch }
    }

    /// How many keys the call has.
    pub(super) fn keys(&self) -> usize {
        self.items.len() * self.policies.len()
    }

    /// Adds the keys and the arguments.
    pub(super) fn fill(&self, connection: &Connection, command: &mut redis::Cmd) {
        let plan = self.policies.plan();
        for item in &self.items {
            connection.keys(plan, &item.key, command);
        }
        command.arg(&*plan.pack(&[connection.now(), self.cost.units().into()]));
        if plan.tagged {
            command.arg(&*self.tag);
        }
        if self.waiting() > self.items.len() {
            for item in &self.items {
                command.arg(item.waiters.len());
            }
        }
    }

    /// Tells everybody who waits what the server said.
    pub(super) fn answer(self, reply: Result<redis::Value, Error>) {
        let plan = self.policies.plan();
        if self.waiting() == 1 {
            let decision = reply.and_then(|reply| reply::decision(plan, &self.policies, self.cost, &reply));
            return self.answer_all(&decision);
        }
        let counted = self.waiting() > self.items.len();
        match reply.and_then(|reply| reply::outcomes(plan, &self.policies, self.items.len(), counted, &reply)) {
            Ok(outcomes) => self.answer_each(&outcomes),
            Err(error) => self.answer_all(&Err(error)),
        }
    }

    fn answer_each(self, outcomes: &[Outcome]) {
        for (item, outcome) in self.items.into_iter().zip(outcomes) {
            for (at, waiter) in item.waiters.into_iter().enumerate() {
                // Who gave up meanwhile has charged all the same.
                let _ = waiter.send(Ok(outcome.decision(at, &self.policies, self.cost)));
            }
        }
    }

    fn answer_all(self, answer: &Result<Decision, Error>) {
        for waiter in self.items.into_iter().flat_map(|item| item.waiters) {
            let _ = waiter.send(answer.clone());
        }
    }
}
