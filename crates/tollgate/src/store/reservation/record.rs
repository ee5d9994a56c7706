//! The record of a reservation: what was charged, when, and whether it is settled.
//!
//! The in-process store keeps records as they are here. The scripts `reserve` and `commit` keep the same numbers.

use smallvec::SmallVec;

use super::Settlement;
use crate::{
    Algorithm, Check, Cost, Policy, PolicySet,
    model::{
        algorithm::{PolicyLevel, Words},
        cost::Charge,
        policy_levels::PolicyLevels,
        quota::Span,
    },
};

/// Records what one reservation charged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) lapse_us: u64,
    /// The number of the commit that settled the reservation. 0 while it is held.
    pub(crate) settled_by: u64,
    pub(crate) at_us: u64,
    pub(crate) charged: SmallVec<[Charged; 2]>,
}

/// Records what a reservation charged on one policy of its set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Charged {
    pub(crate) cost: u64,
    pub(crate) words: Words,
}

/// The outcome of a call that reserves.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) levels: PolicyLevels,
    pub(crate) charge: Charge,
    pub(crate) at_us: u64,
}

/// The change that a commit makes on one policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    None,
    /// Returns units. The end of their places is for a queue.
    Refund(u64, Option<Span>),
    /// Charges units as a debt.
    Owe(u64),
}

impl Record {
    /// Creates the record of an admitted check.
    pub(crate) fn new(check: Check<'_>, levels: &PolicyLevels, now_us: u64, life_us: u64) -> Self {
        let charged = levels
            .iter(check.policies)
            .enumerate()
            .map(|(at, (_, level))| Charged { cost: check.cost_of(at).units(), words: level.words });
        Self { lapse_us: now_us + life_us, settled_by: 0, at_us: now_us, charged: charged.collect() }
    }

    /// Returns the outcome for a call that repeats the reservation.
    pub(crate) fn repeated(&self, policies: &PolicySet) -> Reserved {
        let level = |charged: &Charged| PolicyLevel { fits: true, words: charged.words };
        let levels = PolicyLevels::collect(policies.iter().zip(self.charged.iter().map(level)));
        let charge = Charge::each(self.charged.iter().map(|charged| Cost::new(charged.cost)));
        Reserved { levels, charge, at_us: self.at_us }
    }

    /// Settles the reservation by the commit of this number.
    pub(crate) fn settle(&mut self, number: u64) -> Settlement {
        match self.settled_by {
            0 => {
                self.settled_by = number;
                Settlement::Settled
            }
            _ => Settlement::AlreadySettled,
        }
    }

    /// Returns what a final cost changes on the policy at this place of the set.
    pub(crate) fn change(&self, at: usize, policy: &Policy, cost: Cost) -> Change {
        let Some(charged) = self.charged.get(at) else {
            return Change::None;
        };
        match cost.units().checked_sub(charged.cost) {
            Some(0) => Change::None,
            Some(more) => Change::Owe(more),
            None => {
                let is_bucket = matches!(policy.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
                let end = is_bucket.then(|| (self.at_us + charged.words[0], charged.words[1]));
                Change::Refund(charged.cost - cost.units(), end)
            }
        }
    }

    /// Returns the bytes that the script stores.
    #[cfg(feature = "testing")]
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let double = |word: u64| (word as f64).to_le_bytes();
        let mut bytes: Vec<u8> = [self.lapse_us, self.settled_by, self.at_us].into_iter().flat_map(double).collect();
        for charged in &self.charged {
            bytes.extend([charged.cost].into_iter().chain(charged.words).flat_map(double));
        }
        bytes
    }
}
