//! Cuts batches off the queue, writes their calls, and replies to their checks.
//! When a batch leaves and how large it may be is decided in `pacer/`; the bytes of its call are
//! written in `protocol/batch.rs`.

use std::time::{Duration, Instant};

use smallvec::{SmallVec, smallvec};

use super::{
    pacer::BatchLimit,
    queue::Waiting,
    request::{CheckRequest, CheckResult, QueuedCheck, SlotShare},
};
use crate::{
    connect::Connection,
    lease::LeaseCall,
    protocol::{BatchReply, MixedArgs, Outcome, Purpose, Script, ScriptsOf, hash_slot},
    server::{Call, CallError, CallResult, Sent, Server},
};
use tollgate_core::{
    Error,
    raw::{ChargeRef, KeyParts, PolicyParts, PolicySetParts, random},
};

/// Holds checks that leave together.
///
/// Checks of one [shape](crate::protocol::Shape) are one call of a script over many keys,
/// whatever their policies, quotas and costs. Checks of the same key and policies are combined, and
/// decided in the order in which they came. The script reads all keys at its start, so checks that
/// may share a state without being combined are in different calls: the later one in the later
/// call. Checks may share a state if they have the key, a level or a branch in common. In a
/// cluster, the keys of a call lie in one slot. All calls are written at once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) groups: SmallVec<[Group; 1]>,
    /// The checks that cannot be answered in time any more. They are not sent.
    pub(super) late: Vec<QueuedCheck>,
}

/// Holds the calls of a batch with their outcomes.
#[derive(Debug)]
pub(super) struct AnsweredBatch {
    pub(super) groups: SmallVec<[Group; 1]>,
    pub(super) sent: Vec<Sent>,
}

/// The most server keys in a batch. A call over so many takes the server well under 0.2 ms.
pub(super) const MOST_KEYS: usize = 64;

/// The most checks in a batch, when many are for the same key.
const MOST_CHECKS: usize = 1_024;

/// A text that a check of the batch meters: its hash, and the place of the check. A batch has no more
/// of them than keys: to look at the hashes of so few is no more work than to keep a table of them.
#[derive(Clone, Copy, Debug)]
struct MeteredText {
    hash: u64,
    group: usize,
    subject: usize,
    /// The place of the policy that meters the text.
    policy: usize,
}

impl Batch {
    /// Takes checks from the front of the queue: at least one, if one waits that can be answered in
    /// time.
    ///
    /// A check that would be answered too late is not sent, by the time now and that of a round
    /// trip. Without `timing` each check has to be sent.
    pub(super) fn cut(
        queue: &mut Waiting<QueuedCheck>,
        share: BatchLimit,
        timing: Option<(Instant, Duration)>,
    ) -> Self {
        let mut batch = Self::default();
        let most = queue.len().min(MOST_KEYS).min(share.keys.max(1));
        let mut metered = Vec::with_capacity(most);
        let (mut keys, mut subjects, mut checks) = (0, 0, 0);
        while let Some(check) = queue.pop_front() {
            // Nobody waits for the answer, but the units would be spent.
            if !check.is_awaited() {
                continue;
            }
            let request = check.request();
            if timing.is_some_and(|(now, round_trip)| request.has_waited_too_long(now, round_trip))
            {
                // Kept, so that their callers are woken after the lock of the queue is free.
                batch.late.push(check);
                continue;
            }
            let latest = batch.latest(&metered, request);
            // The latest one or none: with an earlier one, this check would be decided before one
            // that shares a state with it.
            let joined =
                latest.filter(|&(group, subject)| batch.groups[group].accepts(subject, request));
            let fits = match joined {
                Some((group, subject)) => batch.groups[group].has_room_for(subject, request),
                None => {
                    // The first check always fits: else it would never leave.
                    keys == 0
                        || (subjects < share.keys
                            && keys + request.policies().shape().keys() <= MOST_KEYS)
                }
            };
            if !fits || checks == share.checks.clamp(1, MOST_CHECKS) {
                // Nothing behind this check is taken, although it might fit: checks leave in the
                // order in which they came.
                queue.push_front(check);
                break;
            }
            checks += 1;
            match joined {
                Some((group, subject)) => batch.groups[group].join(subject, check),
                None => {
                    keys += request.policies().shape().keys();
                    subjects += 1;
                    // In the same call, the script would read the state before the other check has
                    // changed it.
                    let after = latest.map_or(0, |(group, _)| group + 1);
                    let (group, subject) = batch.add(check, after, most);
                    batch.note(&mut metered, group, subject);
                }
            }
        }
        batch
    }

