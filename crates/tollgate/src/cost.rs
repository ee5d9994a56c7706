use std::fmt;

/// How many units of every policy one request spends.
///
/// A cost of `c` is worth exactly `c` requests of [`Cost::ONE`] at the same instant, all or
/// nothing. A cost of zero looks and spends nothing, see [`Limiter::peek`](crate::Limiter::peek).
///
/// ```
/// use tollgate::Cost;
/// assert_eq!(Cost::default(), Cost::ONE);
/// assert_eq!(Cost::new(25).units(), 25);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u32);

impl Cost {
    /// Nothing: the check is a look.
    pub const ZERO: Self = Self(0);
    /// One unit, what a request costs unless told otherwise.
    pub const ONE: Self = Self(1);

    /// A cost of `units`.
    #[must_use]
    pub const fn new(units: u32) -> Self {
        Self(units)
    }

    /// The units spent.
    #[must_use]
    pub const fn units(self) -> u32 {
        self.0
    }

    pub(crate) const fn get(self) -> u64 {
        self.0 as u64
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self::ONE
    }
}

impl From<u32> for Cost {
    fn from(units: u32) -> Self {
        Self(units)
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cost({})", self.0)
    }
}
