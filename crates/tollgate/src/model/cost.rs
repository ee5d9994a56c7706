mod ceiling;
mod charge;
mod costs;

use std::fmt;

pub(crate) use ceiling::Ask;
pub use ceiling::Ceiling;
pub(crate) use charge::{Charge, ChargeRef, EachCost};
pub use costs::Costs;

#[cfg(feature = "redis")]
use crate::model::quota::MAX_EXACT;

/// Counts the units that one request spends from every policy. [`Costs`] names a cost for each policy.
///
/// A cost of `c` spends as much as `c` requests of [`Cost::ONE`] at the same instant. It is charged
/// as a whole or not at all. A cost above the burst of a policy can never fit and is an
/// [error](crate::ErrorKind::CostExceedsBurst), not a denial. A cost of zero changes nothing, see
/// [`Limiter::peek`](crate::Limiter::peek).
///
/// Bursts are at most 999 999 999 999 999, so a greater cost never fits.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
///
/// assert_eq!(Cost::default(), Cost::ONE);
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("rows", Quota::per_hour(100)));
/// let decision = limiter.check_cost("acme", Cost::new(25)).await?;
/// assert_eq!(decision.state("rows").unwrap().remaining(), 75);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u64);

impl Cost {
    /// Spends nothing: the check is a peek.
    pub const ZERO: Self = Self(0);
    /// Spends one unit: the default cost of a request.
    pub const ONE: Self = Self(1);

    /// Creates a cost of `units`.
    #[must_use]
    pub const fn new(units: u64) -> Self {
        Self(units)
    }

    /// Returns the number of units.
    #[must_use]
    pub const fn units(self) -> u64 {
        self.0
    }

    /// Returns the units as a number of a script. A greater cost than any state holds is cut to the greatest integer
    /// that a double represents exactly. Only a refund may have such a cost.
    #[cfg(feature = "redis")]
    pub(crate) fn number(self) -> f64 {
        self.0.min(MAX_EXACT - 1) as f64
    }
}

impl Default for Cost {
    /// Returns [`Cost::ONE`].
    fn default() -> Self {
        Self::ONE
    }
}

impl From<u32> for Cost {
    fn from(units: u32) -> Self {
        Self(units.into())
    }
}

impl From<u64> for Cost {
    fn from(units: u64) -> Self {
        Self(units)
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cost({})", self.0)
    }
}