    /// Returns the last subject of the batch that shares a state with this check.
    fn latest(&self, metered: &[MeteredText], request: &CheckRequest) -> Option<(usize, usize)> {
        let mut latest = None;
        for policy in 0..request.policies().len() {
            let Some((hash, text)) = request.metered(policy) else {
                continue;
            };
            let shares = |held: &&MeteredText| {
                let other = self.groups[held.group].request(held.subject);
                other
                    .metered(held.policy)
                    .is_some_and(|(_, other)| other == text)
                    && request.shares_state(policy, other, held.policy)
            };
            let held = metered
                .iter()
                // Most texts differ, and their hashes show it without a look at the texts.
                .filter(|held| held.hash == hash)
                .filter(shares)
                .map(|held| (held.group, held.subject))
                .max();
            latest = latest.max(held);
        }
        latest
    }

    /// Notes the texts that a subject meters.
    fn note(&self, metered: &mut Vec<MeteredText>, group: usize, subject: usize) {
        let request = self.groups[group].request(subject);
        for policy in 0..request.policies().len() {
            metered.extend(request.metered(policy).map(|(hash, _)| MeteredText {
                hash,
                group,
                subject,
                policy,
            }));
        }
    }

    /// Adds a check to the first group of its shape from `after` on, or to a new one. Returns the
    /// group and the subject.
    fn add(&mut self, check: QueuedCheck, after: usize, capacity: usize) -> (usize, usize) {
        let found = self
            .groups
            .iter()
            .skip(after)
            .position(|group| group.has_shape_of(check.request()));
        match found {
            Some(at) => (after + at, self.groups[after + at].add(check)),
            None => {
                self.groups.push(Group::of(check, capacity));
                (self.groups.len() - 1, 0)
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the number of checks.
    pub(super) fn checks(&self) -> usize {
        self.groups.iter().map(|group| group.checks).sum()
    }

    /// Returns the number of keys of callers.
    pub(super) fn subjects(&self) -> usize {
        self.groups.iter().map(|group| group.subjects.len()).sum()
    }

    /// Splits the batch into its calls.
    pub(super) fn into_calls(self, server: &Server) -> SmallVec<[Group; 1]> {
        match server.is_in_cluster {
            // A server of a cluster refuses a call whose keys lie in several slots.
            true => self.groups.into_iter().flat_map(Group::by_slot).collect(),
            false => self.groups,
        }
    }
}

/// Asks the server. The calls are written when this is first polled.
pub(super) async fn send(
    groups: SmallVec<[Group; 1]>,
    server: &Server,
    connection: &Connection,
) -> AnsweredBatch {
    let sent = server
        .send_all(
            connection,
            groups.iter().map(|group| group.call(server)).collect(),
        )
        .await;
    AnsweredBatch { groups, sent }
}

/// Holds checks of one shape. They are one call.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) subjects: Vec<Subject>,
    /// The number of checks, of all keys together.
    pub(super) checks: usize,
    /// The number of runs, of all keys together.
    runs: usize,
    /// All checks have the same policies, costs and tag, so that the call names them once.
    is_uniform: bool,
    /// The script is sent by its body.
    pub(super) by_body: bool,
}

/// The checks of one key and one policy set, in the order in which they came. At least one.
///
/// Checks of the same costs in a row are a *run*.
pub(super) type Subject = SmallVec<[QueuedCheck; 1]>;

/// The most numbers in a reply. Lua returns at most 8000 values from a function.
const MOST_NUMBERS: usize = 4_000;

impl Group {
    /// Creates a group with one check.
    pub(super) fn of(check: QueuedCheck, capacity: usize) -> Self {
        let mut subjects = Vec::with_capacity(capacity);
        subjects.push(smallvec![check]);
        Self {
            subjects,
            checks: 1,
            runs: 1,
            is_uniform: true,
            by_body: false,
        }
    }

    /// Adds a check of another key, or of other policies. Returns its subject.
    pub(super) fn add(&mut self, check: QueuedCheck) -> usize {
        self.is_uniform &= check.request().is_alike(self.request(0));
        self.checks += 1;
        self.runs += 1;
        self.subjects.push(smallvec![check]);
        self.subjects.len() - 1
    }

    /// Adds a check that the subject [accepts](Self::accepts).
    pub(super) fn join(&mut self, subject: usize, check: QueuedCheck) {
        // The policies and the tag are those of the subject, which was compared when it was added.
        self.is_uniform &= check.request().charge() == self.request(0).charge();
        self.runs += usize::from(self.begins_run(subject, check.request()));
        self.checks += 1;
        self.subjects[subject].push(check);
    }

    /// Returns whether a check has the key and the policies of a subject, so that the script
    /// decides both in one place.
    pub(super) fn accepts(&self, subject: usize, request: &CheckRequest) -> bool {
        self.request(subject).is_same_subject(request)
    }

    /// Returns whether the reply has room for the run of a check that joins a subject.
    pub(super) fn has_room_for(&self, subject: usize, request: &CheckRequest) -> bool {
        !self.begins_run(subject, request)
            || (self.runs + 1) * (1 + self.request(0).policies().shape().reading_len())
                <= MOST_NUMBERS
    }

    /// Returns whether a check belongs into the same call of a script.
    pub(super) fn has_shape_of(&self, request: &CheckRequest) -> bool {
        let sample = self.request(0);
        sample.policies().shape().id() == request.policies().shape().id()
            && sample.share == request.share
            && sample.is_capped() == request.is_capped()
    }

    fn begins_run(&self, subject: usize, request: &CheckRequest) -> bool {
        self.subjects[subject]
            .last()
            .is_none_or(|last| last.request().charge() != request.charge())
    }

    /// Splits the group into one for each hash slot.
    pub(super) fn by_slot(self) -> SmallVec<[Self; 1]> {
        let mut slots: SmallVec<[u16; 1]> = SmallVec::new();
        self.regrouped(|groups, subject| {
            let slot = hash_slot::of(subject[0].request().routed_key());
            // While a slot is being moved, its server refuses a call when it has only some of the
            // keys. It has one key, or it has not.
            let is_alone = subject[0].request().share != SlotShare::Whole;
            let at = slots.iter().position(|held| *held == slot && !is_alone);
            if at.is_none() {
                slots.push(slot);
            }
            at.unwrap_or(groups)
        })
    }

    /// Distributes the subjects. `place` is given the number of groups so far and a subject, and
    /// returns the group.
    fn regrouped(self, mut place: impl FnMut(usize, &Subject) -> usize) -> SmallVec<[Self; 1]> {
        let mut groups: SmallVec<[Self; 1]> = SmallVec::new();
        for subject in self.subjects {
            let at = place(groups.len(), &subject);
            let mut rest = subject.into_iter();
            if at == groups.len() {
                groups.extend(rest.next().map(|first| Self::of(first, 1)));
            } else if let Some(first) = rest.next() {
                groups[at].add(first);
            }
            let last = groups[at].subjects.len() - 1;
            rest.for_each(|check| groups[at].join(last, check));
        }
        groups
    }

    pub(super) fn request(&self, subject: usize) -> &CheckRequest {
        self.subjects[subject][0].request()
    }

    pub(super) fn script(&self) -> &Script {
        let sample = self.request(0);
        let purpose = match (self.checks, self.is_uniform) {
            // Its calls carry reports, so it has one script for one check and for many.
            _ if self.is_leased() => Purpose::Lease,
            // The more alike the checks are, the less their call has to say.
            (1, _) => Purpose::Check,
            (_, true) => Purpose::Batch,
            (_, false) => Purpose::Mixed,
        };
        sample
            .policies()
            .shape()
            .script(purpose, sample.is_capped())
    }

    fn call(&self, server: &Server) -> Call {
        let sample = self.request(0);
        let keys = self.subjects.len() * sample.policies().shape().keys();
        let call = Call::of(self.script(), self.by_body, keys, |command| {
            self.fill(server, command);
        });
        // Before the move has ended, the new server takes only calls that say so.
        call.asking(sample.share == SlotShare::Arriving)
    }

    /// Adds the keys and the arguments.
    fn fill(&self, server: &Server, command: &mut redis::Cmd) {
        let requests = || self.subjects.iter().map(|subject| subject[0].request());
        server.add_keys(
            requests().map(|request| (request.policies(), request.key())),
            command,
        );
        let sample = self.request(0);
        if self.is_leased() {
            command.arg(self.leasing_args(server).into_bytes());
        } else if self.is_uniform {
            sample.add_arguments(server, command);
            // Without counts each key has one check, so the usual call carries no column of ones.
            if self.is_counted() {
                for subject in &self.subjects {
                    command.arg(subject.len());
                }
            }
            return;
        } else {
            command.arg(self.mixed_args(server).into_bytes());
        }
        if sample.policies().is_tagged() {
            requests().for_each(|request| _ = command.arg(request.tag()));
        }
    }

    fn mixed_args(&self, server: &Server) -> MixedArgs<'_> {
        let mut args = MixedArgs::new(server.now(), self.subjects.len());
        for subject in &self.subjects {
            let policies = subject[0].request().policies();
            args.subject(policies, runs_of(subject));
        }
        args
    }

    /// Returns the arguments of a call that takes the reports of each key and asks for units.
    fn leasing_args(&self, server: &Server) -> MixedArgs<'_> {
        // At least 1, and a whole number that a double holds.
        let birth = (random::bits() >> 12) + 1;
        let mut args = MixedArgs::leasing(server.now(), birth, self.subjects.len());
        let now_us = self.lease_now_us();
        for subject in &self.subjects {
            let request = subject[0].request();
            let policies = request.policies();
            let compose = |call: &LeaseCall| {
                call.compose(policies, request.key(), request.hash.whole, now_us)
            };
            let (reports, want) = request.lease_call.as_ref().map(compose).unwrap_or_default();
            args.leased_subject(policies, &reports, want, runs_of(subject));
        }
        args
    }

