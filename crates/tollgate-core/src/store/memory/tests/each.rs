//! Tests what one algorithm alone does. The laws that all keep are tested in `tests/laws`.

use super::*;

/// A steady client gets n·m/(m + 1) units of a window of m buckets, and n − 1 of two counters.
#[test]
fn sliding_windows_admit_a_steady_client_at_the_documented_rate() {
    let bench = Bench::new(Policy::sliding_buckets("p", quota(10, 1_000), 4));
    let taken: u64 = (0..50_000)
        .map(|_| u64::from(bench.pass(1).admits(1)))
        .sum();
    assert!((400..=410).contains(&taken), "{taken}");
    let bench = Bench::new(Policy::sliding_window("p", quota(10, 1_000)));
    let taken: u64 = (0..500).map(|_| u64::from(bench.pass(100).admits(1))).sum();
    assert!((450..=500).contains(&taken), "{taken}");
}

#[test]
fn leaky_bucket_departures_are_one_unit_apart() {
    let quota = quota(3, 1_000).with_burst(5);
    let bench = Bench::new(Policy::leaky_bucket("p", quota));
    let mut departures = Vec::new();
    for at in 0..20_000_u64 {
        bench.at(at as i64);
        let peeked = bench.delay();
        assert_eq!(bench.check(0).delay(), Duration::ZERO);
        let decision = bench.check(1);
        if decision.is_allowed() {
            assert_eq!(decision.delay(), peeked);
            departures.push(at + decision.delay().as_micros() as u64);
        } else {
            assert_eq!(decision.delay(), Duration::ZERO);
        }
    }
    for (at, departure) in (0..).zip(&departures) {
        assert_eq!(*departure, (at * 1_000_u64).div_ceil(3));
    }
    assert_eq!(departures.len(), 5 + 3 * 20 - 1);
}

#[test]
fn a_request_of_several_units_waits_for_the_units_before_it() {
    let bench = Bench::new(Policy::leaky_bucket("p", quota(10, 1_000).with_burst(8)));
    assert_eq!(bench.check(5).delay(), Duration::ZERO);
    assert_eq!(bench.check(2).delay(), Duration::from_micros(500));
    assert_eq!(bench.check(2).delay(), Duration::ZERO);
    assert_eq!(bench.check(1).delay(), Duration::from_micros(700));
}

#[test]
fn the_period_of_an_interval_bucket_starts_with_the_first_request() {
    let bench = Bench::new(Policy::interval_bucket("p", quota(2, 50).with_burst(5)));
    assert_eq!(bench.at(30).take_all(), 5);
    assert_eq!(one(&bench.check(1)).retry, Some(50));
    assert_eq!(one(&bench.check(3)).retry, Some(100));
    assert_eq!(
        one(&bench.check(5)),
        One {
            allowed: false,
            remaining: 0,
            retry: Some(150),
            reset: 150,
            more: 50
        }
    );
    assert_eq!(bench.at(79).take_all(), 0);
    assert_eq!(bench.at(80).take_all(), 2);
    assert_eq!(bench.at(30 + 50 * 4).remaining(), 5);
}

#[test]
fn a_state_takes_at_most_40_bytes() {
    assert!(size_of::<tollgate_model::algorithm::State>() <= 40);
}
