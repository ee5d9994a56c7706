//! The traffic that every algorithm is shown, and what passes of it. Times are microseconds.

use std::collections::BTreeMap;

use tollgate::{Algorithm, Limiter, MemoryStore, Policy, Quota, store::Clock};

pub(super) const AMOUNT: u64 = 10;
pub(super) const SECOND: u64 = 1_000_000;
/// The length of a picture.
pub(super) const END: u64 = 6 * SECOND;

/// On the edge of a window of the clock.
const EPOCH: u64 = 1_000_000_000 * SECOND;

/// One request soon after a window begins; a burst around its end; and after a rest, a flood of
/// four times the quota.
pub(super) fn arrivals() -> Vec<u64> {
    let hit = [50_000];
    let burst = (900_000..1_100_000).step_by(5_000);
    let flood = (2_500_000..5_500_000).step_by(25_000);
    hit.into_iter().chain(burst).chain(flood).collect()
}

/// Returns the times at which the admitted requests are acted on: at once, or when their turn in
/// the queue comes.
pub(super) fn passed(algorithm: Algorithm) -> Vec<u64> {
    let clock = Clock::manual(EPOCH);
    let policy = Policy::try_new("plot", algorithm, Quota::per_second(AMOUNT)).expect("a policy");
    let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), policy);
    let decide = |at: u64| {
        clock.set(EPOCH + at);
        let decision = limiter
            .check("key")
            .into_future()
            .into_ready()
            .expect("in process")
            .expect("a decision");
        let delay = u64::try_from(decision.delay().as_micros()).expect("a short one");
        decision.is_allowed().then_some(at + delay)
    };
    arrivals().into_iter().filter_map(decide).collect()
}

/// Counts how many of `times` lie within the last second, at every moment when that changes.
pub(super) fn last_second(times: &[u64]) -> Vec<(u64, u32)> {
    // An interval of a second is half open: what leaves does so as the next one comes.
    let mut changes: BTreeMap<u64, i32> = BTreeMap::new();
    for &at in times {
        *changes.entry(at).or_default() += 1;
        *changes.entry(at + SECOND).or_default() -= 1;
    }
    let mut count = 0;
    let counts = changes
        .into_iter()
        .filter(|&(_, change)| change != 0)
        .map(|(at, change)| {
            count += change;
            (at, u32::try_from(count).expect("what leaves has come"))
        });
    counts.collect()
}

pub(super) fn most_in_a_second(times: &[u64]) -> u32 {
    last_second(times)
        .into_iter()
        .map(|(_, count)| count)
        .max()
        .unwrap_or_default()
}
