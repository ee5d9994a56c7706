//! express-rate-limit: `rateLimit({ windowMs: 15 * 60 * 1000, limit: 100 })` with its store in
//! memory.

use std::time::Duration;

use tollgate::{Policy, Quota};

use super::{SECOND, assert_same_admissions, in_process, trace};

const WINDOW: u64 = 15 * 60 * SECOND;

/// Counts hits until the reset time, which is one window after the hit that found the counter
/// expired.
fn express() -> impl FnMut(u64) -> bool {
    let (mut hits, mut reset) = (0, 0);
    move |now| {
        if reset <= now {
            (hits, reset) = (0, now + WINDOW);
        }
        hits += 1;
        hits <= 100
    }
}

#[test]
fn a_window_from_the_first_hit_admits_what_express_rate_limit_admits() {
    let policy =
        Policy::window_from_first_hit("api", Quota::new(100, Duration::from_micros(WINDOW)));
    for seed in 0..10 {
        let gaps = [0, 1_000, 1_000, SECOND, SECOND, 10 * SECOND];
        let mut times = trace(seed, 2_000, &gaps);
        let end = times[times.len() - 1];
        // Pairs of requests at the reset and one millisecond before it.
        times.extend(
            (1..50).flat_map(|window| [end + window * WINDOW - 1_000, end + window * WINDOW]),
        );
        assert_same_admissions(&times, express(), in_process(policy.clone()));
    }
}