    /// Returns the time now by the clock of leases.
    fn lease_now_us(&self) -> u64 {
        let mut calls = self
            .subjects
            .iter()
            .map(|subject| &subject[0].request().lease_call);
        calls.find_map(Option::as_ref).map_or(0, LeaseCall::now_us)
    }

    /// Returns whether replicas take units of the policies in advance.
    fn is_leased(&self) -> bool {
        self.request(0).policies().is_leased()
    }

    /// Returns whether some key has several checks, so that the call says how many each has.
    fn is_counted(&self) -> bool {
        self.checks > self.subjects.len()
    }

    /// Exchanges callers with an earlier group of checks that was not executed: the answers to this
    /// group belong to the callers that came first. Checks of several charges stay, because their
    /// answers differ.
    pub(super) fn change_places(&mut self, earlier: &mut Self) {
        let has_one_run = |subject: &Subject| runs_of(subject).count() == 1;
        for ours in self
            .subjects
            .iter_mut()
            .filter(|subject| has_one_run(subject))
        {
            let request = ours[0].request();
            let is_same = |subject: &Subject| {
                let other = subject[0].request();
                has_one_run(subject)
                    && other.charge() == request.charge()
                    && other.is_same_subject(request)
            };
            let Some(first) = earlier.subjects.iter().position(is_same) else {
                continue;
            };
            let theirs = &mut earlier.subjects[first];
            let (count, before) = (ours.len(), theirs.len());
            // There are answers for as many as ours were. A caller who has left must not take one.
            theirs.retain(|check| check.is_awaited());
            theirs.append(ours);
            // The callers who came first get the answers that are here, and the others are sent
            // again.
            *ours = theirs.drain(..count).collect();
            earlier.checks -= before - theirs.len();
            if theirs.is_empty() {
                earlier.subjects.swap_remove(first);
            }
        }
    }

