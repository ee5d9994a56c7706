use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::request::{CheckRequest, QueuedCheck, ReplySender};
use crate::{
    Decision, Error, Key,
    redis::{
        protocol::{self, Script},
        server::{Call, CallResult, ScriptCall, Server},
    },
};

/// Holds checks that leave together.
///
/// Checks with the same policies, cost and tag are one call of a script over many keys. Checks of the same key are
/// combined, and answered in the order in which they came. At a server of a cluster each key is a call of its own. Keys that
/// share a state, because a policy meters their common outer level, are in different calls too: the script reads all keys
/// at its start. All calls are written at once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    groups: SmallVec<[Group; 1]>,
}

/// Checks with the same policies, cost and tag.
#[derive(Debug)]
struct Group {
    /// One of the checks.
    sample: Arc<CheckRequest>,
    subjects: Vec<Subject>,
    /// The number of checks, of all keys together.
    checks: usize,
}

/// Checks of one key, in the order in which they came. At least one.
type Subject = SmallVec<[ReplySender; 1]>;

/// Limits the size of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchLimit {
    /// The most keys of callers.
    pub(super) subjects: usize,
    pub(super) checks: usize,
}

/// The most server keys in a batch. A call over so many takes the server well under 0.1 ms.
const MOST_KEYS: usize = 64;

/// The most checks in a batch, when many are for the same key.
const MOST_CHECKS: usize = 1_024;

impl Batch {
    /// Takes checks from the front of the queue: at least one, if one waits.
    ///
    /// A check of a key that the batch already holds with other policies or another cost waits for the next batch. So
    /// checks of one key are decided in the order in which they came. Where a policy meters outer levels, the same holds
    /// for all keys with one outermost level.
    pub(super) fn cut(queue: &mut VecDeque<QueuedCheck>, limit: BatchLimit) -> Self {
        let mut batch = Self::default();
        // Finds a key in the batch, or an outermost level: the group, and the index of the latest subject there.
        let mut index: HashTable<(u64, usize, usize)> = HashTable::with_capacity(queue.len().min(MOST_KEYS));
        let (mut keys, mut subjects, mut checks) = (0, 0, 0);
        while let Some(queued) = queue.pop_front() {
            if !queued.sender.is_awaited() {
                continue;
            }
            let request = queued.sender.request();
            let group = batch.groups.iter().position(|group| group.sample.is_alike(request));
            let (hash, text) = request.order();
            let is_same = |groups: &[Group], &(held, group, subject): &(u64, usize, usize)| {
                held == hash && groups[group].request(subject).order().1 == text
            };
            let latest = index.find(hash, |held| is_same(&batch.groups, held)).map(|&(_, group, at)| (group, at));
            let is_in_order = latest.is_none_or(|(held, _)| Some(held) == group);
            // Between two checks of a key, another key may have changed an outer level that both share.
            let found = latest.filter(|&(held, subject)| batch.groups[held].key(subject) == &request.key);
            let fits = is_in_order
                && (found.is_some()
                    || keys == 0
                    || (subjects < limit.subjects && keys + request.policies.len() <= MOST_KEYS));
            if !fits || checks == limit.checks.min(MOST_CHECKS) {
                queue.push_front(queued);
                break;
            }
            checks += 1;
            if found.is_none() {
                keys += request.policies.len();
                subjects += 1;
            }
            let at = group.unwrap_or_else(|| {
                let subjects = Vec::with_capacity(limit.subjects.min(MOST_KEYS).min(queue.len() + 1));
                batch.groups.push(Group { sample: Arc::clone(request), subjects, checks: 0 });
                batch.groups.len() - 1
            });
            if found.is_none() {
                let subject = batch.groups[at].subjects.len();
                match index.find_mut(hash, |held| is_same(&batch.groups, held)) {
                    Some(held) => *held = (hash, at, subject),
                    None => _ = index.insert_unique(hash, (hash, at, subject), |&(hash, ..)| hash),
                }
            }
            let group = &mut batch.groups[at];
            group.checks += 1;
            match found {
                Some((_, subject)) => group.subjects[subject].push(queued.sender),
                None => group.subjects.push(SmallVec::from_buf([queued.sender])),
            }
        }
        batch
    }

    /// Returns the number of checks.
    pub(super) fn len(&self) -> usize {
        self.groups.iter().map(|group| group.checks).sum()
    }

    /// Asks the server, and replies to every check.
    pub(super) async fn run(self, server: &Server) {
        let groups: SmallVec<[Group; 1]> = if server.is_in_cluster() {
            self.groups.into_iter().flat_map(Group::split).collect()
        } else if self.groups.iter().any(Group::may_share_states) {
            self.groups.into_iter().flat_map(Group::rounds).collect()
        } else {
            self.groups
        };
        let outcomes = {
            let calls: SmallVec<[_; 1]> = groups.iter().map(|group| group.call(server)).collect();
            server.send(&calls).await
        };
        for (group, outcome) in groups.into_iter().zip(outcomes) {
            group.reply(outcome);
        }
    }
}

