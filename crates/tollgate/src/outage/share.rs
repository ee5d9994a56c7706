use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::Arc,
};

use arc_swap::ArcSwap;

use super::replicas::ReplicaCount;
use crate::{Check, Clock, Decision, MemoryStore, PolicySet};

/// The most states that an outage keeps in the process: 64 tables of 2 048 places, each filled to the point at which it
/// would double.
pub(super) const MAX_KEYS: NonZeroUsize = NonZeroUsize::new(64 * 2_048 / 8 * 7).expect("not zero");

/// Decides on this replica's share of the quota.
#[derive(Debug)]
pub(super) struct LocalShare {
    pub(super) store: MemoryStore,
    policies: PolicySet,
    /// `None` for a fixed number of replicas, and for a store that does not count them.
    count: Option<ReplicaCount>,
    share: ArcSwap<Share>,
}

/// The policies of one replica of several.
#[derive(Debug)]
struct Share {
    replicas: NonZeroU32,
    policies: PolicySet,
}

impl LocalShare {
    /// Creates the share of one replica of `replicas`, or of as many as `count` knows.
    pub(super) fn new(policies: &PolicySet, replicas: NonZeroU32, count: Option<ReplicaCount>) -> Self {
        Self {
            store: MemoryStore::builder().max_keys(MAX_KEYS).clock(Clock::monotonic()).build(),
            policies: policies.clone(),
            count,
            share: ArcSwap::from_pointee(Share::new(policies, replicas)),
        }
    }

    /// Returns the number of replicas that share the quota now.
    pub(super) fn replicas(&self) -> NonZeroU32 {
        self.count.as_ref().and_then(ReplicaCount::get).unwrap_or_else(|| self.share.load().replicas)
    }

    pub(super) fn decide(&self, check: Check<'_>) -> Decision {
        let replicas = self.count.as_ref().and_then(ReplicaCount::get);
        let mut share = self.share.load();
        if let Some(replicas) = replicas
            && replicas != share.replicas
        {
            // Computed once for each number. Two checks that see the change together both compute the same share.
            self.share.store(Arc::new(Share::new(&self.policies, replicas)));
            share = self.share.load();
        }
        // A share may be smaller than a cost that fits the whole quota. Such a cost spends the whole share.
        let cost = check.cost.min(share.policies.most());
        self.store.decide(Check { policies: &share.policies, cost, ..check })
    }
}

impl Share {
    fn new(policies: &PolicySet, replicas: NonZeroU32) -> Self {
        Self { replicas, policies: policies.share(replicas.get()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cost, Key, Policy, Quota};

    const DAILY: Policy = Policy::token_bucket("day", Quota::per_day(12));

    fn replicas(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).expect("not zero")
    }

    fn remaining(share: &LocalShare, key: &str, cost: u64) -> (bool, u64) {
        let key = Key::new(key);
        let decision = share.decide(Check::new(&share.policies, &key, Cost::new(cost)));
        let left = decision.states().next().expect("a policy").remaining();
        (decision.is_allowed(), left)
    }

    #[test]
    fn the_share_follows_the_count_and_starts_with_the_whole_quota() {
        let count = ReplicaCount::new();
        let share = LocalShare::new(&DAILY.into(), NonZeroU32::MIN, Some(count.clone()));
        assert_eq!((share.replicas(), remaining(&share, "a", 1)), (replicas(1), (true, 11)));
        count.set(replicas(4));
        assert_eq!((share.replicas(), remaining(&share, "b", 1)), (replicas(4), (true, 2)));
        count.set(replicas(3));
        assert_eq!((share.replicas(), remaining(&share, "c", 1)), (replicas(3), (true, 3)));
        count.set(replicas(100));
        assert_eq!(remaining(&share, "d", 1), (true, 0), "each share is at least one unit");
    }

    #[test]
    fn a_share_is_computed_once_for_each_number_of_replicas() {
        let count = ReplicaCount::new();
        let share = LocalShare::new(&DAILY.into(), NonZeroU32::MIN, Some(count.clone()));
        count.set(replicas(4));
        remaining(&share, "a", 1);
        let computed = share.share.load_full();
        for _ in 0..10 {
            remaining(&share, "a", 1);
        }
        assert!(Arc::ptr_eq(&computed, &share.share.load_full()));
    }

    #[test]
    fn a_cost_that_fits_the_quota_and_not_the_share_spends_the_share_and_no_more() {
        let sets: [PolicySet; 3] = [
            DAILY.into(),
            Policy::sliding_log("log", Quota::per_day(12)).into(),
            [DAILY, Policy::fixed_window("wide", Quota::per_day(100))].into(),
        ];
        for policies in sets {
            let share = LocalShare::new(&policies, replicas(4), None);
            assert_eq!(remaining(&share, "fresh", 12), (true, 0), "{policies:?}");
            assert!(!remaining(&share, "fresh", 12).0, "{policies:?}");
            assert!(!remaining(&share, "fresh", 1).0, "{policies:?}");
            assert_eq!(remaining(&share, "begun", 1), (true, 2), "{policies:?}");
            assert_eq!(remaining(&share, "begun", 12), (false, 2), "a part is not enough: {policies:?}");
        }
    }
}