    /// Takes the callers. Callers of one key are in the order in which they came.
    pub(super) fn into_checks(self) -> impl DoubleEndedIterator<Item = QueuedCheck> {
        self.subjects.into_iter().flatten()
    }

    /// Replies to every check with this error.
    pub(super) fn fail(self, error: &CallError) {
        let error = if self.subjects.len() > 1 {
            error.of_one_among_several()
        } else {
            error.clone()
        };
        self.into_checks()
            .for_each(|check| check.reply(Err(error.clone())));
    }

    /// Replies to every check.
    pub(super) fn reply(self, outcome: CallResult) {
        let value = match outcome {
            Ok(value) => value,
            Err(error) => return self.fail(&error),
        };
        // By the rule of `script`: each script has a reply of its own form.
        let replied = match (self.checks, self.is_uniform) {
            _ if self.is_leased() => self.reply_leasing(&value),
            (1, _) => {
                let reply = self.request(0).decision(&value);
                return reply_all(self.subjects, &reply);
            }
            (_, true) => self.reply_uniform(&value),
            (_, false) => self.reply_mixed(&value),
        };
        if let Err((subjects, error)) = replied {
            reply_all(subjects, &Err(error.into()));
        }
    }

    fn reply_uniform(self, value: &redis::Value) -> Result<(), (Vec<Subject>, Error)> {
        let sample = self.request(0).clone();
        let runs = self
            .subjects
            .iter()
            .map(|subject| (sample.policies(), subject.len()));
        let mut reply = match BatchReply::new(runs, sample.is_capped(), value) {
            Ok(reply) => reply,
            Err(error) => return Err((self.subjects, error)),
        };
        for subject in self.subjects {
            let outcome = reply.next(sample.policies(), subject.len());
            reply_run(subject, &outcome);
        }
        Ok(())
    }

