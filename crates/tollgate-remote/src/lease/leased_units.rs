//! The units that this process was granted, so that most checks of a leased key need no call.
//! What a grant is, and what a replica may do with it, is in `held_units.rs`.

use std::{
    collections::VecDeque,
    sync::{Arc, MutexGuard},
};

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::{
    demand::Demand,
    held_units::{Grant, HeldUnits, Report},
};
use tollgate_core::{
    Cost, Decision, Key, Lease, PolicySet,
    raw::{
        Charge, ChargeRef, CheckParts, DecisionParts, LeaseParts, Lock, PolicyLevels,
        PolicySetParts, lowered, metrics::LeaseFigures,
    },
    store::{Check, CheckFuture, Clock},
};

/// The times at which the server has charged units that were spent here, by its clock.
///
/// Units are charged with the next report, or at the end of their generation. A refund has to name
/// that time: a log and sliding buckets return units that were charged at it, and a window those
/// that were charged in it.
#[derive(Debug, Default)]
struct Charges {
    /// The latest times, in the order of the reports.
    times_us: VecDeque<u64>,
    /// The latest time that was forgotten.
    forgotten_us: u64,
}

/// The number of times that are remembered.
const MOST_CHARGES: usize = 16;

impl Charges {
    /// Adds a time at which units were charged.
    fn add(&mut self, charged_us: u64) {
        if self.times_us.len() == MOST_CHARGES {
            self.forgotten_us = self
                .times_us
                .pop_front()
                .map_or(0, |oldest_us| self.forgotten_us.max(oldest_us));
        }
        self.times_us.push_back(charged_us);
    }

    /// Returns the time at which a unit was charged that was spent at `spent_us`: the first one
    /// after. `None` when it was not charged yet, or when nobody remembers.
    fn of(&self, spent_us: u64) -> Option<u64> {
        let later = self
            .times_us
            .iter()
            .copied()
            .filter(|&charged_us| charged_us >= spent_us);
        later.min().filter(|_| spent_us > self.forgotten_us)
    }
}

/// Keeps what this process knows of a key and a set of leased policies.
struct LeasedKey {
    hash: u64,
    key: Key,
    policies: PolicySet,
    units: HeldUnits,
    demand: Demand,
    /// The times at which the server has charged units that were spent here.
    charges: Charges,
    seen: Option<LastAnswer>,
    asked_us: u64,
    /// The time of the last call.
    called_us: u64,
    /// The checks since the entries of the shard were last thinned out.
    checks: u32,
}

/// The answer to the last call.
struct LastAnswer {
    levels: PolicyLevels,
    at_us: u64,
    /// The time of the answer by the clock of this process.
    here_us: u64,
}

impl LeasedKey {
    fn new(hash: u64, check: &Check<'_>, now_us: u64) -> Self {
        Self {
            hash,
            key: check.key.clone(),
            policies: check.policies.clone(),
            units: HeldUnits::default(),
            demand: Demand::new(now_us),
            charges: Charges::default(),
            seen: None,
            asked_us: now_us,
            called_us: now_us,
            checks: 0,
        }
    }

    fn is_of(&self, policies: &PolicySet, key: &Key) -> bool {
        self.key == *key && self.policies.is_same(policies)
    }

    /// Counts a check, whether it is admitted or not.
    fn count(&mut self, now_us: u64, units: u64) {
        self.demand.count(units);
        self.asked_us = now_us;
        self.checks = self.checks.saturating_add(1);
    }

    /// Decides a check by units that are held, if there are as many.
    fn decide(
        &mut self,
        policies: &PolicySet,
        charge: ChargeRef<'_>,
        now_us: u64,
    ) -> Option<Decision> {
        let at_us = self.seen.as_ref()?.server_us(now_us);
        self.units.spend(now_us, at_us, charge.cost.units())?;
        Some(Decision::from_levels(policies, self.levels(now_us), charge, at_us).marked_leased())
    }

    /// Notes the answer to a call.
    fn note(&mut self, decision: &Decision, here_us: u64) {
        self.seen = Some(LastAnswer {
            levels: decision.levels().clone(),
            at_us: decision.at_us(),
            here_us,
        });
    }

