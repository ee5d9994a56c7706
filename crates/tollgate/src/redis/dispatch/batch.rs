use std::{collections::VecDeque, sync::Arc};

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::{
    group::Group,
    request::{CheckRequest, QueuedCheck},
};
use crate::redis::{
    connect::Connection,
    server::{Outgoing, Sent, Server},
};

/// Holds checks that leave together.
///
/// Checks with the same policies, cost and tag are one call of a script over many keys. Checks of the same key are
/// combined, and answered in the order in which they came. At a server of a cluster each key is a call of its own. Keys that
/// share a state, because a policy meters their common outer level, are in different calls too: the script reads all keys
/// at its start. All calls are written at once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) groups: SmallVec<[Group; 1]>,
    keys: BatchKeys,
}

/// Holds the keys of a batch while the batch is under way.
#[derive(Debug, Default)]
pub(super) struct BatchKeys {
    /// One check of each group.
    samples: SmallVec<[Arc<CheckRequest>; 1]>,
    /// The hash of each key, with its group and its index there.
    index: HashTable<(u64, usize, usize)>,
    /// The key whose call is sent by its body, as group and index.
    firm: Option<(usize, usize)>,
}

/// Tells which keys are under way.
pub(super) trait UnderWay {
    /// Returns the batches under way that hold checks with other policies, another cost or another tag, one bit for each.
    fn rivals(&self, request: &CheckRequest) -> u8;

    /// Returns whether one of these batches holds the key in a call that may come back.
    fn holds(&self, rivals: u8, request: &CheckRequest) -> bool;
}

/// Holds the calls of a batch with their outcomes.
#[derive(Debug)]
pub(super) struct AnsweredBatch {
    pub(super) groups: SmallVec<[Group; 1]>,
    pub(super) sent: SmallVec<[Sent; 1]>,
}

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
    ///
    /// A call that the server refuses because it does not know the script comes back, and a call behind it may have been
    /// executed meanwhile. Callers of equal checks then change places. A check that is not equal waits for the answer,
    /// unless the call before it is sent by its body, which no server refuses to know.
    pub(super) fn cut(queue: &mut VecDeque<QueuedCheck>, limit: BatchLimit, under_way: &impl UnderWay) -> Self {
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
            // Between two checks of a key, another key may have changed an outer level that both share.
            let found = latest.filter(|&(held, subject)| batch.groups[held].key(subject) == &request.key);
            let rivals = group.map_or_else(|| under_way.rivals(request), |group| batch.groups[group].rivals);
            if rivals != 0 && under_way.holds(rivals, request) {
                queue.push_front(queued);
                break;
            }
            let fits = match latest {
                Some((at, _)) if Some(at) != group => {
                    batch.keys.firm = latest;
                    false
                }
                _ if found.is_some() => true,
                _ => keys == 0 || (subjects < limit.subjects && keys + request.policies.len() <= MOST_KEYS),
            };
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
                batch.groups.push(Group::new(request, subjects, rivals));
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
        batch.keys.index = index;
        batch.keys.samples = batch.groups.iter().map(|group| Arc::clone(&group.sample)).collect();
        if let Some((group, subject)) = batch.keys.firm {
            batch.groups[group].firm = Some(subject);
        }
        batch
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the number of checks.
    pub(super) fn len(&self) -> usize {
        self.groups.iter().map(|group| group.checks).sum()
    }

    /// Takes the keys, and splits the batch into its calls.
    pub(super) fn into_calls(self, server: &Server) -> (SmallVec<[Group; 1]>, BatchKeys) {
        let groups = if server.is_in_cluster() {
            self.groups.into_iter().flat_map(Group::split).collect()
        } else if self.groups.iter().any(Group::may_share_states) {
            self.groups.into_iter().flat_map(Group::rounds).collect()
        } else {
            self.groups
        };
        (groups, self.keys)
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

impl BatchKeys {
    /// Returns whether there are checks with other policies, another cost or another tag.
    pub(super) fn is_rival(&self, request: &CheckRequest) -> bool {
        self.samples.iter().any(|sample| !sample.is_alike(request))
    }

    /// Returns whether the key is in a call that may come back, in a group that is not equal to the check.
    pub(super) fn holds(&self, request: &CheckRequest) -> bool {
        let (order, _) = request.order();
        let is_held = |&(hash, group, subject): &(u64, usize, usize)| {
            hash == order && self.firm != Some((group, subject)) && !self.samples[group].is_alike(request)
        };
        self.index.find(order, is_held).is_some()
    }
}

#[cfg(test)]
mod tests;
