//! The account of a leased policy, which the script keeps at the server: outstanding units count as
//! used.

use std::time::Duration;

use tollgate::{
    Algorithm, CalendarUnit, Lease, Policy, PolicySet, Quota,
    testing::{ALGORITHMS, Stamp},
};
use tollgate_test_support::calls::Call;
use tollgate_test_support::leases::{Account, step};

/// The length of a generation in microseconds.
const G: u64 = 500_000;

/// The start of a generation, and of every window of the tests.
const BEGIN: u64 = 1_680_000_000_000_000;

const TERMS: Lease = Lease::new().generation(Duration::from_micros(G)).share(4);

fn policy(algorithm: Algorithm, amount: u64, period: Duration) -> Policy {
    Policy::try_new("p", algorithm, Quota::new(amount, period))
        .expect("a policy")
        .try_leased(TERMS)
        .expect("terms")
}

fn bucket() -> Policy {
    policy(Algorithm::TokenBucket, 100, Duration::from_secs(1))
}

/// Returns a policy of every algorithm that can be leased.
fn every() -> Vec<Policy> {
    let algorithms = ALGORITHMS
        .into_iter()
        .filter(|algorithm| algorithm.is_leasable());
    let policies = algorithms.map(|algorithm| policy(algorithm, 100, Duration::from_secs(1)));
    policies.chain([calendar_window()]).collect()
}

/// Returns a window of a local day that starts at `BEGIN`.
fn calendar_window() -> Policy {
    let zone = "-10:40".parse().expect("a zone");
    Policy::calendar_window("p", 100, CalendarUnit::Day, zone).leased(TERMS)
}

/// Returns a current account from which `units` were granted at `now_us`.
fn granted(policy: &Policy, now_us: u64, units: u64) -> (Account, Stamp) {
    let mut account = Account::new(policy, TERMS, now_us);
    account.advance(policy, policy, TERMS, now_us);
    let stamp = account.grant(units, 1);
    (account, stamp)
}

fn advance(account: &mut Account, policy: &Policy, now_us: u64) {
    account.advance(policy, policy, TERMS, now_us);
}

#[test]
fn outstanding_units_count_as_used_until_they_are_reported() {
    for policy in every() {
        let (mut account, stamp) = granted(&policy, BEGIN, 20);
        assert_eq!(
            (account.outstanding(), account.remaining(&policy, BEGIN)),
            (20, 80),
            "{policy:?}"
        );
        assert!(
            account.fits(&policy, BEGIN, 80) && !account.fits(&policy, BEGIN, 81),
            "{policy:?}"
        );
        assert!(account.fits(&policy, BEGIN, 0), "a peek fits always");
        // Spent units stay used. Returned units are free.
        assert!(account.report(&policy, BEGIN, stamp, 12, 8));
        assert_eq!(
            (account.outstanding(), account.remaining(&policy, BEGIN)),
            (0, 88),
            "{policy:?}"
        );
        // The units of a report are counted once.
        assert!(!account.report(&policy, BEGIN, stamp, 12, 8));
        assert_eq!(account.remaining(&policy, BEGIN), 88, "{policy:?}");
    }
}

#[test]
fn units_are_charged_at_the_end_of_the_generation_after_the_grant() {
    for policy in every() {
        let (account, _) = granted(&policy, BEGIN + 1, 20);
        let mut before = account.clone();
        advance(&mut before, &policy, BEGIN + 2 * G - 1);
        assert_eq!(
            (
                before.outstanding(),
                before.remaining(&policy, BEGIN + 2 * G - 1)
            ),
            (20, 80),
            "{policy:?}"
        );
        let mut after = account.clone();
        advance(&mut after, &policy, BEGIN + 2 * G);
        assert_eq!(
            (after.outstanding(), after.remaining(&policy, BEGIN + 2 * G)),
            (0, 80),
            "{policy:?}"
        );
    }
    // At the end of the generation, and not when the server is asked next: a tenth of a second is
    // worth 10 units.
    let (mut account, _) = granted(&bucket(), BEGIN, 20);
    advance(&mut account, &bucket(), BEGIN + 2 * G + 100_000);
    assert_eq!(account.remaining(&bucket(), BEGIN + 2 * G + 100_000), 90);
}

#[test]
fn a_report_of_another_birth_or_of_a_generation_that_ended_is_ignored() {
    let policy = bucket();
    let (mut account, stamp) = granted(&policy, BEGIN, 20);
    assert!(!account.report(
        &policy,
        BEGIN,
        Stamp {
            birth: stamp.birth + 1,
            ..stamp
        },
        5,
        5
    ));
    assert!(!account.report(
        &policy,
        BEGIN,
        Stamp {
            generation: stamp.generation + 1,
            ..stamp
        },
        5,
        5
    ));
    advance(&mut account, &policy, BEGIN + G);
    assert!(
        account.report(&policy, BEGIN + G, stamp, 1, 0),
        "the generation before"
    );
    account.grant(3, 2);
    advance(&mut account, &policy, BEGIN + 2 * G);
    let newer = account.grant(10, 2);
    assert_eq!(newer.birth, stamp.birth);
    assert!(!account.report(&policy, BEGIN + 2 * G, stamp, 5, 5));
    assert_eq!(account.outstanding(), 13);
    // Nothing remembers the birth when nothing is outstanding.
    advance(&mut account, &policy, BEGIN + 5 * G);
    assert_eq!(account.grant(10, 7).birth, 7);
}

