//! Tests the parts of a lease one by one. `tools/simulation` runs them together, under random schedules.

mod account;
mod replica;
mod terms;

use std::time::Duration;

use super::*;
use crate::{Algorithm, Policy, Quota};

/// The length of a generation in microseconds.
const G: u64 = 500_000;

/// The start of a generation, and of every window of the tests.
const BEGIN: u64 = 1_680_000_000_000_000;

const TERMS: Lease = Lease::new().generation(Duration::from_micros(G)).share(4);

fn policy(algorithm: Algorithm, amount: u64, period: Duration) -> Policy {
    Policy::try_new("p", algorithm, Quota::new(amount, period)).unwrap().try_leased(TERMS).unwrap()
}

fn bucket() -> Policy {
    policy(Algorithm::TokenBucket, 100, Duration::from_secs(1))
}

/// Returns a policy of every algorithm that can be leased.
fn every() -> Vec<Policy> {
    let algorithms = Algorithm::ALL.into_iter().filter(|algorithm| algorithm.is_leasable());
    let policies = algorithms.map(|algorithm| policy(algorithm, 100, Duration::from_secs(1)));
    #[cfg(feature = "calendar")]
    let policies = policies.chain([calendar_window()]);
    policies.collect()
}

/// Returns a window of a local day that starts at `BEGIN`.
#[cfg(feature = "calendar")]
fn calendar_window() -> Policy {
    let zone = "-10:40".parse().unwrap();
    Policy::calendar_window("p", 100, crate::CalendarUnit::Day, zone).leased(TERMS)
}

/// Returns a settled account from which `units` were granted at `now_us`.
fn granted(policy: &Policy, now_us: u64, units: u64) -> (Account, Stamp) {
    let mut account = Account::new(policy, TERMS, now_us);
    account.settle(policy, policy, TERMS, now_us);
    let stamp = account.grant(units, 1);
    (account, stamp)
}

fn settle(account: &mut Account, policy: &Policy, now_us: u64) {
    account.settle(policy, policy, TERMS, now_us);
}