    fn reply_leasing(self, value: &redis::Value) -> Result<(), (Vec<Subject>, Error)> {
        let subjects = self.subjects.iter();
        let subjects = subjects.map(|subject| {
            let policies = subject[0].request().policies();
            (policies, runs_of(subject).map(|(_, count)| count))
        });
        let mut reply = match BatchReply::leasing(subjects, value) {
            Ok(reply) => reply,
            Err(error) => return Err((self.subjects, error)),
        };
        let here_us = self.lease_now_us();
        for mut subject in self.subjects {
            if subject.len() == 1
                && let Some(check) = subject.pop()
            {
                reply_leased(check, &mut reply, here_us);
                continue;
            }
            let (first, mut runs) = (subject[0].request(), SmallVec::<[_; 1]>::new());
            for (_, count) in runs_of(&subject) {
                runs.push((count, reply.next(first.policies(), count)));
            }
            if let (Ok(grant), Some(call)) = (reply.grant(first.policies()), &first.lease_call)
                && let (Some((count, Ok(last))), Some(check)) = (runs.last(), subject.last())
            {
                let decision = last.decision(count - 1, first.policies(), check.request().charge());
                call.answered(first.key(), first.hash.whole, here_us, &decision, grant);
            }
            let mut checks = subject.into_iter();
            for (count, outcome) in runs {
                reply_run(checks.by_ref().take(count), &outcome);
            }
        }
        Ok(())
    }

    fn reply_mixed(self, value: &redis::Value) -> Result<(), (Vec<Subject>, Error)> {
        let runs = self.subjects.iter().flat_map(|subject| {
            let policies = subject[0].request().policies();
            runs_of(subject).map(move |(_, count)| (policies, count))
        });
        let mut reply = match BatchReply::new(runs, self.request(0).is_capped(), value) {
            Ok(reply) => reply,
            Err(error) => return Err((self.subjects, error)),
        };
        for mut subject in self.subjects {
            while let Some((_, count)) = { runs_of(&subject).next() } {
                let rest = subject.drain(count..).collect();
                let run = std::mem::replace(&mut subject, rest);
                let outcome = reply.next(run[0].request().policies(), count);
                reply_run(run, &outcome);
            }
        }
        Ok(())
    }
}

/// Compares the checks of a batch.
impl CheckRequest {
    /// Returns the text that the policy at this place meters, and its hash: two checks may share a
    /// state only if they have such a text in common. `None` when a policy before it meters the
    /// same text, or when there is no such policy.
    fn metered(&self, at: usize) -> Option<(u64, &[u8])> {
        if !self.policies().meters_parts() && !self.key().has_branches() {
            // All policies meter the whole key, so one text stands for all.
            return (at == 0).then(|| (self.hash.whole, self.key().as_bytes()));
        }
        let policies = self.policies().shared();
        let policy = policies.get(at)?;
        if policies[..at]
            .iter()
            .any(|other| other.reach() == policy.reach())
        {
            return None;
        }
        let level = policy.metered(self.key());
        let hash = match policy.reach() {
            0 if !self.key().has_branches() => self.hash.whole,
            1 => self.hash.outermost,
            _ => level.hash(&self.hash.hasher),
        };
        Some((hash, level.as_bytes()))
    }

