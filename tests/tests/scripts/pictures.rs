//! Compares the pictures in `docs/plots` and in the guide of `tollgate`, and the text of
//! `docs/algorithms.md` about them, with the algorithms: the same traffic under each. Times are
//! microseconds.

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tollgate::{Algorithm, Limiter, MemoryStore, Policy, Quota, store::Clock, testing::ALGORITHMS};

const SECOND: u64 = 1_000_000;

/// On the edge of a window of the clock.
const EPOCH: u64 = 1_000_000_000 * SECOND;

/// One request soon after a window begins; a burst around its end; and after a rest, a flood of
/// four times the quota.
fn arrivals() -> impl Iterator<Item = u64> {
    let hit = [50_000];
    let burst = (900_000..1_100_000).step_by(5_000);
    let flood = (2_500_000..5_500_000).step_by(25_000);
    hit.into_iter().chain(burst).chain(flood)
}

/// Returns the times at which the admitted requests are acted on: at once, or when their turn in
/// the queue comes.
fn passed(algorithm: Algorithm) -> Vec<u64> {
    let clock = Clock::manual(EPOCH);
    let policy = Policy::try_new("picture", algorithm, Quota::per_second(10)).expect("a policy");
    let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), policy);
    let decide = |at: u64| {
        clock.set(EPOCH + at);
        let check = limiter.check("key").into_future().into_ready();
        let decision = check.expect("in process").expect("a decision");
        let delay = u64::try_from(decision.delay().as_micros()).expect("a short one");
        decision.is_allowed().then_some(at + delay)
    };
    arrivals().filter_map(decide).collect()
}

/// Returns the most of these times within a second, which is half open.
fn most_in_a_second(times: &[u64]) -> usize {
    let until = |end: &u64| {
        let within = times
            .iter()
            .filter(|at| (**at..**at + SECOND).contains(end));
        within.count()
    };
    times.iter().map(until).max().unwrap_or_default()
}

#[test]
fn each_picture_tells_what_passes_and_the_most_in_any_second() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: String| fs::read_to_string(root.join(&path)).expect(&path);
    for algorithm in ALGORITHMS {
        let (name, times) = (algorithm.name(), passed(algorithm));
        let (all, most) = (arrivals().count(), most_in_a_second(&times));
        let title = format!(
            "<title>{}: {} of {all} pass, at most {most} in any second</title>",
            name.replace('_', " "),
            times.len()
        );
        assert!(
            read(format!("docs/plots/{name}.svg")).contains(&title),
            "{title}"
        );
        // The pages of the guide are packed without `docs`.
        let page = read(format!("crates/tollgate/src/guide/plots/{name}.md"));
        let packed = page
            .split(['(', ')'])
            .nth(1)
            .and_then(|url| url.split_once("base64,"));
        let svg = STANDARD
            .decode(packed.expect("a picture").1)
            .expect("base64");
        assert!(String::from_utf8_lossy(&svg).contains(&title), "{title}");
    }
}

#[test]
fn the_traffic_shows_what_the_text_says_of_it() {
    for (algorithm, most) in [
        // 2n around the edge, and 2n - 1 from the first hit on.
        (Algorithm::FixedWindow, 20),
        (Algorithm::WindowFromFirstHit, 19),
        // The burst, and what accrues meanwhile.
        (Algorithm::TokenBucket, 19),
        (Algorithm::SlidingBuckets { buckets: 10 }, 10),
        (Algorithm::SlidingLog, 10),
    ] {
        assert_eq!(most_in_a_second(&passed(algorithm)), most, "{algorithm:?}");
    }
    let departures = passed(Algorithm::LeakyBucket);
    let mut pairs = departures.windows(2);
    assert!(
        pairs.all(|pair| pair[1] - pair[0] >= 100_000),
        "one leaves each 100 ms"
    );
}