#[test]
fn a_report_takes_no_more_than_is_outstanding() {
    let policy = bucket();
    let (mut account, stamp) = granted(&policy, BEGIN, 20);
    assert!(account.report(&policy, BEGIN, stamp, 15, u64::MAX));
    assert_eq!(
        (account.outstanding(), account.remaining(&policy, BEGIN)),
        (0, 85)
    );
}

#[test]
fn the_time_to_retry_is_the_earliest_and_is_exact_where_the_cost_fits_beside_what_is_out() {
    let mut seed = 1;
    let mut below = |bound: u64| {
        seed = u64::wrapping_mul(seed, 6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    for round in 0..400 {
        for policy in every() {
            let (mut account, _) = granted(&policy, BEGIN, below(26));
            let mut now = BEGIN;
            for _ in 0..below(4) {
                now += below(2 * G);
                advance(&mut account, &policy, now);
                let cost = below(60).min(account.remaining(&policy, now));
                account.charge(&policy, now, cost, &[]);
                let units = account.grantable(&policy, TERMS, now, below(40));
                account.grant(units, 1);
            }
            let cost = 1 + below(100);
            let fits_at = |at: u64| {
                let mut later = account.clone();
                advance(&mut later, &policy, at);
                later.fits(&policy, at, cost)
            };
            let retry = account.retry_us(&policy, now, cost);
            let is_beside = cost + account.outstanding() <= 100 || account.outstanding() == 0;
            let exact = is_beside && policy.algorithm() != Algorithm::SlidingWindow;
            assert!(
                !exact || fits_at(now + retry),
                "round {round}, {policy:?}: {cost} after {retry} in {account:?}"
            );
            let is_earliest = retry == 0 || !fits_at(now + retry - 1);
            assert!(
                !is_beside || is_earliest,
                "round {round}, {policy:?}: {cost} before {retry}"
            );
            // At its end the account equals a fresh one.
            let end = account.fresh_at(&policy).max(now);
            advance(&mut account, &policy, end);
            assert_eq!(
                (account.outstanding(), account.remaining(&policy, end)),
                (0, 100),
                "{policy:?}"
            );
        }
    }
}

#[test]
fn a_clock_that_goes_back_by_more_than_a_generation_begins_another_birth() {
    let policy = bucket();
    let (mut account, stamp) = granted(&policy, BEGIN, 20);
    let back = BEGIN - 10 * G;
    assert!(
        account.advance(&policy, &policy, TERMS, back),
        "the state is mended"
    );
    assert_eq!(account.outstanding(), 20);
    assert!(!account.report(&policy, back, stamp, 20, 0));
    assert!(account.life_us(back) <= 2 * G);
    // Replicas may spend the units for two generations more.
    advance(&mut account, &policy, back + 2 * G);
    assert_eq!(account.outstanding(), 20);
    advance(&mut account, &policy, back + 3 * G);
    assert_eq!(account.outstanding(), 0);
    // The numbers of generations occur again. A late report belongs to units that have lapsed.
    advance(&mut account, &policy, BEGIN);
    account.grant(10, 2);
    assert!(!account.report(&policy, BEGIN, stamp, 10, 0));
}

#[test]
fn a_clock_that_goes_back_a_little_keeps_the_generation() {
    let policy = bucket();
    let (mut account, stamp) = granted(&policy, BEGIN, 20);
    assert!(!account.advance(&policy, &policy, TERMS, BEGIN - 1));
    assert_eq!(account.life_us(BEGIN - 1), 2 * G);
    assert!(account.report(&policy, BEGIN - 1, stamp, 20, 0));
}

#[test]
fn other_terms_begin_when_nothing_is_outstanding() {
    let policy = bucket();
    let (mut account, stamp) = granted(&policy, BEGIN, 20);
    let longer = TERMS.generation(Duration::from_micros(3 * G));
    account.advance(&policy, &policy, longer, BEGIN + G);
    assert_eq!(account.grantable(&policy, longer, BEGIN + G, 10), 0);
    assert!(
        account.report(&policy, BEGIN + G, stamp, 5, 0),
        "the old terms count the generation"
    );
    account.advance(&policy, &policy, longer, BEGIN + 2 * G);
    assert_eq!(
        (
            account.outstanding(),
            account.grantable(&policy, longer, BEGIN + 2 * G, 10)
        ),
        (0, 10)
    );
    let newer = account.grant(10, 2);
    assert_eq!(newer.generation, (BEGIN + 2 * G) / (3 * G));
}

#[test]
fn a_set_grants_the_least_of_its_policies_and_a_quarter_of_what_remains() {
    let (wide, narrow) = (
        bucket(),
        policy(Algorithm::FixedWindow, 40, Duration::from_secs(1)),
    );
    let narrow = Policy::try_new("narrow", narrow.algorithm(), narrow.quota())
        .unwrap()
        .leased(TERMS);
    let set = PolicySet::try_new([wide.clone(), narrow.clone()]).unwrap();
    let mut accounts = [&wide, &narrow].map(|policy| granted(policy, BEGIN, 0).0);
    let call = |cost, want| Call {
        cost,
        want,
        birth: 9,
        reports: Vec::new(),
    };
    let mut ask = |cost, want| {
        let answer = step(&mut accounts, &set, BEGIN, &call(cost, want));
        (answer.admitted, answer.grant.map_or(0, |grant| grant.units))
    };
    // A quarter of 39 − 1; then a share of 40 / 4 is out.
    assert_eq!(ask(1, 100), (true, 9));
    assert_eq!(ask(1, 100), (true, 1));
    assert_eq!(ask(1, 100), (true, 0));
    assert_eq!(ask(0, 100), (true, 0), "a peek is not granted anything");
    assert_eq!(ask(28, 100), (false, 0));
    assert_eq!(ask(27, 100), (true, 0));
}

/// Law 16: a debt is that of a key without leases, whatever becomes of the units that are out.
#[test]
fn a_debt_outlasts_reports_lapses_and_returns() {
    for policy in every() {
        // 20 units are spent and 480 are owed, beside units that are out.
        let indebted = |out| {
            let (mut account, stamp) = granted(&policy, BEGIN, out);
            account.charge(&policy, BEGIN, 20, &[]);
            account.owe(&policy, BEGIN, 480);
            account.note_debt(&policy, BEGIN);
            (account, stamp)
        };
        let at = |account: &Account, now_us| {
            let mut account = account.clone();
            advance(&mut account, &policy, now_us);
            account
        };
        let later_us = BEGIN + 1;
        for (spent, returned) in [(12, 0), (0, 12), (5, 7)] {
            let (account, stamp) = indebted(12);
            let mut reported = at(&account, later_us);
            assert!(
                reported.report(&policy, later_us, stamp, spent, returned),
                "{policy:?}"
            );
            reported.note_debt(&policy, later_us);
            let mut alone = at(&indebted(0).0, later_us);
            alone.owe(&policy, later_us, spent);
            let wait = alone.retry_us(&policy, later_us, 1);
            assert!(wait > 0, "{policy:?}");
            assert_eq!(
                at(&reported, later_us).retry_us(&policy, later_us, 1),
                wait,
                "{spent} of 12, {policy:?}"
            );
        }
        // Both ends of generations have passed, and the debt of a bucket has not.
        let end_us = BEGIN + 2 * G;
        let (lapsed, mut alone) = (at(&indebted(12).0, end_us), at(&indebted(0).0, end_us));
        alone.owe(&policy, end_us, 12);
        assert_eq!(lapsed.outstanding(), 0);
        assert_eq!(
            lapsed.retry_us(&policy, end_us, 1),
            alone.retry_us(&policy, end_us, 1),
            "{policy:?}"
        );
    }
}

#[test]
fn units_that_are_out_owe_no_more_than_the_most() {
    for policy in every() {
        let [(mut account, stamp), (mut alone, _)] =
            [12, 0].map(|units| granted(&policy, BEGIN, units));
        account.owe(&policy, BEGIN, u64::from(u32::MAX));
        alone.owe(&policy, BEGIN, u64::from(u32::MAX));
        let most = alone.retry_us(&policy, BEGIN, 1);
        assert_eq!(account.retry_us(&policy, BEGIN, 1), most, "{policy:?}");
        assert!(account.report(&policy, BEGIN, stamp, 12, 0));
        assert_eq!(account.retry_us(&policy, BEGIN, 1), most, "{policy:?}");
    }
}

#[test]
fn a_caller_that_comes_back_after_its_wait_is_denied_once_more_at_most() {
    let mut seed = 7;
    let mut below = |bound: u64| {
        seed = u64::wrapping_mul(seed, 6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    for round in 0..400 {
        for policy in every() {
            // Often the units lapse, or the first wait ends, beside the end of a window.
            let mut now = BEGIN - 4 * G + below(6 * G);
            let (mut account, _) = granted(&policy, now, below(26));
            for _ in 0..below(4) {
                now += below(2 * G);
                advance(&mut account, &policy, now);
                let cost = below(100).min(account.remaining(&policy, now));
                account.charge(&policy, now, cost, &[]);
                account.owe(&policy, now, if below(4) == 0 { below(500) } else { 0 });
                let units = account.grantable(&policy, TERMS, now, below(40));
                account.grant(units, 1);
                account.note_debt(&policy, now);
            }
            let (cost, before) = (1 + below(100), account.clone());
            advance(&mut account, &policy, now);
            for denials in 0.. {
                if account.fits(&policy, now, cost) {
                    break;
                }
                assert!(
                    denials < 2,
                    "round {round}, {policy:?}: {cost} in {before:?}"
                );
                now += account.retry_us(&policy, now, cost);
                account.note_debt(&policy, now);
                advance(&mut account, &policy, now);
            }
        }
    }
}