    /// Returns whether the answer comes too late for a check that is sent now, and would not have
    /// been too late for one that did not wait.
    fn has_waited_too_long(&self, now: Instant, round_trip: Duration) -> bool {
        self.deadline().is_some_and(|deadline| {
            deadline.timeout() > round_trip
                && deadline.instant().is_some_and(|end| end < now + round_trip)
        })
    }

    /// Returns whether the script decides both checks in one place: they have the same key and
    /// policies, and both have ceilings or none. Where the tag is stored, they also have the same
    /// tag and costs.
    fn is_same_subject(&self, other: &Self) -> bool {
        self.key() == other.key()
            && self.share == other.share
            && self.is_capped() == other.is_capped()
            && self.policies().is_same(other.policies())
            && (!self.policies().is_tagged()
                || (self.charge() == other.charge() && self.tag() == other.tag()))
    }

    /// Returns whether both checks read or write the same state, if the [text](Self::metered) that
    /// the policy at `place` meters is that of the policy at `other_place`.
    fn shares_state(&self, place: usize, other: &Self, other_place: usize) -> bool {
        let reach = |request: &Self, at: usize| request.policies().shared()[at].reach();
        let reaches = (reach(self, place), reach(other, other_place));
        (reaches.0 == reaches.1 && self.policies().is_same(other.policies()))
            || self.policies().shares_state(other.policies(), reaches)
    }

    /// Returns whether one call names the policies, the costs and the tag of both checks once.
    fn is_alike(&self, other: &Self) -> bool {
        self.charge() == other.charge()
            && self.share == other.share
            && self.is_tagged_alike(other)
            && self.policies().is_same(other.policies())
    }

    /// Compares the tags, if a log stores them. Most are empty, and a comparison of two empty slices
    /// takes the processor longer than all the other fields: it reads masked words at an address that
    /// is not mapped.
    fn is_tagged_alike(&self, other: &Self) -> bool {
        !self.policies().is_tagged()
            || self.tag().len() == other.tag().len()
                && (self.tag().is_empty() || self.tag() == other.tag())
    }
}

/// Returns the runs of a subject: the charge of each, and the number of its checks.
fn runs_of(subject: &Subject) -> impl Iterator<Item = (ChargeRef<'_>, usize)> {
    subject
        .chunk_by(|a, b| a.request().charge() == b.request().charge())
        .map(|run| (run[0].request().charge(), run.len()))
}

/// Replies to the checks of one run. A caller that gave up after its check was sent was charged all
/// the same.
fn reply_run(run: impl IntoIterator<Item = QueuedCheck>, outcome: &Result<Outcome, Error>) {
    for (at, check) in run.into_iter().enumerate() {
        let request = check.request();
        let reply = match outcome {
            Ok(outcome) => Ok(outcome.decision(at, request.policies(), request.charge())),
            Err(error) => Err(CallError::Failed(error.clone())),
        };
        check.reply(reply);
    }
}

/// Replies to a check of leased policies that is alone on its key, as most are: its decision is that
/// of the key.
fn reply_leased(check: QueuedCheck, reply: &mut BatchReply<'_>, here_us: u64) {
    let request = check.request();
    let outcome = reply.next(request.policies(), 1);
    let outcome = outcome.map(|one| one.decision(0, request.policies(), request.charge()));
    if let (Ok(grant), Some(call)) = (reply.grant(request.policies()), &request.lease_call)
        && let Ok(decision) = &outcome
    {
        call.answered(request.key(), request.hash.whole, here_us, decision, grant);
    }
    check.reply(outcome.map_err(CallError::Failed));
}

fn reply_all(subjects: Vec<Subject>, reply: &CheckResult) {
    for check in subjects.into_iter().flatten() {
        check.reply(reply.clone());
    }
}

#[cfg(test)]
mod tests;
