//! Tests the parts of a lease one by one. `tests/tests/laws/leases.rs` runs them together, under
//! random schedules.

mod replica;
mod terms;

use std::time::Duration;

use super::*;
use crate::{Algorithm, Policy, Quota};

/// The length of a generation in microseconds.
const G: u64 = 500_000;

const TERMS: Lease = Lease::new().generation(Duration::from_micros(G)).share(4);

fn policy(algorithm: Algorithm, amount: u64, period: Duration) -> Policy {
    Policy::try_new("p", algorithm, Quota::new(amount, period))
        .unwrap()
        .try_leased(TERMS)
        .unwrap()
}

fn bucket() -> Policy {
    policy(Algorithm::TokenBucket, 100, Duration::from_secs(1))
}
