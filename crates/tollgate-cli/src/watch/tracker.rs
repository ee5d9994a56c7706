//! Measures the units that each policy spends per second, from one scan to the next.
//! The units that one state has spent between two readings are computed by tollgate-operator.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
};

use tollgate_operator::states::{Reading, StateEntry};

/// Compares the states of a scan with the scan before.
///
/// Of a large prefix, a part of the keys is compared, and the sums are multiplied: a key belongs to
/// the part or not by its hash, so the part is the same in each scan. Memory is bounded.
#[derive(Debug)]
pub(super) struct Tracker {
    /// The states of the last scan by the hash of their Redis keys.
    states: HashMap<u64, TrackedState>,
    policies: BTreeMap<(String, &'static str), u32>,
    /// The part: one key of 2 to the power of this number.
    halvings: u32,
    most: usize,
    hasher: RandomState,
    /// The server's time of the last scan, in microseconds.
    scanned_us: Option<u64>,
    /// The seconds between the last two scans.
    passed: Option<f64>,
}

#[derive(Debug)]
struct TrackedState {
    reading: Reading,
    policy: u32,
    /// The units that were spent since the scan before.
    spent: u64,
}

/// The use of a policy, as a scan found it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PolicyUse {
    pub(super) keys: u64,
    /// The keys whose next request is denied, when a limit is known.
    pub(super) limited: Option<u64>,
    /// The units spent per second, at least. `None` until a second scan.
    pub(super) units_per_second: Option<f64>,
}

/// A scan that is under way.
#[derive(Debug)]
pub(super) struct ScanUse<'a> {
    tracker: &'a mut Tracker,
    states: HashMap<u64, TrackedState>,
    uses: Vec<PolicyUse>,
    now_us: u64,
}

impl Tracker {
    /// Creates a tracker that compares up to `most` keys.
    pub(super) fn new(most: usize) -> Self {
        Self {
            states: HashMap::new(),
            policies: BTreeMap::new(),
            halvings: 0,
            most,
            hasher: RandomState::new(),
            scanned_us: None,
            passed: None,
        }
    }

    /// Begins a scan at this time of the server.
    pub(super) fn begin(&mut self, now_us: u64) -> ScanUse<'_> {
        ScanUse {
            tracker: self,
            states: HashMap::new(),
            uses: Vec::new(),
            now_us,
        }
    }

    /// Forgets the last scan, because the server was away.
    pub(super) fn forget(&mut self) {
        self.states = HashMap::new();
        self.scanned_us = None;
    }

    /// Returns n, where one key of n is compared.
    pub(super) fn part(&self) -> u64 {
        1 << self.halvings
    }

    /// Returns the seconds between the last two scans.
    pub(super) fn passed(&self) -> Option<f64> {
        self.passed
    }

    fn is_tracked(&self, hash: u64) -> bool {
        hash.trailing_zeros() >= self.halvings
    }
}

impl ScanUse<'_> {
    /// Adds a state. A scan may find a state twice, which is then counted twice among the keys.
    pub(super) fn add(&mut self, entry: &StateEntry) {
        let next = u32::try_from(self.tracker.policies.len()).unwrap_or(u32::MAX);
        let policy = *self
            .tracker
            .policies
            .entry((entry.policy.clone(), entry.algorithm))
            .or_insert(next);
        let at = policy as usize;
        if self.uses.len() <= at {
            self.uses.resize(at + 1, PolicyUse::default());
        }
        self.uses[at].keys += 1;
        if entry.limit.is_some() {
            *self.uses[at].limited.get_or_insert(0) += u64::from(entry.is_limited());
        }
        let hash = self.tracker.hasher.hash_one(&entry.redis_key);
        if !self.tracker.is_tracked(hash) {
            return;
        }
        let before = self.tracker.states.get(&hash).map(|state| &state.reading);
        let spent = entry
            .reading
            .spent_since(before, entry.known_quota.as_ref());
        self.states.insert(
            hash,
            TrackedState {
                reading: entry.reading.clone(),
                policy,
                spent,
            },
        );
        while self.states.len() > self.tracker.most && self.tracker.halvings < 63 {
            self.tracker.halvings += 1;
            let tracker = &*self.tracker;
            self.states.retain(|hash, _| tracker.is_tracked(*hash));
        }
    }

    /// Ends the scan, and returns what each policy spends, by its name and its algorithm.
    pub(super) fn end(mut self) -> BTreeMap<(String, &'static str), PolicyUse> {
        let passed = self
            .tracker
            .scanned_us
            .map(|before| self.now_us.saturating_sub(before) as f64 / 1e6);
        self.tracker.passed = passed.filter(|passed| *passed > 0.0);
        if let Some(passed) = self.tracker.passed {
            let mut sums = vec![0_u64; self.uses.len()];
            for state in self.states.values() {
                sums[state.policy as usize] += state.spent;
            }
            for (policy, sum) in self.uses.iter_mut().zip(sums) {
                policy.units_per_second = Some((sum * self.tracker.part()) as f64 / passed);
            }
        }
        self.tracker.states = self.states;
        self.tracker.scanned_us = Some(self.now_us);
        let use_of = |at: &u32| {
            self.uses
                .get(*at as usize)
                .cloned()
                .filter(|policy| policy.keys > 0)
        };
        self.tracker
            .policies
            .iter()
            .filter_map(|(name, at)| Some((name.clone(), use_of(at)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::of_window;

    const SECOND: u64 = 1_000_000;

    fn scan(
        tracker: &mut Tracker,
        at: u64,
        keys: &[(&str, u64)],
    ) -> BTreeMap<(String, &'static str), PolicyUse> {
        let mut scan = tracker.begin(at * SECOND);
        for (key, count) in keys {
            scan.add(&of_window(key, "api", *count, Some(10)));
        }
        scan.end()
    }

    fn api() -> (String, &'static str) {
        ("api".to_owned(), "fixed_window")
    }

    #[test]
    fn the_second_scan_tells_what_was_spent_per_second() {
        let mut tracker = Tracker::new(100);
        let first = scan(&mut tracker, 10, &[("a", 3), ("b", 10)]);
        let expected = PolicyUse {
            keys: 2,
            limited: Some(1),
            units_per_second: None,
        };
        assert_eq!(first[&api()], expected);
        // Five more of `a`, and four of a new key. The state of `b` has expired.
        let second = scan(&mut tracker, 12, &[("a", 8), ("c", 4)]);
        assert_eq!(second[&api()].units_per_second, Some(4.5));
        tracker.forget();
        assert_eq!(
            scan(&mut tracker, 14, &[("a", 9)])[&api()].units_per_second,
            None
        );
        assert!(scan(&mut tracker, 16, &[]).is_empty());
    }

    #[test]
    fn of_many_keys_a_part_is_compared_and_multiplied() {
        let mut tracker = Tracker::new(500);
        let keys: Vec<_> = (0..8_000).map(|at| format!("key-{at}")).collect();
        let at = |count| {
            keys.iter()
                .map(|key| (key.as_str(), count))
                .collect::<Vec<_>>()
        };
        let _ = scan(&mut tracker, 1, &at(1));
        let found = scan(&mut tracker, 2, &at(3));
        assert!(
            tracker.states.len() <= 500 && tracker.part() >= 16,
            "{}",
            tracker.part()
        );
        let units = found[&api()].units_per_second.unwrap();
        assert!((8_000.0..32_000.0).contains(&units), "{units} of 16000");
        assert_eq!(found[&api()].keys, 8_000);
    }
}
