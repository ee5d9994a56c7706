//! Gives stores and limiters the parts of a set, and tests the conditions of a check that need no state.
//! How a set is made is in `mod.rs` beside.

use std::{num::NonZeroU32, sync::Arc};

use super::{Derived, PolicySet, ReplicaShare, beyond_hidden};
use crate::{
    Cost, Error, ErrorKind, Key, Policy,
    algorithm::AlgorithmParts,
    charge::{Charge, ChargeRef},
    key::KeyParts,
    policy::PolicyParts,
};

/// Reads the policies of a set together, and tests what they admit.
pub trait PolicySetParts: Sized {
    /// Returns the policies in their order.
    fn shared(&self) -> &[Arc<Policy>];

    /// Returns `true` when both sets hold the same policies.
    fn is_same(&self, other: &Self) -> bool;

    /// Returns `true` when a policy of both sets has the same state for one key. Only policies with
    /// these [reaches](Policy::reach) count, the first one in this set.
    fn shares_state(&self, other: &Self, reaches: (u8, u8)) -> bool;

    /// Returns what a store has derived from the set. `derive` is called for the first kind of
    /// store that asks.
    fn derived(&self, derive: impl FnOnce(&[Arc<Policy>]) -> Arc<Derived>) -> &Arc<Derived>;

    /// Returns whether replicas take units in advance.
    fn is_leased(&self) -> bool;

    /// Returns `true` when a policy is a sliding log, so that a check has a tag.
    fn is_tagged(&self) -> bool;

    /// Returns `true` when the replies of a check and of a batch leave out the second integer of a
    /// single bucket, because it is always zero.
    fn is_short(&self) -> bool;

    /// Returns `true` when a refund depends on the time until a bucket is full, as it was after the
    /// request.
    fn is_queued(&self) -> bool;

    /// Returns the sliding log with the longest period, whose entries are listed.
    ///
    /// # Errors
    ///
    /// No policy of the set is a sliding log.
    fn log(&self) -> Result<&Policy, Error>;

    /// Returns a number that stands for these policies, in this order, in the name of a
    /// reservation. Their quotas are no part of it. It is the same in all processes.
    fn fingerprint(&self) -> u64;

    /// Returns `true` when a policy meters a level or a branch of its own, so that keys may share a
    /// state.
    fn meters_parts(&self) -> bool;

