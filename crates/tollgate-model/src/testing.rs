//! Opens what the project's own tests compare with scripts, which have numbers of their own for it.
//!
//! The module needs the feature `testing`, and semantic versioning does not cover it.

// Names only: nothing of the product may depend on them.

use crate::{Algorithm, Policy};

/// Lists every algorithm.
pub const ALGORITHMS: [Algorithm; Algorithm::ALL.len()] = Algorithm::ALL;

/// Returns the number of a policy that has this name in its script, if the quota does not have it.
#[must_use]
pub fn named_number(policy: &Policy, name: &str) -> Option<u64> {
    Some(match name {
        "width" => policy.buckets().width_us,
        "buckets" => policy.buckets().count,
        "lock" => policy.lock_times().first_us,
        "longest" => policy.lock_times().longest_us,
        _ => return None,
    })
}
