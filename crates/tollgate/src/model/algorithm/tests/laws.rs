//! Tests the laws with a random stream of checks for each policy.

use super::*;

/// Calls `each` at random times near the edges of each policy.
fn streams(mut each: impl FnMut(&Bench, &mut Random)) {
    for (seed, policy) in (1..).zip(many()) {
        let bench = Bench::new(policy);
        let mut random = Random(seed * 7_919);
        for _ in 0..400 {
            bench.pass(random.step(bench.policy()));
            each(&bench, &mut random);
        }
    }
}

#[test]
fn retry_after_is_exact_and_never_zero() {
    let mut denials = 0;
    streams(|bench, random| {
        let cost = random.cost(bench.policy());
        let numbers = one(&bench.check(cost));
        let Some(retry) = numbers.retry else {
            return assert!(numbers.allowed);
        };
        denials += 1;
        let why = format!("{:?} cost {cost} {numbers:?}", bench.policy());
        assert!(retry > 0 && retry <= numbers.reset, "{why}");
        bench.pass(retry - 1);
        assert_eq!(one(&bench.check(cost)).retry, Some(1), "{why}");
        bench.pass(1);
        assert!(bench.admits(cost), "{why}");
    });
    assert!(denials > 5_000, "{denials}");
}

#[test]
fn exactly_the_remaining_units_are_admitted() {
    streams(|bench, random| {
        let remaining = bench.remaining();
        let burst = bench.policy().quota().burst();
        let why = format!("{:?} {remaining}", bench.policy());
        if remaining < burst {
            assert!(!bench.admits(remaining + 1), "{why}");
        }
        match random.below(3) {
            0 => assert!(remaining == 0 || bench.admits(remaining), "{why}"),
            1 => (0..remaining).for_each(|_| assert!(bench.admits(1), "{why}")),
            _ => return,
        }
        assert_eq!(bench.remaining(), 0, "{why}");
        assert!(!bench.admits(1), "{why}");
    });
}

#[test]
fn the_next_unit_is_available_exactly_after_the_time_it_states() {
    streams(|bench, random| {
        let _ = bench.check(random.cost(bench.policy()));
        let numbers = one(&bench.check(0));
        let why = format!("{:?} {numbers:?}", bench.policy());
        assert!(numbers.more <= numbers.reset, "{why}");
        if numbers.more == 0 {
            return assert_eq!(numbers.remaining, bench.policy().quota().burst(), "{why}");
        }
        bench.pass(numbers.more - 1);
        assert_eq!(bench.remaining(), numbers.remaining, "{why}");
        bench.pass(1);
        assert!(bench.remaining() > numbers.remaining, "{why}");
    });
}

#[test]
fn the_state_is_fresh_exactly_after_reset_after() {
    streams(|bench, random| {
        if random.below(4) > 0 {
            return drop(bench.check(random.cost(bench.policy())));
        }
        let numbers = one(&bench.check(0));
        let why = format!("{:?} {numbers:?}", bench.policy());
        let fresh = One {
            allowed: true,
            remaining: bench.policy().quota().burst(),
            retry: None,
            reset: 0,
            more: 0,
        };
        if numbers.reset > 0 {
            bench.pass(numbers.reset - 1);
            assert_eq!(one(&bench.check(0)).reset, 1, "{why}");
            bench.pass(1);
        }
        assert_eq!(one(&bench.check(0)), fresh, "{why}");
    });
}

#[test]
fn a_denial_and_a_peek_change_nothing() {
    streams(|bench, random| {
        let before = bench.peek();
        let cost = random.cost(bench.policy());
        if !bench.admits(cost) {
            assert_eq!(bench.peek(), before, "{:?}", bench.policy());
        }
    });
}

#[test]
fn a_cost_equals_as_many_requests_of_cost_one() {
    for (seed, policy) in (1..).zip(many()) {
        let (whole, single) = (Bench::new(policy.clone()), Bench::new(policy.clone()));
        let mut random = Random(seed * 104_729);
        for _ in 0..300 {
            let (step, cost) = (random.step(&policy), random.cost(&policy));
            whole.pass(step);
            single.pass(step);
            if whole.admits(cost) {
                (0..cost).for_each(|_| assert!(single.admits(1)));
            }
            assert_eq!(whole.peek(), single.peek(), "{policy:?} cost {cost}");
        }
    }
}

#[test]
fn an_idle_key_regains_its_burst_and_no_more() {
    for policy in many() {
        let bench = Bench::new(policy);
        let burst = bench.policy().quota().burst();
        for periods in [1_u64, 2, 5, 8, 1_000] {
            assert_eq!(bench.take_all(), burst, "{:?}", bench.policy());
            let drain = one(&bench.check(0)).reset;
            bench.pass(drain * periods);
            assert_eq!(bench.remaining(), burst, "{:?}", bench.policy());
        }
    }
}

/// A client that asks every microsecond gets exactly k·n units in k periods, even when a unit takes
/// a fraction of a microsecond.
#[test]
fn rates_do_not_drift() {
    for (amount, period_us) in [
        (3, 1_000),
        (10, 700),
        (7, 1_000),
        (1, 1_000),
        (1_003, 8_640),
    ] {
        let quota = quota(amount, period_us);
        for policy in [
            Policy::token_bucket("p", quota),
            Policy::leaky_bucket("p", quota),
            Policy::interval_bucket("p", quota),
            Policy::fixed_window("p", quota),
            Policy::window_from_first_hit("p", quota),
            Policy::sliding_log("p", quota),
        ] {
            let bench = Bench::new(policy);
            bench.take_all();
            let mut taken = 0;
            for _ in 0..20 * period_us {
                bench.pass(1);
                taken += bench.take_all();
            }
            assert_eq!(taken, 20 * amount, "{:?}", bench.policy());
        }
    }
}

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
        let peeked = bench.check(0).delay();
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
    assert!(size_of::<crate::model::algorithm::State>() <= 40);
}