impl Group {
    /// Splits the group into one for each key.
    fn split(self) -> impl Iterator<Item = Self> {
        let Self { sample, subjects, .. } = self;
        subjects.into_iter().map(move |subject| Self {
            sample: Arc::clone(&sample),
            checks: subject.len(),
            subjects: vec![subject],
        })
    }

    /// Splits the group so that no two keys of a call share a state. The first call has the first subject of each
    /// outermost level, the next call has the second, and so on.
    fn rounds(self) -> Vec<Self> {
        if !self.may_share_states() {
            return vec![self];
        }
        let mut seen: HashMap<&[u8], usize> = HashMap::with_capacity(self.subjects.len());
        let mut rounds_of = SmallVec::<[usize; MOST_KEYS]>::new();
        for subject in 0..self.subjects.len() {
            let next = seen.entry(self.key(subject).outermost()).or_default();
            rounds_of.push(*next);
            *next += 1;
        }
        let mut rounds: Vec<Self> = Vec::new();
        for (subject, round) in self.subjects.into_iter().zip(rounds_of) {
            // The rounds of an outermost level come one after the other, so at most one round is new.
            if round == rounds.len() {
                rounds.push(Self { sample: Arc::clone(&self.sample), subjects: Vec::new(), checks: 0 });
            }
            rounds[round].checks += subject.len();
            rounds[round].subjects.push(subject);
        }
        rounds
    }

    /// Returns whether two keys of the group may have a state in common.
    fn may_share_states(&self) -> bool {
        self.sample.policies.is_nested() && self.subjects.len() > 1
    }

    fn request(&self, subject: usize) -> &Arc<CheckRequest> {
        self.subjects[subject][0].request()
    }

    fn key(&self, subject: usize) -> &Key {
        &self.request(subject).key
    }

    fn script(&self) -> &Script {
        let scripts = self.sample.policies.scripts();
        if self.checks == 1 { &scripts.check } else { &scripts.batch }
    }

    fn call<'a>(&'a self, server: &'a Server) -> impl Call + 'a {
        ScriptCall {
            script: self.script(),
            keys: self.subjects.len() * self.sample.policies.len(),
            is_asking: self.sample.is_asking,
            fill: |command: &mut redis::Cmd| self.fill(server, command),
        }
    }

    /// Adds the keys and the arguments.
    fn fill(&self, server: &Server, command: &mut redis::Cmd) {
        let scripts = self.sample.policies.scripts();
        server.add_keys(scripts, (0..self.subjects.len()).map(|subject| self.key(subject)), command);
        command.arg(&*scripts.pack(&[server.now(), self.sample.cost.number()]));
        if scripts.tagged {
            command.arg(&*self.sample.tag);
        }
        if self.is_counted() {
            for subject in &self.subjects {
                command.arg(subject.len());
            }
        }
    }

    /// Returns whether some key has several checks, so that the call says how many each has.
    fn is_counted(&self) -> bool {
        self.checks > self.subjects.len()
    }

    /// Replies to every check.
    fn reply(self, outcome: CallResult) {
        let is_counted = self.is_counted();
        let Self { sample, subjects, checks } = self;
        let (policies, cost, scripts) = (&sample.policies, sample.cost, sample.policies.scripts());
        let value = match outcome {
            Ok(value) => value,
            Err(error) => return subjects.into_iter().flatten().for_each(|sender| sender.fail(error.clone())),
        };
        if checks == 1 {
            return reply_all(subjects, &protocol::decision(scripts, policies, cost, &value));
        }
        let counts: SmallVec<[usize; MOST_KEYS]> = subjects.iter().map(Subject::len).collect();
        let outcomes = match protocol::outcomes(scripts, policies, counts.into_iter(), is_counted, &value) {
            Ok(outcomes) => outcomes,
            Err(error) => return reply_all(subjects, &Err(error)),
        };
        for (subject, outcome) in subjects.into_iter().zip(outcomes) {
            for (at, sender) in subject.into_iter().enumerate() {
                // A caller that gave up after its check was sent was charged all the same.
                sender.send(match &outcome {
                    Ok(outcome) => Ok(outcome.decision(at, policies, cost)),
                    Err(error) => Err(error.clone()),
                });
            }
        }
    }
}

fn reply_all(subjects: Vec<Subject>, reply: &Result<Decision, Error>) {
    for sender in subjects.into_iter().flatten() {
        sender.send(reply.clone());
    }
}
