use std::collections::VecDeque;

use hashbrown::HashMap;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::{
    connection::Connection,
    engine::Job,
    reply::{self, Outcome},
};
use crate::{Cost, Decision, Error, Key, PolicySet};

/// Checks that leave together.
///
/// Checks of one policy set, one cost and one tag are one script call over many keys; equal keys among them
/// are coalesced, and served in the order they came. Calls of different sets follow each other on
/// the connection.
#[derive(Debug, Default)]
pub(super) struct Batch {
    groups: SmallVec<[Group; 1]>,
}

#[derive(Debug)]
struct Group {
    policies: PolicySet,
    cost: Cost,
    tag: Box<[u8]>,
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
    /// Takes from the front of the queue what may leave together.
    ///
    /// A check of a key that the batch holds already under other policies or at another cost waits
    /// for the next one, so that checks of one key are decided in the order they came.
    pub(super) fn cut(jobs: &mut VecDeque<Job>) -> Self {
        let mut batch = Self::default();
        let mut places: HashMap<Key, (usize, usize), foldhash::fast::RandomState> = HashMap::default();
        let (mut keys, mut checks) = (0, 0);
        while let Some(job) = jobs.pop_front() {
            if job.answer.is_closed() {
                continue;
            }
            let group = batch.group_of(&job);
            let place = places.get(&job.key).copied();
            let room = keys + job.policies.len() <= MOST_KEYS || keys == 0;
            let fits = match place {
                Some((at, _)) => Some(at) == group,
                None => room,
            };
            if !fits || checks == MOST_CHECKS {
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
                            items: Vec::new(),
                        });
                    }
                    let items = &mut batch.groups[at].items;
                    places.insert(job.key.clone(), (at, items.len()));
                    items.push(Item { key: job.key, waiters: [job.answer].into_iter().collect() });
                }
            }
        }
        batch
    }

    fn group_of(&self, job: &Job) -> Option<usize> {
        self.groups
            .iter()
            .position(|group| group.cost == job.cost && group.tag == job.tag && group.policies.is_same(&job.policies))
    }

    /// Asks the server, and tells everybody who waits.
    pub(super) async fn run(self, connection: &Connection) {
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
        let plan = self.policies.plan();
        let waiting: usize = self.items.iter().map(|item| item.waiters.len()).sum();
        let (alone, counted) = (waiting == 1, waiting > self.items.len());
        let script = if alone { &plan.check } else { &plan.batch };
        let reply = connection.run(script, self.items.len() * self.policies.len(), |command| {
            for item in &self.items {
                connection.keys(plan, &item.key, command);
            }
            command.arg(&*plan.pack(&[connection.now(), self.cost.units().into()]));
            if plan.tagged {
                command.arg(&*self.tag);
            }
            if counted {
                for item in &self.items {
                    command.arg(item.waiters.len());
                }
            }
        });
        let reply = reply.await;
        if alone {
            let decision = reply.and_then(|reply| reply::decision(plan, &self.policies, self.cost, &reply));
            return self.answer_all(&decision);
        }
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