    /// Returns the shortest terms of the policies.
    fn lease(&self) -> Lease {
        self.policies
            .iter()
            .filter_map(|policy| policy.lease())
            .min_by_key(|lease| lease.length())
            .unwrap_or_default()
    }

    /// Returns whether the key was not asked for during a part of a generation.
    fn is_idle(&self, now_us: u64, [numerator, denominator]: [u64; 2]) -> bool {
        self.asked_us + self.lease().generation_us() * numerator / denominator <= now_us
    }

    /// Returns the last server state, with `remaining` capped at the units held here. Other
    /// replicas may have spent all others.
    fn levels(&self, now_us: u64) -> PolicyLevels {
        let held = self.units.held(now_us);
        let Some(seen) = &self.seen else {
            return PolicyLevels::new();
        };
        let passed_us = now_us.saturating_sub(seen.here_us);
        seen.levels.map(&self.policies, |_, policy, level| {
            lowered(policy, level, seen.at_us, passed_us, held)
        })
    }
}

impl LastAnswer {
    /// Returns about the time of the server.
    fn server_us(&self, now_us: u64) -> u64 {
        self.at_us + now_us.saturating_sub(self.here_us)
    }
}

/// Connects a check that makes a call with the leased units, when its call is composed and when it
/// is answered.
#[derive(Debug)]
pub struct LeaseCall {
    leased_units: Arc<LeasedUnits>,
    /// The time of the check, which is no later than the sending of its call.
    at_us: u64,
    /// The call is made to return units.
    gives_back: bool,
    /// For each report of the call, the time at which its units lapse at the server.
    lapses_us: Lock<SmallVec<[u64; 2]>>,
}

impl Clone for LeaseCall {
    /// Leaves out the reports: they are taken when a call is composed, and the clone is for another
    /// one.
    fn clone(&self) -> Self {
        Self {
            leased_units: Arc::clone(&self.leased_units),
            lapses_us: Lock::default(),
            ..*self
        }
    }
}

impl LeaseCall {
    /// Makes the call of a check of this time.
    #[must_use]
    pub fn new(leased_units: &Arc<LeasedUnits>, at_us: u64) -> Self {
        Self {
            leased_units: Arc::clone(leased_units),
            at_us,
            gives_back: false,
            lapses_us: Lock::default(),
        }
    }

    /// Makes the call that returns the units of a key.
    #[must_use]
    pub fn to_release(leased_units: &Arc<LeasedUnits>) -> Self {
        Self {
            gives_back: true,
            ..Self::new(leased_units, leased_units.now_us())
        }
    }

    /// Returns the time now, for [`compose`](Self::compose) and [`answered`](Self::answered). A batch
    /// reads it once for all keys.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.leased_units.now_us()
    }

    /// Takes the reports of a key for the call that is composed now, and returns the number of
    /// units that it wants.
    ///
    /// A report that was taken is not sent again, whatever becomes of the call.
    pub fn compose(
        &self,
        policies: &PolicySet,
        key: &Key,
        hash: u64,
        now_us: u64,
    ) -> (Vec<Report>, u64) {
        let mut shard = self.leased_units.lock(hash);
        let (entry, counts) = shard.find(policies, key, hash);
        let Some(entry) = entry else {
            return (Vec::new(), 0);
        };
        let want = if self.gives_back {
            0
        } else {
            entry.demand.want(now_us, entry.lease())
        };
        let gives_back = self.gives_back || self.leased_units.are_stale(entry.called_us, now_us);
        entry.called_us = now_us;
        let reports = entry.units.take_reports(now_us, gives_back);
        counts.returned += reports.iter().map(|report| report.returned).sum::<u64>();
        counts.lapsed += entry.units.take_lapsed();
        let mut lapses_us = self.lapses_us.lock();
        lapses_us.clear();
        lapses_us.extend(
            reports
                .iter()
                .filter_map(|report| lapse_us(policies, report)),
        );
        drop(lapses_us);
        (reports, want)
    }

    /// Notes the answer to the call, which came before `here_us`: the last decision on the key, and the
    /// units that were granted.
    pub fn answered(
        &self,
        key: &Key,
        hash: u64,
        here_us: u64,
        decision: &Decision,
        grant: Option<Grant>,
    ) {
        let mut shard = self.leased_units.lock(hash);
        let (entry, counts) = shard.find(decision.policies(), key, hash);
        let Some(entry) = entry else { return };
        entry.note(decision, here_us);
        // Units that have lapsed before the report came were charged then.
        self.lapses_us
            .lock()
            .drain(..)
            .for_each(|lapse_us| entry.charges.add(lapse_us.min(decision.at_us())));
        if let Some(grant) = grant {
            counts.granted += grant.units;
            entry.units.add(self.at_us, grant);
        }
    }
}

