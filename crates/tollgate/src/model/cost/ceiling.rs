use std::time::Duration;

/// Limits what may be spent from a policy after a check, in the place of its burst.
///
/// A check with a ceiling fits when what is then spent above [`units`](Self::units) returns within
/// [`wait`](Self::wait). So a ceiling below the burst leaves units for other checks, and a ceiling with a wait lets the check
/// spend units that have not accrued yet, up to 8 bursts in all: a debt that every other check sees. The stored state is the
/// same under every ceiling.
///
/// [`Limiter::until_ready`](crate::Limiter::until_ready) sets ceilings. A [`Store`](crate::Store) keeps them:
/// see [`Check::ceiling_of`](crate::Check::ceiling_of).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceiling {
    units: u64,
    wait_us: u64,
}

impl Ceiling {
    /// Creates a ceiling at which at most `units` are spent.
    pub(crate) fn units_of(units: u64) -> Self {
        Self { units, wait_us: 0 }
    }

    /// Returns the same ceiling, which what is spent above it may exceed for `wait_us` microseconds.
    pub(crate) fn within_us(self, wait_us: u64) -> Self {
        Self { wait_us, ..self }
    }

    /// Returns the units that may be spent after the check.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Returns the time within which the units return that are spent beyond. Only a bucket has such a time.
    #[must_use]
    pub fn wait(&self) -> Duration {
        Duration::from_micros(self.wait_us)
    }

    /// Returns the same ceiling for a policy of this burst.
    pub(crate) fn cut(self, burst: u64) -> Self {
        Self { units: self.units.min(burst), ..self }
    }
}

/// Names what a check asks of one policy: the units, and the ceiling under which it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) cost: u64,
    pub(crate) ceiling: Option<Ceiling>,
}

impl Ask {
    /// Returns the same ask if it was denied. An ask that was not denied asks for nothing more.
    pub(crate) fn denied_unless(self, fits: bool) -> Self {
        if fits { 0.into() } else { self }
    }

    /// Returns the units that may be spent from a policy of this burst.
    #[inline]
    pub(crate) fn limit(&self, burst: u64) -> u64 {
        self.ceiling.map_or(burst, |ceiling| ceiling.units)
    }

    /// Returns the time within which units beyond the limit have to return, in microseconds.
    pub(crate) fn wait_us(&self) -> u64 {
        self.ceiling.map_or(0, |ceiling| ceiling.wait_us)
    }
}

impl From<u64> for Ask {
    #[inline]
    fn from(cost: u64) -> Self {
        Self { cost, ceiling: None }
    }
}
