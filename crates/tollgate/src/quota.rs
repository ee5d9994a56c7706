use std::{fmt, time::Duration};

use crate::{Cost, Error};

/// How much in how long: `amount` units per `period`, and a `burst` that may be spent at once.
///
/// The burst is the amount unless [`with_burst`](Self::with_burst) sets another. Only the bucket
/// algorithms have a burst of their own; a window admits its amount and nothing else.
///
/// Times are whole microseconds. `new` and its shorthands are for literals and fail the build;
/// [`try_new`](Self::try_new) is for values read at run time.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Quota;
///
/// const API: Quota = Quota::per_minute(600).with_burst(50);
/// assert_eq!((API.amount(), API.period(), API.burst()), (600, Duration::from_secs(60), 50));
/// // One each five seconds is said by its name, never by `per_second(5)`, which is five a second.
/// assert_eq!(Quota::one_every(Duration::from_secs(5)).amount(), 1);
/// ```
///
/// ```compile_fail
/// const NOTHING: tollgate::Quota = tollgate::Quota::per_second(0);
/// # fn main() { let _ = NOTHING; }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    amount: u32,
    burst: u32,
    period_us: u64,
    /// What follows from the others, worked out once: the spans of one unit and of the burst.
    unit: Span,
    top: Span,
}

/// Whole microseconds, and a remainder in 1/amount of one. Ordered by value.
pub(crate) type Span = (u64, u64);

/// The first integer that a Lua number (a double) cannot tell from its neighbour.
pub(crate) const MAX_EXACT: u64 = 1 << 53;
const MAX_PERIOD_US: u64 = 10 * 365 * 86_400 * 1_000_000;

#[derive(Clone, Copy)]
enum Fault {
    ZeroAmount,
    ShortPeriod,
    LongPeriod,
    ZeroBurst,
    LongDrain,
    Product,
}

impl Fault {
    const fn text(self) -> &'static str {
        match self {
            Self::ZeroAmount => "quota amount must be at least 1",
            Self::ShortPeriod => "quota period must be at least 1 µs",
            Self::LongPeriod => "quota period must be at most 10 years (3650 days)",
            Self::ZeroBurst => "quota burst must be at least 1",
            Self::LongDrain => "quota burst takes too long to refill: burst × period / amount must be at most 10 years",
            Self::Product => "quota burst is too large: amount × burst must stay below 2^53",
        }
    }
}

impl Quota {
    /// `amount` units per `period`, with a burst of `amount`.
    ///
    /// # Panics
    ///
    /// When [`try_new`](Self::try_new) would fail. In a `const` this fails the build.
    #[must_use]
    pub const fn new(amount: u32, period: Duration) -> Self {
        match Self::checked(amount, period, amount) {
            Ok(quota) => quota,
            Err(fault) => panic!("{}", fault.text()),
        }
    }

    /// `amount` units per `period`, from values that are known only at run time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the amount is zero, the period is
    /// shorter than 1 µs or longer than 10 years, or amount² reaches 2⁵³.
    pub fn try_new(amount: u32, period: Duration) -> Result<Self, Error> {
        Self::checked(amount, period, amount).map_err(|fault| Self::error(fault, amount, period, amount))
    }

    /// `amount` units per second.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    #[must_use]
    pub const fn per_second(amount: u32) -> Self {
        Self::new(amount, Duration::from_secs(1))
    }

    /// `amount` units per minute.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    #[must_use]
    pub const fn per_minute(amount: u32) -> Self {
        Self::new(amount, Duration::from_secs(60))
    }

    /// `amount` units per hour.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    #[must_use]
    pub const fn per_hour(amount: u32) -> Self {
        Self::new(amount, Duration::from_secs(3_600))
    }

    /// `amount` units per day of 24 hours.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    #[must_use]
    pub const fn per_day(amount: u32) -> Self {
        Self::new(amount, Duration::from_secs(86_400))
    }

    /// One unit each `interval`.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    #[must_use]
    pub const fn one_every(interval: Duration) -> Self {
        Self::new(1, interval)
    }

    /// The same quota with another burst: what may be spent at once after a long rest.
    ///
    /// # Panics
    ///
    /// When [`try_with_burst`](Self::try_with_burst) would fail. In a `const` this fails the build.
    #[must_use]
    pub const fn with_burst(self, burst: u32) -> Self {
        match Self::checked(self.amount, self.period(), burst) {
            Ok(quota) => quota,
            Err(fault) => panic!("{}", fault.text()),
        }
    }

    /// The same quota with another burst, from a value that is known only at run time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the burst is zero, takes more than 10
    /// years to refill, or amount × burst reaches 2⁵³.
    pub fn try_with_burst(self, burst: u32) -> Result<Self, Error> {
        Self::checked(self.amount, self.period(), burst)
            .map_err(|fault| Self::error(fault, self.amount, self.period(), burst))
    }

    /// Units per period.
    #[must_use]
    pub const fn amount(&self) -> u32 {
        self.amount
    }