/// Returns the time at which units of a report lapse: the end of the generation after the one of
/// their grant.
fn lapse_us(policies: &PolicySet, report: &Report) -> Option<u64> {
    let terms = policies
        .iter()
        .filter_map(|policy| policy.lease())
        .zip(&report.stamps);
    terms
        .map(|(lease, stamp)| (stamp.generation + 2).saturating_mul(lease.generation_us()))
        .min()
}

/// The units that this process was granted, by key and policies.
///
/// A key has an entry while it is asked for. A lookup takes one lock of 64. Each call names a key
/// by its hash, too, which the store computes with a hasher of its own: always the same one.
pub struct LeasedUnits {
    shards: Box<[Lock<LeaseShard>]>,
    /// The longest time for which units are held without a call.
    longest_us: u64,
    /// Goes on while the system sleeps: the server's clock does.
    clock: Clock,
}

#[derive(Default)]
struct LeaseShard {
    entries: HashTable<LeasedKey>,
    counts: LeaseFigures,
    /// The time at which the entries were last thinned out.
    thinned_us: u64,
}

/// Names a key that this process holds units of.
#[derive(Clone, Debug)]
pub struct LeaseHolder {
    /// The policies whose units are held.
    pub policies: PolicySet,
    /// The key whose units are held.
    pub key: Key,
}

const SHARDS: usize = 64;

/// The most entries of a shard. Keys beyond are not leased.
const MOST_KEYS: usize = 512;

/// The least time between two times at which a full shard is thinned out.
const PAUSE_US: u64 = 20_000;

impl LeasedUnits {
    /// Creates the units of a process that holds none. The clock counts the lives of units. It must
    /// go on while the machine is suspended.
    #[must_use]
    pub fn new(clock: Clock) -> Arc<Self> {
        Self::given_back_after(clock, u64::MAX)
    }

    /// Creates the units of a process, as [`new`](Self::new), that are given back when its last call
    /// is so many microseconds ago: with the next check of their key, or with a
    /// [sweep](Self::sweep).
    ///
    /// Where few units are shared, a process whose demand has fallen must not hold what it was
    /// granted before for as long as it lives.
    #[must_use]
    pub fn given_back_after(clock: Clock, longest_us: u64) -> Arc<Self> {
        let shards = std::iter::repeat_with(Lock::default).take(SHARDS).collect();
        Arc::new(Self {
            shards,
            longest_us,
            clock,
        })
    }

    /// Spends the cost of a check from the units of its key. Otherwise the check needs a trip, and
    /// the error is its time.
    ///
    /// A check with a tag makes a trip, because the log at the server stores the tag. So does one
    /// with different costs.
    pub fn spend(&self, check: &Check<'_>, hash: u64) -> Result<CheckFuture, u64> {
        let now_us = self.now_us();
        let charge = check.charge();
        let can_lease = charge.is_plain() && check.tag.is_empty() && charge.cost > Cost::ZERO;
        let mut shard = self.lock(hash);
        match shard.find(check.policies, check.key, hash) {
            (Some(entry), counts) => {
                entry.count(now_us, charge.cost.units());
                let can_lease = can_lease && !self.are_stale(entry.called_us, now_us);
                if can_lease && let Some(decision) = entry.decide(check.policies, charge, now_us) {
                    counts.trips_saved += 1;
                    drop(shard);
                    return Ok(CheckFuture::ready(Ok(decision)));
                }
            }
            (None, _) if can_lease => shard.insert(hash, check, now_us),
            (None, _) => {}
        }
        Err(now_us)
    }

    /// Returns whether this process holds the cost of a check in units of its key.
    #[must_use]
    pub fn hold(&self, check: &Check<'_>, hash: u64) -> bool {
        let now_us = self.now_us();
        let mut shard = self.lock(hash);
        let entry = shard.find(check.policies, check.key, hash).0;
        check.charge().is_plain()
            && entry.is_some_and(|entry| entry.units.covers(now_us, check.cost.units()))
    }