    /// Returns the branch of a key that the first policy meters. A key without branches returns
    /// itself.
    fn first_branch<'a>(&self, key: &'a Key) -> &'a Key;

    /// Refuses a key that lacks a branch or levels that a policy meters, before the store is called.
    ///
    /// # Errors
    ///
    /// [`KeyLevels`](crate::ErrorKind::KeyLevels), with what is missing.
    fn reaches(&self, key: &Key) -> Result<(), Error>;

    /// Refuses a cost that can never fit, before the store is called.
    ///
    /// # Errors
    ///
    /// [`CostExceedsBurst`](crate::ErrorKind::CostExceedsBurst), with the smallest burst that the cost exceeds.
    fn admits(&self, charge: ChargeRef<'_>) -> Result<(), Error>;

    /// Refuses a cost that can never fit, after a look at each policy.
    ///
    /// # Errors
    ///
    /// As [`admits`](Self::admits).
    fn refuse(&self, charge: ChargeRef<'_>) -> Result<(), Error>;

    /// Returns the charge with each cost cut to the burst of its policy, or to what its rank has of
    /// that.
    fn cut(&self, charge: ChargeRef<'_>) -> Charge;

    /// Returns the policies of the set, each with an amount of 0.
    fn blocked(&self) -> Self;

    /// Decides on the set that each of `replicas` enforces alone during an outage.
    ///
    /// The set keeps the share that was computed last, because an outage asks for it with every
    /// check. Two checks that see another number together both compute the same share.
    fn with_share<T>(&self, replicas: NonZeroU32, decide: impl FnOnce(&Self) -> T) -> T;
}

impl PolicySetParts for PolicySet {
    #[inline]
    fn shared(&self) -> &[Arc<Policy>] {
        &self.0.policies
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.shared() == other.shared()
    }

    fn shares_state(&self, other: &Self, reaches: (u8, u8)) -> bool {
        self.with_reach(reaches.0)
            .any(|one| other.with_reach(reaches.1).any(|two| one.shares_state(two)))
    }

    #[inline]
    fn derived(&self, derive: impl FnOnce(&[Arc<Policy>]) -> Arc<Derived>) -> &Arc<Derived> {
        self.0.derived.get_or_init(|| derive(self.shared()))
    }

    #[inline]
    fn is_leased(&self) -> bool {
        self.0.is_leased
    }

    #[inline]
    fn is_tagged(&self) -> bool {
        self.0.is_tagged
    }

    #[inline]
    fn is_short(&self) -> bool {
        self.0.is_short
    }

    fn is_queued(&self) -> bool {
        self.iter()
            .any(|policy| policy.algorithm().is_queued(false))
    }

    fn log(&self) -> Result<&Policy, Error> {
        let logs = self
            .iter()
            .filter(|policy| policy.algorithm().facts().is_tagged);
        logs.max_by_key(|policy| policy.quota().period())
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Unsupported,
                    "no policy of the set is a sliding log, and only a sliding log stores entries",
                )
            })
    }

    fn fingerprint(&self) -> u64 {
        self.iter().fold(0, |all: u64, policy| {
            (all.rotate_left(29) ^ policy.fingerprint()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
    }

    #[inline]
    fn meters_parts(&self) -> bool {
        self.0.reach > 0
    }

    #[inline]
    fn first_branch<'a>(&self, key: &'a Key) -> &'a Key {
        match self.shared() {
            [first, ..] if key.has_branches() => first.branch_of(key),
            _ => key,
        }
    }

    #[inline]
    fn reaches(&self, key: &Key) -> Result<(), Error> {
        if self.0.reach <= key.reach() {
            Ok(())
        } else {
            self.find_parts(key)
        }
    }

    #[inline]
    fn admits(&self, charge: ChargeRef<'_>) -> Result<(), Error> {
        if charge.cost <= self.most() {
            Ok(())
        } else {
            self.refuse(charge)
        }
    }

    #[cold]
    fn refuse(&self, charge: ChargeRef<'_>) -> Result<(), Error> {
        if let Some(cascade) = charge.cascade()
            && let (cost, most) = (charge.cost, self.most_of(cascade, charge))
            && cost > most
        {
            return Err(Error::new(
                ErrorKind::CostExceedsBurst,
                format!(
                    "cost {} exceeds the {} units that the policies that cascade can give",
                    cost.units(),
                    most.units()
                ),
            ));
        }
        let is_divided = |at| charge.cascade().is_some() && !charge.is_beside(at);
        let each = (0..self.len()).filter(|&at| !is_divided(at));
        let exceeding = each.map(|at| (&*self.shared()[at], charge.of(at)));
        let exceeding = exceeding.filter(|(policy, cost)| cost.units() > policy.quota().burst());
        // The smallest burst is named, so that a cost that is lowered to it fits.
        match exceeding.min_by_key(|(policy, _)| policy.quota().burst()) {
            None => Ok(()),
            Some((policy, cost)) if policy.is_hidden() => {
                Err(Error::new(ErrorKind::CostExceedsBurst, beyond_hidden(cost)))
            }
            Some((policy, cost)) => Err(Error::new(
                ErrorKind::CostExceedsBurst,
                format!(
                    "cost {} exceeds the burst {} of policy {}",
                    cost.units(),
                    policy.quota().burst(),
                    policy.name()
                ),
            )),
        }
    }

    fn cut(&self, charge: ChargeRef<'_>) -> Charge {
        if charge.each.is_none() && charge.cost <= self.most() {
            return charge.cost.into();
        }
        let burst = |at: usize| self.shared()[at].quota_ref().burst();
        let ceilings = || (0..self.len()).map_while(|at| Some(charge.ceiling(at)?.cut(burst(at))));
        let most = |at: usize| {
            charge
                .ceiling(at)
                .map_or(burst(at), |ceiling| ceiling.cut(burst(at)).units())
        };
        let costs = charge.iter(self.len()).enumerate();
        let mut costs = costs.map(|(at, cost)| cost.min(Cost::new(most(at))));
        let cut = match charge.cascade() {
            Some(cascade) => {
                let total = charge.cost.min(self.most_of(cascade, charge));
                let own = (0..self.len()).map(|at| costs.next().filter(|_| charge.is_beside(at)));
                Charge::cascading(total, cascade, own)
            }
            None => Charge::each(costs),
        };
        if charge.is_capped() {
            cut.under(ceilings())
        } else {
            cut
        }
    }

    fn blocked(&self) -> Self {
        Self::of(
            self.iter()
                .map(|policy| Arc::new(policy.blocked()))
                .collect(),
        )
    }

    fn with_share<T>(&self, replicas: NonZeroU32, decide: impl FnOnce(&Self) -> T) -> T {
        if replicas == NonZeroU32::MIN {
            return decide(self);
        }
        if let Some(share) = &*self.0.share.load()
            && share.replicas == replicas
        {
            return decide(&share.policies);
        }
        let policies = Self::of(
            self.iter()
                .map(|policy| Arc::new(policy.share(replicas.get())))
                .collect(),
        );
        let share = Arc::new(ReplicaShare { replicas, policies });
        self.0.share.store(Some(Arc::clone(&share)));
        decide(&share.policies)
    }
}
