mod fallback;

use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::OnceLock,
};

use crate::{
    Decision, MemoryStore,
    clock::Clock,
    store::{Check, ReplicaCount, ReservationId, Settlement},
};
pub(crate) use fallback::{Fallback, Phase};

/// Selects the answer to a check that the store cannot decide in time.
///
/// An outage is not a denial: no client gets 429 because Redis is away.
///
/// Units spent in an outage are not written to the store. After the outage, the store has its state
/// from before. So a key may spend its share in the outage, and then the rest of its quota in the
/// store.
#[doc(alias = "fail open")]
#[doc(alias = "fail closed")]
#[doc(alias = "fallback")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outage {
    /// Allows every request. For limits that shape traffic.
    Open,
    /// Fails every check with an [`Error`](crate::Error). The middleware answers 503. For limits
    /// that protect something, a log-in for example. Give such a limiter a
    /// [deadline](crate::LimiterBuilder::deadline) of 1 s, because a late check fails too.
    Closed,
    /// Decides in this process, on this replica's share of the quota. The default, with counted
    /// replicas.
    ///
    /// Amount and burst are divided by the number of [`replicas`](Replicas); each share is at least 1. With a
    /// [`RedisStore`](crate::RedisStore) the replicas count themselves: the sum of all shares is the quota. A share
    /// starts fresh, so a key that spent its quota at the store has its share once more in an outage.
    ///
    /// The memory of each limiter in an outage is bounded: 114 688 states (one for each key and
    /// policy), 8.5 MB of tables and 80 bytes more for each key of over 30 bytes, 18 MB at most. A
    /// [nested](crate::Key::child) key has up to 64 bytes for each level, 40 MB at most with four
    /// levels. The entries of logs and the slices of sliding buckets are added to this. A full
    /// table drops the keys that have spent least, as [`MemoryStore`](crate::MemoryStore) does.
    Local {
        /// The number of replicas that share the quota.
        replicas: Replicas,
    },
}

impl Outage {
    /// Returns [`Outage::Local`] for this number of replicas.
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Outage, Policy, Quota};
    ///
    /// const THREE_REPLICAS: Outage = Outage::local(3);
    /// let limiter = Limiter::builder(MemoryStore::new())
    ///     .policies(Policy::token_bucket("api", Quota::per_second(30)))
    ///     .on_outage(THREE_REPLICAS)
    ///     .build();
    /// assert_eq!(limiter.policies().len(), 1);
    /// ```
    ///
    /// # Panics
    ///
    /// When `replicas` is 0. In a `const` this fails the build.
    #[must_use]
    pub const fn local(replicas: u32) -> Self {
        match NonZeroU32::new(replicas) {
            Some(replicas) => Self::Local {
                replicas: Replicas::Fixed(replicas),
            },
            None => panic!("replicas must be at least 1, got 0"),
        }
    }
}

impl Default for Outage {
    fn default() -> Self {
        Self::Local {
            replicas: Replicas::Counted,
        }
    }
}

/// Selects the number of replicas that share the quota in an [outage](crate::Outage::Local).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replicas {
    /// Takes the number that the store counted last before the outage. The default.
    ///
    /// The number is 1 until the store has counted once, and for a store that does not count: see
    /// [`Store::replicas`](crate::Store::replicas). A process that starts in an outage does not
    /// know the others and enforces the whole quota.
    #[default]
    Counted,
    /// Takes this number.
    Fixed(NonZeroU32),
}

/// The most states that an outage keeps in the process: 64 tables of 2 048 places, each filled to
/// the point at which it would double.
const MAX_KEYS: NonZeroUsize = NonZeroUsize::new(64 * 2_048 / 8 * 7).expect("not zero");

/// Decides on this replica's share of the quota of any policies.
#[derive(Debug)]
struct LocalShare {
    /// Created in the first outage. An empty store takes ten kilobytes, and a process may have many
    /// limiters.
    store: OnceLock<MemoryStore>,
    clock: Clock,
    /// The number of replicas while `count` knows none.
    fixed: NonZeroU32,
    /// `None` for a fixed number of replicas, and for a store that does not count them.
    count: Option<ReplicaCount>,
}

impl LocalShare {
    /// Creates the share of one replica of `replicas`, or of as many as `count` knows.
    fn new(replicas: NonZeroU32, count: Option<ReplicaCount>, clock: Option<Clock>) -> Self {
        Self {
            store: OnceLock::new(),
            clock: clock.unwrap_or_else(Clock::monotonic),
            fixed: replicas,
            count,
        }
    }

    /// Returns the store of the process.
    fn store(&self) -> &MemoryStore {
        self.store.get_or_init(|| {
            MemoryStore::builder()
                .max_keys(MAX_KEYS)
                .clock(self.clock.clone())
                .build()
        })
    }

    /// Returns the number of replicas that share the quota now.
    fn replicas(&self) -> NonZeroU32 {
        self.count
            .as_ref()
            .and_then(ReplicaCount::get)
            .unwrap_or(self.fixed)
    }