    /// Takes back units of a decision that was leased, at `spent_us` by the server's clock. Returns
    /// what the server has to refund of them, and the time at which it has charged them, as far as
    /// it is known.
    ///
    /// A held unit is one unit of every policy, so of different costs the least is held again. The
    /// server refunds the rest, of what it has charged before.
    pub fn refund(&self, check: &Check<'_>, hash: u64, spent_us: u64) -> (Charge, u64) {
        let (now_us, charge, count) = (self.now_us(), check.charge(), check.policies.len());
        let mut shard = self.lock(hash);
        let Some(entry) = shard.find(check.policies, check.key, hash).0 else {
            return (charge.to_owned(), spent_us);
        };
        let least = charge.iter(count).map(Cost::units).min().unwrap_or(0);
        match entry.units.refund(now_us, spent_us, least) {
            Some(_) => {
                let rest = charge.iter(count).map(Cost::units);
                let rest = rest.map(|units| Cost::new(units - least));
                (Charge::each(rest), spent_us)
            }
            None => (
                charge.to_owned(),
                entry.charges.of(spent_us).unwrap_or(spent_us),
            ),
        }
    }

    /// Forgets the units of a key, because its states were removed.
    pub fn clear(&self, key: &Key, hash: u64) {
        self.lock(hash).retain(|entry| entry.key != *key);
    }

    /// Drops the entries that nobody has asked for during two generations, and lists the holders of
    /// units that nobody has asked for during half a generation, or that are held for too long.
    #[must_use]
    pub fn sweep(&self) -> Vec<LeaseHolder> {
        let now_us = self.now_us();
        let sweep = |at| {
            let mut shard = self.lock_at(at);
            shard.retain(|entry| !entry.is_idle(now_us, [2, 1]));
            shard
                .holders(now_us, |entry| {
                    entry.is_idle(now_us, [1, 2]) || self.are_stale(entry.called_us, now_us)
                })
                .collect::<Vec<_>>()
        };
        (0..SHARDS).flat_map(sweep).collect()
    }

    /// Returns whether no key has an entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        (0..SHARDS).all(|at| self.lock_at(at).entries.is_empty())
    }

    /// Lists all keys that this process holds units of.
    #[must_use]
    pub fn holders(&self) -> Vec<LeaseHolder> {
        let now_us = self.now_us();
        (0..SHARDS)
            .flat_map(|at| {
                self.lock_at(at)
                    .holders(now_us, |_| true)
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Counts what became of the leased units.
    #[must_use]
    pub fn counts(&self) -> LeaseFigures {
        let now_us = self.now_us();
        let mut sum = LeaseFigures::default();
        for at in 0..SHARDS {
            let shard = self.lock_at(at);
            sum.add(&shard.counts);
            sum.held += shard
                .entries
                .iter()
                .map(|entry| entry.units.held(now_us))
                .sum::<u64>();
        }
        sum
    }

    fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    /// Returns whether units are held for too long whose last call was at this time.
    fn are_stale(&self, called_us: u64, now_us: u64) -> bool {
        now_us.saturating_sub(called_us) >= self.longest_us
    }

    fn lock(&self, hash: u64) -> MutexGuard<'_, LeaseShard> {
        self.lock_at((hash >> 32) as usize)
    }

    fn lock_at(&self, at: usize) -> MutexGuard<'_, LeaseShard> {
        self.shards[at % SHARDS].lock()
    }
}

impl LeaseShard {
    /// Returns the entry of a key, and the counts of the shard.
    fn find(
        &mut self,
        policies: &PolicySet,
        key: &Key,
        hash: u64,
    ) -> (Option<&mut LeasedKey>, &mut LeaseFigures) {
        (
            self.entries
                .find_mut(hash, |entry| entry.is_of(policies, key)),
            &mut self.counts,
        )
    }