    /// The time in which `amount` units accrue.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_micros(self.period_us)
    }

    /// Units that may be spent at once after a long rest.
    #[must_use]
    pub const fn burst(&self) -> u32 {
        self.burst
    }

    const fn checked(amount: u32, period: Duration, burst: u32) -> Result<Self, Fault> {
        if amount == 0 {
            return Err(Fault::ZeroAmount);
        }
        if burst == 0 {
            return Err(Fault::ZeroBurst);
        }
        let period_us = period.as_micros();
        if period_us == 0 {
            return Err(Fault::ShortPeriod);
        }
        if period_us > MAX_PERIOD_US as u128 {
            return Err(Fault::LongPeriod);
        }
        if amount as u64 * burst as u64 >= MAX_EXACT {
            return Err(Fault::Product);
        }
        if period_us * burst as u128 / amount as u128 > MAX_PERIOD_US as u128 {
            return Err(Fault::LongDrain);
        }
        Ok(Self::of(amount, burst, period_us as u64))
    }

    const fn of(amount: u32, burst: u32, period_us: u64) -> Self {
        let n = amount as u64;
        let unit = (period_us / n, period_us % n);
        Self { amount, burst, period_us, unit, top: span(unit, n, burst as u64) }
    }

    fn error(fault: Fault, amount: u32, period: Duration, burst: u32) -> Error {
        let got = match fault {
            Fault::ZeroAmount => format!("got {amount}"),
            Fault::ShortPeriod | Fault::LongPeriod => format!("got {period:?}"),
            Fault::ZeroBurst => format!("got {burst}"),
            Fault::LongDrain => format!("got burst {burst} at {amount} per {period:?}"),
            Fault::Product => format!("got amount {amount} and burst {burst}"),
        };
        Error::config(format!("{}, {got}", fault.text()))
    }

    /// This quota shared out among `replicas`: what one of them may admit by itself.
    ///
    /// Whole shares divide the amount; where that leaves a remainder and `stretch` allows it, the
    /// period grows instead, so that the sum over the replicas is the quota.
    pub(crate) fn share(&self, replicas: u32, stretch: bool) -> Self {
        let burst = (self.burst / replicas).max(1);
        let stretched = if stretch && !self.amount.is_multiple_of(replicas) {
            let period = self.period().checked_mul(replicas);
            period.and_then(|period| Self::checked(self.amount, period, burst).ok())
        } else {
            None
        };
        stretched.unwrap_or_else(|| Self::of((self.amount / replicas).max(1), burst, self.period_us))
    }

    pub(crate) const fn amount_u64(&self) -> u64 {
        self.amount as u64
    }

    pub(crate) const fn burst_u64(&self) -> u64 {
        self.burst as u64
    }

    pub(crate) const fn period_us(&self) -> u64 {
        self.period_us
    }

    /// The time between two units, as a double: how a stored state tells whether it was written
    /// under this rate. Lua computes the same quotient, to the bit.
    pub(crate) fn pace(&self) -> f64 {
        self.period_us as f64 / f64::from(self.amount)
    }

    /// The time that `units` take to accrue: whole microseconds, and a remainder in 1/amount µs.
    pub(crate) const fn span(&self, units: u64) -> Span {
        if units == self.burst as u64 {
            return self.top;
        }
        span(self.unit, self.amount as u64, units)
    }

    /// Whether one request of `cost` can ever fit.
    pub(crate) fn admits(&self, cost: Cost) -> bool {
        cost.units() <= self.burst
    }
}

/// The span of `units` that take `unit` each. Divides only where a unit is no whole number of microseconds.
const fn span(unit: Span, n: u64, units: u64) -> Span {
    let (whole, part) = unit;
    let parts = part * units;
    if parts < n {
        return (whole * units, parts);
    }
    (whole * units + parts / n, parts % n)
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {:?}", self.amount, self.period())?;
        if self.burst != self.amount {
            write!(f, " with burst {}", self.burst)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_names_the_field_and_the_value() {
        let second = Duration::from_secs(1);
        let cases = [
            (Quota::try_new(0, second), "quota amount must be at least 1, got 0"),
            (Quota::try_new(1, Duration::ZERO), "quota period must be at least 1 µs, got 0ns"),
            (Quota::try_new(1, Duration::from_nanos(999)), "quota period must be at least 1 µs, got 999ns"),
            (
                Quota::try_new(1, Duration::from_secs(86_400 * 3_651)),
                "quota period must be at most 10 years (3650 days), got 315446400s",
            ),
            (Quota::per_second(5).try_with_burst(0), "quota burst must be at least 1, got 0"),
            (
                Quota::try_new(u32::MAX, second),
                "quota burst is too large: amount × burst must stay below 2^53, got amount 4294967295 and burst 4294967295",
            ),
            (
                Quota::per_day(1).try_with_burst(4_000),
                "quota burst takes too long to refill: burst × period / amount must be at most 10 years, got burst 4000 at 1 per 86400s",
            ),
        ];
        for (result, text) in cases {
            assert_eq!(result.unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn the_span_of_k_periods_is_exact() {
        for (amount, period_us) in [(3, 1_000_000), (1_000_003, 86_400_000_000), (10, 7_000_000), (1, 1)] {
            let quota = Quota::new(amount, Duration::from_micros(period_us)).with_burst(amount.min(1000));
            for units in 0..1_000_u64 {
                let (whole, part) = quota.span(units);
                assert!(part < u64::from(amount));
                let exact = u128::from(units) * u128::from(period_us);
                assert_eq!(u128::from(whole) * u128::from(amount) + u128::from(part), exact);
            }
        }
    }

    #[test]
    fn shares_add_up_to_the_quota_where_the_period_may_stretch() {
        let share = Quota::per_second(10).share(4, true);
        assert_eq!((share.amount(), share.period(), share.burst()), (10, Duration::from_secs(4), 2));
        let share = Quota::per_second(10).share(5, true);
        assert_eq!((share.amount(), share.period(), share.burst()), (2, Duration::from_secs(1), 2));
        let share = Quota::per_second(1).share(9, false);
        assert_eq!((share.amount(), share.burst()), (1, 1));
    }
}
