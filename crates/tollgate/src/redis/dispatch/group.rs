use std::{collections::HashMap, sync::Arc};

use smallvec::SmallVec;

use super::request::{CheckRequest, ReplySender};
use crate::{
    Decision, Error, Key,
    redis::{
        protocol::{self, Script},
        server::{Call, CallError, CallResult, ScriptCall, Server},
    },
};

/// Holds checks with the same policies, cost and tag. They are one call, in a cluster one call for each key.
#[derive(Debug)]
pub(super) struct Group {
    /// One of the checks.
    pub(super) sample: Arc<CheckRequest>,
    pub(super) subjects: Vec<Subject>,
    /// The number of checks, of all keys together.
    pub(super) checks: usize,
    /// The batches under way that hold checks which are not equal, one bit for each.
    pub(super) rivals: u8,
    /// The key behind which a check waits that is not equal.
    pub(super) firm: Option<usize>,
    /// Tells whether the script is sent by its body.
    pub(super) by_body: bool,
}

/// The checks of one key, in the order in which they came. At least one.
pub(super) type Subject = SmallVec<[ReplySender; 1]>;

/// The number of keys up to which the counts of a reply need no allocation.
const COUNTS: usize = 64;

impl Group {
    pub(super) fn new(sample: &Arc<CheckRequest>, subjects: Vec<Subject>, rivals: u8) -> Self {
        Self { sample: Arc::clone(sample), subjects, checks: 0, rivals, firm: None, by_body: false }
    }

    /// Splits the group into one for each key.
    pub(super) fn split(self) -> impl Iterator<Item = Self> {
        let Self { sample, subjects, rivals, firm, .. } = self;
        subjects.into_iter().enumerate().map(move |(at, subject)| Self {
            checks: subject.len(),
            firm: firm.filter(|firm| *firm == at),
            ..Self::new(&sample, vec![subject], rivals)
        })
    }

    /// Splits the group so that no two keys of a call share a state. The first call has the first subject of each
    /// outermost level, the next call has the second, and so on.
    pub(super) fn rounds(self) -> Vec<Self> {
        if !self.may_share_states() {
            return vec![self];
        }
        let mut seen: HashMap<&[u8], usize> = HashMap::with_capacity(self.subjects.len());
        let mut rounds_of = SmallVec::<[usize; COUNTS]>::new();
        for subject in 0..self.subjects.len() {
            let next = seen.entry(self.key(subject).outermost()).or_default();
            rounds_of.push(*next);
            *next += 1;
        }
        // The calls before that of the firm key have keys with the same outermost level, so they are firm too.
        let firm = self.firm.map(|_| 0);
        let mut rounds: Vec<Self> = Vec::new();
        for (subject, round) in self.subjects.into_iter().zip(rounds_of) {
            // The rounds of an outermost level come one after the other, so at most one round is new.
            if round == rounds.len() {
                rounds.push(Self { firm, ..Self::new(&self.sample, Vec::new(), self.rivals) });
            }
            rounds[round].checks += subject.len();
            rounds[round].subjects.push(subject);
        }
        rounds
    }

    /// Returns whether two keys of the group may have a state in common.
    pub(super) fn may_share_states(&self) -> bool {
        self.sample.policies.is_nested() && self.subjects.len() > 1
    }

    pub(super) fn request(&self, subject: usize) -> &Arc<CheckRequest> {
        self.subjects[subject][0].request()
    }

    pub(super) fn key(&self, subject: usize) -> &Key {
        &self.request(subject).key
    }

    pub(super) fn script(&self) -> &Script {
        let scripts = self.sample.policies.scripts();
        if self.checks == 1 { &scripts.check } else { &scripts.batch }
    }

    pub(super) fn call<'a>(&'a self, server: &'a Server) -> impl Call + 'a {
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

    /// Exchanges callers with an earlier group of equal checks that was not executed: the answers to this group belong to
    /// the callers that came first.
    pub(super) fn change_places(&mut self, earlier: &mut Self) {
        if !earlier.sample.is_alike(&self.sample) {
            return;
        }
        for at in 0..self.subjects.len() {
            let is_same = |subject: &Subject| subject[0].request().key == *self.key(at);
            let Some(first) = earlier.subjects.iter().position(is_same) else { continue };
            let (ours, theirs) = (&mut self.subjects[at], &mut earlier.subjects[first]);
            let (count, before) = (ours.len(), theirs.len());
            theirs.retain(|sender| sender.is_awaited());
            theirs.append(ours);
            *ours = theirs.drain(..count).collect();
            earlier.checks -= before - theirs.len();
            if theirs.is_empty() {
                earlier.subjects.swap_remove(first);
            }
        }
    }

    /// Takes the callers. Callers of one key are in the order in which they came.
    pub(super) fn into_senders(self) -> impl DoubleEndedIterator<Item = ReplySender> {
        self.subjects.into_iter().flatten()
    }

    /// Replies to every check with this error.
    pub(super) fn fail(self, error: &CallError) {
        self.into_senders().for_each(|sender| sender.fail(error.clone()));
    }

    /// Replies to every check.
    pub(super) fn reply(self, outcome: CallResult) {
        let is_counted = self.is_counted();
        let value = match outcome {
            Ok(value) => value,
            Err(error) => return self.fail(&error),
        };
        let Self { sample, subjects, checks, .. } = self;
        let (policies, cost, scripts) = (&sample.policies, sample.cost, sample.policies.scripts());
        if checks == 1 {
            return reply_all(subjects, &protocol::decision(scripts, policies, cost, &value));
        }
        let counts: SmallVec<[usize; COUNTS]> = subjects.iter().map(Subject::len).collect();
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
