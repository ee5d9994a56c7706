//! Reads of a check what stores need beyond its public face. The traits over the other types are those
//! of tollgate-model. A method belongs here when a store in another crate needs it.

use tollgate_model::raw::{Charge, ChargeRef};

use crate::store::Check;

/// Reads a check as its charge, and changes it.
pub trait CheckParts<'a>: Sized {
    /// Returns the costs and the ceilings of the check.
    fn charge(&self) -> ChargeRef<'a>;

    /// Returns the number of a commit: that of the limiter, which may send it again, or a random one.
    fn number(&self) -> u64;

    /// Returns the same check with another charge.
    fn with_charge(self, charge: &'a Charge) -> Self;

    /// Returns the same check at no cost, and without ceilings.
    fn without_cost(self) -> Self;
}

impl<'a> CheckParts<'a> for Check<'a> {
    #[inline]
    fn charge(&self) -> ChargeRef<'a> {
        Check::charge(self)
    }

    #[inline]
    fn number(&self) -> u64 {
        Check::number(self)
    }

    #[inline]
    fn with_charge(self, charge: &'a Charge) -> Self {
        Check::with_charge(self, charge)
    }

    #[inline]
    fn without_cost(self) -> Self {
        Check::without_cost(self)
    }
}
