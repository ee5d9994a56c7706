//! The waits that the account of a leased policy says. Scripts and schedules are compared with it in
//! `scripts/leases.rs` and `leases.rs`.

use std::time::Duration;

use tollgate::{
    Algorithm, CalendarUnit, Lease, Policy, Quota,
    testing::{ALGORITHMS, Stamp},
};
use tollgate_test_support::{Dice, leases::Account};

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
fn the_time_to_retry_is_the_earliest_and_is_exact_where_the_cost_fits_beside_what_is_out() {
    let mut dice = Dice::new(1);
    let mut below = |bound: u64| dice.below(bound);
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
fn a_caller_that_comes_back_after_its_wait_is_denied_once_more_at_most() {
    let mut dice = Dice::new(7);
    let mut below = |bound: u64| dice.below(bound);
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