    /// Adds the entry of a key, if there is room.
    fn insert(&mut self, hash: u64, check: &Check<'_>, now_us: u64) {
        if self.entries.len() >= MOST_KEYS && self.thinned_us + PAUSE_US <= now_us {
            self.thinned_us = now_us;
            // A flood of keys that are asked for once must not keep out those that are asked for
            // often.
            self.retain(|entry| {
                std::mem::take(&mut entry.checks) > 1 || entry.units.held(now_us) > 0
            });
        }
        if self.entries.len() < MOST_KEYS {
            let mut entry = LeasedKey::new(hash, check, now_us);
            entry.count(now_us, check.charge().cost.units());
            self.entries.insert_unique(hash, entry, |entry| entry.hash);
        }
    }

    /// Drops entries. Their units lapse at the server.
    fn retain(&mut self, mut is_kept: impl FnMut(&mut LeasedKey) -> bool) {
        self.entries.retain(|entry| {
            let kept = is_kept(entry);
            if !kept {
                entry.units.clear();
            }
            self.counts.lapsed += entry.units.take_lapsed();
            kept
        });
    }

    fn holders(
        &self,
        now_us: u64,
        mut is_listed: impl FnMut(&LeasedKey) -> bool,
    ) -> impl Iterator<Item = LeaseHolder> {
        let holds = move |entry: &&LeasedKey| entry.units.held(now_us) > 0 && is_listed(entry);
        self.entries.iter().filter(holds).map(|entry| LeaseHolder {
            policies: entry.policies.clone(),
            key: entry.key.clone(),
        })
    }
}

tollgate_core::debug_fields! { LeasedUnits: clock, .. }

#[cfg(test)]
mod charges_tests {
    use super::*;

    #[test]
    fn a_unit_was_charged_at_the_first_time_after_it_was_spent() {
        let mut charges = Charges::default();
        assert_eq!(charges.of(5), None);
        [30, 10, 20]
            .into_iter()
            .for_each(|at_us| charges.add(at_us));
        assert_eq!(
            [5, 10, 11, 25, 31].map(|spent_us| charges.of(spent_us)),
            [Some(10), Some(10), Some(20), Some(30), None]
        );
    }

    #[test]
    fn a_time_that_was_forgotten_is_not_replaced_by_a_later_one() {
        let mut charges = Charges::default();
        (1..=MOST_CHARGES as u64 + 1).for_each(|at| charges.add(at * 10));
        assert_eq!(
            [9, 10, 11].map(|spent_us| charges.of(spent_us)),
            [None, None, Some(20)]
        );
    }
}

#[cfg(test)]
mod refunds_tests {
    use super::super::{held_units::Stamp, tests::decide};
    use super::*;
    use tollgate_core::{Algorithm, MemoryStore, Policy, Quota};

    /// The units of one key, and a clock that is also that of the server.
    struct Bench {
        units: Arc<LeasedUnits>,
        clock: Clock,
        policies: PolicySet,
        key: Key,
    }

    const HASH: u64 = 7;
    const SECOND_US: u64 = 1_000_000;

    /// The number of the generation of 5 s that begins at 55 s.
    const GENERATION: u64 = 11;

    impl Bench {
        /// Creates the units of a key that is granted ten, at 59 s.
        fn new(names: &[&str]) -> Self {
            let policies = names.iter().map(|name| {
                Policy::try_new(*name, Algorithm::FixedWindow, Quota::per_minute(800))
                    .and_then(|policy| policy.try_leased(Lease::new()))
                    .expect("a policy")
            });
            let clock = Clock::manual(59 * SECOND_US);
            let bench = Self {
                units: LeasedUnits::new(clock.clone()),
                clock,
                policies: PolicySet::try_new(policies).expect("a set"),
                key: Key::new("acme"),
            };
            assert!(bench.spend(Cost::ONE).is_none(), "nothing is held yet");
            let stamp = Stamp {
                birth: 1,
                generation: GENERATION,
            };
            bench.call(Some(Grant {
                stamps: names.iter().map(|_| stamp).collect(),
                units: 10,
                life_us: 6 * SECOND_US,
            }));
            bench
        }

        fn check(&self, cost: Cost) -> Check<'_> {
            Check::new(&self.policies, &self.key, cost)
        }

        fn at(&self, ms: u64) -> &Self {
            self.clock.set(ms * 1_000);
            self
        }