    /// Asks the store of the process, by a check of the share. A share may be smaller than a cost
    /// that fits the whole quota. Such a cost spends the whole share, or all that its rank has of
    /// it.
    fn ask(
        &self,
        check: Check<'_>,
        ask: impl FnOnce(&MemoryStore, Check<'_>) -> Decision,
    ) -> Decision {
        check.policies.with_share(self.replicas(), |policies| {
            let charge = policies.cut(check.charge());
            ask(
                self.store(),
                Check { policies, ..check }.with_charge(&charge),
            )
        })
    }

    fn commit(&self, check: Check<'_>, id: &ReservationId) -> Settlement {
        check.policies.with_share(self.replicas(), |policies| {
            self.store()
                .commit_now(Check::of(policies, check.key, check.charge()), id, 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cost, Costs, Key, Policy, PolicySet, Priority, Quota};

    const DAILY: Policy = Policy::token_bucket("day", Quota::per_day(12));

    fn replicas(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).expect("not zero")
    }

    fn remaining(share: &LocalShare, policies: &PolicySet, key: &str, cost: u64) -> (bool, u64) {
        let key = Key::new(key);
        let decision = share.ask(
            Check::new(policies, &key, Cost::new(cost)),
            MemoryStore::decide,
        );
        let left = decision.states().next().expect("a policy").remaining();
        (decision.is_allowed(), left)
    }

    #[test]
    fn the_share_follows_the_count_and_starts_with_the_whole_quota() {
        let (count, daily) = (ReplicaCount::new(), DAILY.into());
        let share = LocalShare::new(NonZeroU32::MIN, Some(count.clone()), None);
        assert_eq!(
            (share.replicas(), remaining(&share, &daily, "a", 1)),
            (replicas(1), (true, 11))
        );
        count.set(replicas(4));
        assert_eq!(
            (share.replicas(), remaining(&share, &daily, "b", 1)),
            (replicas(4), (true, 2))
        );
        count.set(replicas(3));
        assert_eq!(
            (share.replicas(), remaining(&share, &daily, "c", 1)),
            (replicas(3), (true, 3))
        );
        count.set(replicas(100));
        assert_eq!(
            remaining(&share, &daily, "d", 1),
            (true, 0),
            "each share is at least one unit"
        );
    }

    #[test]
    fn sets_with_other_quotas_have_shares_of_their_own_in_one_store() {
        let share = LocalShare::new(replicas(4), None, None);
        let quota = Quota::per_day(100);
        let (daily, larger) = (
            DAILY.into(),
            DAILY.with_quota(quota).expect("a policy").into(),
        );
        assert_eq!(remaining(&share, &daily, "a", 1), (true, 2));
        assert_eq!(remaining(&share, &larger, "b", 1), (true, 24));
        assert_eq!(
            remaining(&share, &larger, "a", 1),
            (true, 23),
            "the state belongs to the name of the policy"
        );
        assert_eq!(share.store().len(), 2);
    }

    #[test]
    fn a_cost_above_what_its_rank_has_of_the_share_spends_that_and_no_more() {
        let policies = Policy::fixed_window("day", Quota::per_day(100)).into();
        let share = LocalShare::new(replicas(2), None, None);
        let spends = |key: &str, cost: u64| {
            let costs = Costs::new(Cost::new(cost)).with_priority(Priority::BACKGROUND);
            let (key, charge) = (
                Key::new(key),
                costs
                    .charge(&policies)
                    .and_then(|charge| costs.priority().rank(&policies, charge))
                    .expect("a cost within the share of the rank"),
            );
            let check = Check::of(&policies, &key, charge.borrow());
            let look = share.ask(check, MemoryStore::look_now);
            let decision = share.ask(check, MemoryStore::decide);
            assert_eq!(look.is_allowed(), decision.is_allowed(), "{cost}");
            decision.is_allowed().then(|| decision.cost().units())
        };
        // The rank has 30 of the 50 units of this replica.
        for cost in 31..=60 {
            assert_eq!(spends(&format!("fresh-{cost}"), cost), Some(30), "{cost}");
            assert_eq!(spends(&format!("fresh-{cost}"), 1), None, "{cost}");
        }
        assert_eq!(
            [1, 29, 40].map(|cost| spends("begun", cost)),
            [Some(1), Some(29), None]
        );
    }

    #[test]
    fn a_cost_is_cut_for_each_policy_by_itself() {
        let policies = PolicySet::from([DAILY, Policy::fixed_window("wide", Quota::per_day(100))]);
        let (share, key) = (LocalShare::new(replicas(4), None, None), Key::new("acme"));
        let decision = share.ask(
            Check::new(&policies, &key, Cost::new(12)),
            MemoryStore::decide,
        );
        let left = decision
            .states()
            .map(|state| state.remaining())
            .collect::<Vec<_>>();
        assert_eq!(
            (decision.is_allowed(), left),
            (true, vec![0, 13]),
            "3 of 3 and 12 of 25"
        );
    }

    #[test]
    fn a_cost_that_fits_the_quota_and_not_the_share_spends_the_share_and_no_more() {
        let sets: [PolicySet; 3] = [
            DAILY.into(),
            Policy::sliding_log("log", Quota::per_day(12)).into(),
            [DAILY, Policy::fixed_window("wide", Quota::per_day(100))].into(),
        ];
        for policies in sets {
            let share = LocalShare::new(replicas(4), None, None);
            assert_eq!(
                remaining(&share, &policies, "fresh", 12),
                (true, 0),
                "{policies:?}"
            );
            assert!(!remaining(&share, &policies, "fresh", 12).0, "{policies:?}");
            assert!(!remaining(&share, &policies, "fresh", 1).0, "{policies:?}");
            assert_eq!(
                remaining(&share, &policies, "begun", 1),
                (true, 2),
                "{policies:?}"
            );
            assert_eq!(
                remaining(&share, &policies, "begun", 12),
                (false, 2),
                "a part is not enough: {policies:?}"
            );
        }
    }
}
