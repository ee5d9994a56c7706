use std::time::{Duration, Instant};

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::{
    group::Group,
    queue::Waiting,
    request::{CheckRequest, QueuedCheck, ReplySender},
};
use crate::redis::{
    connect::Connection,
    server::{Outgoing, Sent, Server},
};

/// Holds checks that leave together.
///
/// Checks of one [shape](crate::redis::protocol::Shape) are one call of a script over many keys, whatever their policies,
/// quotas and costs. Checks of the same key and policies are combined, and decided in the order in which they came. The
/// script reads all keys at its start, so checks that may share a state without being combined are in different calls: the
/// later one in the later call. Checks may share a state if they have the key, a level or a branch in common. In a cluster,
/// the keys of a call lie in one slot. All calls are written at once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) groups: SmallVec<[Group; 1]>,
    /// The checks that cannot be answered in time any more. They are not sent.
    pub(super) late: Vec<ReplySender>,
}

/// Holds the calls of a batch with their outcomes.
#[derive(Debug)]
pub(super) struct AnsweredBatch {
    pub(super) groups: SmallVec<[Group; 1]>,
    pub(super) sent: SmallVec<[Sent; 1]>,
}

/// Limits a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchLimit {
    /// The most keys of callers.
    pub(super) subjects: usize,
    pub(super) checks: usize,
    /// The time now and that of a round trip. A check that would be answered too late is not sent. `None` when each check
    /// has to be sent.
    pub(super) timing: Option<(Instant, Duration)>,
}

/// The most server keys in a batch. A call over so many takes the server well under 0.2 ms.
pub(super) const MOST_KEYS: usize = 64;

/// The most checks in a batch, when many are for the same key.
const MOST_CHECKS: usize = 1_024;

/// Finds the checks of a batch that share a state with another.
type Index = HashTable<Metered>;

/// A text that a check of the batch meters: its hash, and the place of the check.
#[derive(Clone, Copy, Debug)]
struct Metered {
    hash: u64,
    group: usize,
    subject: usize,
    /// The place of the policy that meters the text.
    policy: usize,
}

impl Batch {
    /// Takes checks from the front of the queue: at least one, if one waits that can be answered in time.
    pub(super) fn cut(queue: &mut Waiting<QueuedCheck>, limit: BatchLimit) -> Self {
        let mut batch = Self::default();
        let most = queue.len().min(MOST_KEYS).min(limit.subjects.max(1));
        let mut index: Index = HashTable::with_capacity(most);
        let (mut keys, mut subjects, mut checks) = (0, 0, 0);
        while let Some(queued) = queue.pop_front() {
            if !queued.sender.is_awaited() {
                continue;
            }
            let request = queued.sender.request();
            if limit.timing.is_some_and(|(now, round_trip)| request.has_waited_too_long(now, round_trip)) {
                batch.late.push(queued.sender);
                continue;
            }
            let latest = batch.latest(&index, request);
            let joined = latest.filter(|&(group, subject)| batch.groups[group].accepts(subject, request));
            let fits = match joined {
                Some((group, subject)) => batch.groups[group].has_room_for(subject, request),
                None => keys == 0 || (subjects < limit.subjects && keys + request.policies.shape().keys() <= MOST_KEYS),
            };
            if !fits || checks == limit.checks.clamp(1, MOST_CHECKS) {
                queue.push_front(queued);
                break;
            }
            checks += 1;
            match joined {
                Some((group, subject)) => batch.groups[group].join(subject, queued.sender),
                None => {
                    keys += request.policies.shape().keys();
                    subjects += 1;
                    let after = latest.map_or(0, |(group, _)| group + 1);
                    let (group, subject) = batch.add(queued.sender, after, most);
                    batch.note(&mut index, group, subject);
                }
            }
        }
        batch
    }

    /// Returns the last subject of the batch that shares a state with this check.
    fn latest(&self, index: &Index, request: &CheckRequest) -> Option<(usize, usize)> {
        let mut latest = None;
        for policy in 0..request.policies.len() {
            let Some((hash, text)) = request.metered(policy) else { continue };
            let shares = |held: &&Metered| {
                let other = self.groups[held.group].request(held.subject);
                held.hash == hash
                    && other.metered(held.policy).is_some_and(|(_, other)| other == text)
                    && request.shares_state(policy, other, held.policy)
            };
            let held = index.iter_hash(hash).filter(shares).map(|held| (held.group, held.subject)).max();
            latest = latest.max(held);
        }
        latest
    }

    /// Notes the texts that a subject meters.
    fn note(&self, index: &mut Index, group: usize, subject: usize) {
        let request = self.groups[group].request(subject);
        for policy in 0..request.policies.len() {
            if let Some((hash, _)) = request.metered(policy) {
                index.insert_unique(hash, Metered { hash, group, subject, policy }, |metered| metered.hash);
            }
        }
    }

    /// Adds a check to the first group of its shape from `after` on, or to a new one. Returns the group and the subject.
    fn add(&mut self, sender: ReplySender, after: usize, capacity: usize) -> (usize, usize) {
        let found = self.groups.iter().skip(after).position(|group| group.has_shape_of(sender.request()));
        match found {
            Some(at) => (after + at, self.groups[after + at].add(sender)),
            None => {
                self.groups.push(Group::of(sender, capacity));
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
        match server.is_in_cluster() {
            true => self.groups.into_iter().flat_map(Group::by_slot).collect(),
            false => self.groups,
        }
    }
}

/// Asks the server. The calls are written when this is first polled.
pub(super) async fn send(groups: SmallVec<[Group; 1]>, server: &Server, connection: &Connection) -> AnsweredBatch {
    let sent = {
        let outgoing = |group| Outgoing { call: Group::call(group, server), by_body: group.by_body };
        let calls: SmallVec<[_; 1]> = groups.iter().map(outgoing).collect();
        server.send(connection, &calls).await
    };
    AnsweredBatch { groups, sent }
}

#[cfg(test)]
mod tests;