        /// Makes a call, which reports what was spent.
        fn call(&self, grant: Option<Grant>) {
            let call = LeaseCall::new(&self.units, self.clock.now_us());
            let _ = call.compose(&self.policies, &self.key, HASH, call.now_us());
            let store = MemoryStore::builder().clock(self.clock.clone()).build();
            let decision = decide(&store, self.check(Cost::ZERO));
            call.answered(&self.key, HASH, call.now_us(), &decision, grant);
        }

        /// Returns the decision of a check that is decided by units that are held.
        fn spend(&self, cost: Cost) -> Option<Decision> {
            let decided = self.units.spend(&self.check(cost), HASH).ok()?;
            Some(decided.into_ready().expect("at once").expect("a decision"))
        }

        /// Refunds units of each policy. Returns what the server has to refund, and the time.
        fn refund(&self, units: &[u64], of: &Decision) -> (Charge, u64) {
            let charge = Charge::each(units.iter().copied().map(Cost::new));
            let check = self.check(Cost::ZERO).with_charge(&charge);
            self.units.refund(&check, HASH, of.at_us())
        }

        fn held(&self) -> u64 {
            self.units.counts().held
        }
    }

    #[test]
    fn units_that_are_held_for_too_long_go_back_with_the_next_call() {
        let mut bench = Bench::new(&["api"]);
        let units = Arc::get_mut(&mut bench.units).expect("nobody else has them");
        units.longest_us = 600_000;
        assert!(bench.at(59_599).spend(Cost::ONE).is_some());
        assert!(bench.units.sweep().is_empty());
        assert!(bench.at(59_600).spend(Cost::ONE).is_none());
        assert_eq!(bench.units.sweep().len(), 1);
        let call = LeaseCall::new(&bench.units, bench.clock.now_us());
        let (reports, _) = call.compose(&bench.policies, &bench.key, HASH, call.now_us());
        let [report] = &*reports else {
            panic!("{reports:?}");
        };
        assert_eq!((report.spent, report.returned, bench.held()), (1, 9, 0));
    }

    /// The unit that was reported at 59.5 s was charged to the window that ends at 60 s.
    #[test]
    fn a_late_refund_does_not_take_back_the_unit_of_a_later_request() {
        let bench = Bench::new(&["api"]);
        let first = bench.spend(Cost::ONE).expect("a unit");
        bench.at(59_500).call(None);
        let second = bench.at(61_000).spend(Cost::ONE).expect("a unit");
        bench.at(62_000);
        let left = bench.refund(&[1], &first);
        assert_eq!(left, (Charge::from(Cost::ONE), 59_500_000));
        assert_eq!(bench.held(), 8);
        let left = bench.refund(&[1], &second);
        assert_eq!(left, (Charge::from(Cost::ZERO), 61_000_000));
        assert_eq!(bench.held(), 9);
    }

    #[test]
    fn a_check_with_a_tag_makes_a_trip() {
        let bench = Bench::new(&["api"]);
        let tagged = bench.check(Cost::ONE).with_tag(b"why");
        assert!(bench.units.spend(&tagged, HASH).is_err());
        assert_eq!(bench.held(), 10);
        assert!(bench.spend(Cost::ONE).is_some());
    }

    #[test]
    fn of_different_costs_the_least_is_held_again_and_the_server_refunds_the_rest() {
        let each = |units: [u64; 2]| Charge::each(units.map(Cost::new));
        for (refunded, rest, held) in [
            ([0, 3], [0, 3], 5),
            ([2, 3], [0, 1], 7),
            ([5, 1], [4, 0], 6),
            ([4, 4], [0, 0], 9),
        ] {
            let bench = Bench::new(&["requests", "tokens"]);
            let decision = bench.spend(Cost::new(5)).expect("five units");
            let (left, _) = bench.refund(&refunded, &decision);
            assert_eq!((left, bench.held()), (each(rest), held), "{refunded:?}");
        }
    }

    #[test]
    fn what_was_reported_is_refunded_by_the_server_alone_at_the_time_of_the_report() {
        let bench = Bench::new(&["requests", "tokens"]);
        let decision = bench.spend(Cost::new(5)).expect("five units");
        bench.at(60_000).call(None);
        let (left, charged_us) = bench.refund(&[2, 3], &decision);
        let all = Charge::each([2, 3].map(Cost::new));
        assert_eq!((left, charged_us, bench.held()), (all, 60_000_000, 5));
    }
}
