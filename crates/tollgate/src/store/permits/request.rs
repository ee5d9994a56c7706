use std::{fmt, time::Duration};

use crate::{Concurrency, Deadline, Key};

/// Describes one call of [`Store::permits`](crate::Store::permits): how many permits of a key one replica is to hold.
///
/// A call states totals and no differences, so it may be repeated. Calls of a replica are numbered, so one that arrives
/// late changes nothing.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct PermitRequest<'a> {
    /// The policy. The state belongs to its name and the key.
    pub policy: &'a Concurrency,
    /// The key whose permits are held.
    pub key: &'a Key,
    /// The number of permits that all replicas hold at most.
    pub limit: u32,
    /// The random name of the replica.
    pub replica: u64,
    /// The number of the call. It grows with each call of the replica.
    pub number: u64,
    /// The permits that the replica keeps if more than the limit are held: those that it may have in use when the reply
    /// arrives.
    pub kept: u32,
    /// The permits that the replica has handed out.
    pub used: u32,
    /// The permits that the replica needs at least, those in use included.
    pub needed: u32,
    /// The permits that the replica wants on top, to hand them out without a call.
    pub extra: u32,
    /// Tells whether the replica waits for permits that others hold idle.
    pub waits: bool,
    /// The time after which the permits lapse unless they are renewed.
    pub life: Duration,
    /// The time limit of the caller. `None` for a store in the process.
    pub deadline: Option<Deadline>,
}

impl fmt::Debug for PermitRequest<'_> {
    /// Leaves out the key: it may identify a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitRequest")
            .field("policy", self.policy)
            .field("number", &self.number)
            .field("kept", &self.kept)
            .field("used", &self.used)
            .field("needed", &self.needed)
            .field("extra", &self.extra)
            .finish_non_exhaustive()
    }
}

/// Holds the answer of a store to a [`PermitRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitGrant {
    /// The permits that the replica holds now.
    pub held: u32,
    /// The permits that all replicas hold now.
    pub in_flight: u64,
    /// The permits that other replicas wait for.
    pub wanted: u64,
    /// Tells whether the call was decided.
    pub outcome: PermitOutcome,
}

/// Tells whether a [`PermitRequest`] was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PermitOutcome {
    /// The permits were granted as far as the limit allows.
    Decided,
    /// A later call of the same replica was here. Nothing changed.
    Overtaken,
    /// The state did not have the permits in use, and they do not fit the limit. The replica holds none now.
    Lost,
    /// 64 other replicas hold permits of the key. Nothing was granted.
    TooManyReplicas,
}
