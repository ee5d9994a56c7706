//! The refill rule: when a region asks for units, and how many it gets.
//! The demand that makes a real region ask is left out: here it may ask at any time.

use super::{Claim, Rules, Time, Units};

/// The time after which another claim replaces one whose call or answer was lost.
const PATIENCE: Time = 1;

/// Returns whether a purse may begin a claim: one is open at a time.
#[must_use]
pub fn may_claim(open: Option<Claim>, now: Time) -> bool {
    open.is_none_or(|claim| now >= claim.since + PATIENCE)
}

/// Returns the units that a call is granted: what it wants, if as much is neither used nor
/// outstanding.
#[must_use]
pub fn grantable(rules: &Rules, used: Units, outstanding: Units) -> Units {
    rules
        .want
        .min(rules.quota.saturating_sub(used + outstanding))
}
