//! The policies that a store of several regions decides, and why it refuses the others.
//! See `rules/` for what it does with their terms.

use std::time::Duration;

use tollgate_core::{
    Algorithm, Error, ErrorKind, Policy, PolicySet,
    raw::{MAX_EXACT, micros},
};

use crate::rules::{Meter, Terms};

/// The round trips for which the share has to last.
const TRIPS: u64 = 4;

/// Returns the terms of the one policy of a set.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] with the reason when the policy is not decided in several regions, or
/// its burst is too small for round trips of this time.
pub(crate) fn terms(policies: &PolicySet, trip: Duration) -> Result<Terms, Error> {
    let mut all = policies.iter();
    let (Some(policy), None) = (all.next(), all.next()) else {
        return Err(refused(format!(
            "several regions share one policy at a time, got {}",
            policies.len()
        )));
    };
    let (name, quota) = (policy.name(), policy.quota());
    let Some(lease) = policy.lease() else {
        return Err(refused(format!(
            "the policy {name:?} is not leased, and regions hold leased units"
        )));
    };
    if policy.level().is_some() || policy.branch() != 1 {
        return Err(refused(format!(
            "the policy {name:?} meters a level or a branch of its keys"
        )));
    }
    let (amount, period_us) = (quota.amount(), micros(quota.period()));
    let meter = match policy.algorithm() {
        Algorithm::TokenBucket => {
            let common = common(amount, period_us);
            Meter::Bucket {
                amount: amount / common,
                period_us: period_us / common,
            }
        }
        Algorithm::FixedWindow => Meter::Window { period_us },
        other => {
            return Err(refused(format!(
                "several regions share token buckets and fixed windows, and the policy {name:?} is {other}"
            )));
        }
    };
    let (burst, most) = (quota.burst(), lease.most(&quota));
    let exact = match meter {
        Meter::Bucket { period_us, .. } => burst.checked_mul(4 * period_us),
        Meter::Window { .. } => Some(burst),
    };
    if exact.is_none_or(|number| number > MAX_EXACT) {
        return Err(refused(format!(
            "the burst {burst} of the policy {name:?} is too large for a period of {:?}",
            quota.period()
        )));
    }
    let pipe = u128::from(TRIPS) * trip.as_micros() * u128::from(amount);
    if u128::from(most) * u128::from(period_us) < pipe {
        let least =
            pipe.div_ceil(u128::from(period_us)) * u128::from(burst) / u128::from(most.max(1));
        return Err(refused(format!(
            "the share {most} of the policy {name:?} has to last for {TRIPS} round trips of {trip:?}: \
             its burst must be at least {least}, got {burst}"
        )));
    }
    Ok(Terms {
        meter,
        burst,
        length_us: micros(lease.length()),
        most,
    })
}

/// Returns the one policy of a set that has terms.
pub(crate) fn the_one(policies: &PolicySet) -> Result<&Policy, Error> {
    let one = policies.iter().next();
    one.ok_or_else(|| refused("a set has no policy".to_owned()))
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}

/// Returns the greatest common divisor.
fn common(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}
