//! A quota: amount, period and burst, their bounds, and the arithmetic of times in which units
//! accrue.
//! Text is in `text/`. How a quota is metered is in `algorithm/`.

mod text;

use std::{fmt, time::Duration};
pub(crate) use text::write_length;

use crate::Error;

/// Allows `amount` units per `period`, with up to `burst` units at once.
///
/// The burst equals the amount unless [`with_burst`](Self::with_burst) sets another. Only the
/// bucket algorithms have a burst of their own: the window algorithms admit the amount.
///
/// An amount of 0 *blocks*: every check is denied, without a wait and without a call to the store. See
/// [`Decision::is_blocked`](crate::Decision::is_blocked). The burst of such a quota is always 0.
///
/// The amount and the burst are at most 999 999 999 999 999 (10¹⁵ − 1), the greatest integer of an
/// HTTP header field (RFC 9651, section 3.3.1). Some algorithms have a lower limit, see
/// [`Algorithm`](crate::Algorithm).
///
/// Times are whole microseconds; a fraction of a microsecond is cut off. [`new`](Self::new) and its
/// shorthands are for literals: a wrong literal in a `const` fails the build.
/// [`try_new`](Self::try_new) is for values that are known only at run time.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Quota;
///
/// const API: Quota = Quota::per_minute(600).with_burst(50);
/// assert_eq!((API.amount(), API.period(), API.burst()), (600, Duration::from_secs(60), 50));
///
/// // `per_second(5)` is five units per second. One unit every five seconds is `one_every`.
/// assert_eq!(Quota::one_every(Duration::from_secs(5)).amount(), 1);
///
/// // The text form, for configuration files.
/// assert_eq!("600/min burst 50".parse::<Quota>().unwrap(), API);
///
/// // A terabyte per month of 30 days.
/// const TRAFFIC: Quota = Quota::new(1_000_000_000_000, Duration::from_secs(30 * 86_400));
/// assert_eq!(TRAFFIC.burst(), 1_000_000_000_000);
/// ```
///
/// ```compile_fail
/// const NEVER: tollgate::Quota = tollgate::Quota::per_second(10).with_burst(0);
/// # fn main() { let _ = NEVER; }
/// ```
#[doc(alias = "rate")]
#[doc(alias = "limit")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    amount: u64,
    burst: u64,
    period_us: u64,
    /// The whole microseconds in which one unit and the whole burst accrue. Computed once, because
    /// every check needs them. The remainders need no division, so they are not stored: a service
    /// may have a quota for each of its tenants.
    unit_us: u64,
    fill_us: u64,
}

/// A time: whole microseconds, and a remainder in 1/amount µs. Tuples compare as the times do.
pub type Span = (u64, u64);

/// 2⁵³: from here on, a Lua number (a double) cannot represent every integer.
pub const MAX_EXACT: u64 = 1 << 53;

/// The greatest amount and the greatest burst: an integer of a structured header field has at most
/// 15 digits (RFC 9651, section 3.3.1). The sum of nine such numbers is below [`MAX_EXACT`].
pub(crate) const MAX_AMOUNT: u64 = 999_999_999_999_999;

/// The longest period: 10 years of 365 days.
pub(crate) const MAX_PERIOD_US: u64 = 10 * 365 * 86_400 * 1_000_000;

/// The condition that a quota does not meet.
#[derive(Clone, Copy)]
struct InvalidQuota {
    text: &'static str,
    of: QuotaField,
}

/// Selects the value that an error shows.
#[derive(Clone, Copy)]
enum QuotaField {
    Amount,
    Period,
    Burst,
    Drain,
}

impl Quota {
    /// The greatest amount, and the greatest burst.
    pub const MAX_AMOUNT: u64 = MAX_AMOUNT;

    /// Allows `amount` units per `period`, with a burst of `amount`.
    ///
    /// # Panics
    ///
    /// Panics when [`try_new`](Self::try_new) would fail. In a `const` this fails the build.
    #[must_use]
    #[track_caller]
    pub const fn new(amount: u64, period: Duration) -> Self {
        match Self::checked(amount, period, amount) {
            Ok(quota) => quota,
            Err(unmet) => panic!("{}", unmet.text),
        }
    }

    /// Allows `amount` units per `period`, for values that are known only at run time.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when the amount is above 999 999
    /// 999 999 999, or when the period is shorter than 1 µs or longer than 10 years (3650 days).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// let error = Quota::try_new(1, Duration::ZERO).unwrap_err();
    /// assert_eq!(error.to_string(), "quota period must be at least 1 µs, got 0ns");
    /// assert!(Quota::try_new(0, Duration::from_secs(1))?.is_blocked());
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn try_new(amount: u64, period: Duration) -> Result<Self, Error> {
        Self::checked(amount, period, amount)
            .map_err(|unmet| Self::error(unmet, amount, period, amount))
    }

    /// Allows `amount` units per second.
    ///
    /// Use [`one_every`](Self::one_every) for fewer than one unit per second.
    ///
    /// # Panics
    ///
    /// Panics when [`try_new`](Self::try_new) would fail. In a `const` this fails the build.
    #[must_use]
    #[track_caller]
    pub const fn per_second(amount: u64) -> Self {
        Self::new(amount, Duration::from_secs(1))
    }

    /// Allows `amount` units per minute.
    ///
    /// # Panics
    ///
    /// Panics when [`try_new`](Self::try_new) would fail. In a `const` this fails the build.
    #[must_use]
    #[track_caller]
    pub const fn per_minute(amount: u64) -> Self {
        Self::new(amount, Duration::from_secs(60))
    }

    /// Allows `amount` units per hour.
    ///
    /// # Panics
    ///
    /// Panics when [`try_new`](Self::try_new) would fail. In a `const` this fails the build.
    #[must_use]
    #[track_caller]
    pub const fn per_hour(amount: u64) -> Self {
        Self::new(amount, Duration::from_secs(3_600))
    }

    /// Allows `amount` units per day of 24 hours.
    ///
    /// # Panics
    ///
    /// Panics when [`try_new`](Self::try_new) would fail. In a `const` this fails the build.
    #[must_use]
    #[track_caller]
    pub const fn per_day(amount: u64) -> Self {
        Self::new(amount, Duration::from_secs(86_400))
    }

    /// Allows one unit every `interval`.
    ///
    /// # Panics
    ///
    /// Panics when [`try_new`](Self::try_new) would fail. In a `const` this fails the build.
    #[must_use]
    #[track_caller]
    pub const fn one_every(interval: Duration) -> Self {
        Self::new(1, interval)
    }

    /// Sets the burst: the units that can be spent at once after a rest. A
    /// [blocked](Self::is_blocked) quota stays blocked.
    ///
    /// In a leaky bucket, the burst is the most units in the queue: see
    /// [`CheckBuilder::wait`].
    ///
    /// # Panics
    ///
    /// Panics when [`try_with_burst`](Self::try_with_burst) would fail. In a `const` this fails the
    /// build.
    ///
    /// [`CheckBuilder::wait`]: https://docs.rs/tollgate/latest/tollgate/limiter/struct.CheckBuilder.html#method.wait
    #[must_use]
    #[track_caller]
    pub const fn with_burst(self, burst: u64) -> Self {
        match Self::checked(self.amount, self.period(), burst) {
            Ok(quota) => quota,
            Err(unmet) => panic!("{}", unmet.text),
        }
    }

    /// Sets the burst, for a value that is known only at run time.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when the burst is 0 and the
    /// amount is not, when the burst is above 999 999 999 999 999, and when it takes more than 10
    /// years to refill.
    pub fn try_with_burst(self, burst: u64) -> Result<Self, Error> {
        Self::checked(self.amount, self.period(), burst)
            .map_err(|unmet| Self::error(unmet, self.amount, self.period(), burst))
    }

    /// Lengthens the period by `margin`, to leave room for delays on the way to a server that
    /// counts arrivals.
    ///
    /// Use it for calls that leave at the rate of a server's own limit:
    /// `Quota::per_minute(100).with_margin(margin)` for a server that allows 100 in any minute.
    /// Without a margin, a call that is late on its way arrives closer to the next one, and the
    /// server may see more than 100 in a minute. [The guide][guide] shows how to choose the margin.
    ///
    /// With a [leaky bucket](crate::Algorithm::LeakyBucket) or a [sliding
    /// log](crate::Algorithm::SlidingLog), at most `amount` units then arrive in any of the
    /// original periods, while the longest and the shortest time on the way differ by at most
    /// `margin`. The units of one request leave a leaky bucket together, so with costs up to c, up
    /// to `amount + c - 1` units arrive. For a strict limit, use a sliding log, or an amount that
    /// is smaller by c − 1.
    ///
    /// [guide]: https://docs.rs/tollgate/latest/tollgate/guide/waiting_and_outgoing_calls/index.html#limits-that-count-arrivals
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Quota;
    ///
    /// const CALLS: Quota = Quota::per_minute(100).with_margin(Duration::from_millis(1_800));
    /// assert_eq!((CALLS.amount(), CALLS.period()), (100, Duration::from_millis(61_800)));
    /// ```
    ///
    /// # Panics
    ///
    /// Panics when [`try_with_margin`](Self::try_with_margin) would fail. In a `const` this fails
    /// the build.
    #[must_use]
    #[track_caller]
    pub const fn with_margin(self, margin: Duration) -> Self {
        match Self::checked(
            self.amount,
            self.period().saturating_add(margin),
            self.burst,
        ) {
            Ok(quota) => quota,
            Err(unmet) => panic!("{}", unmet.text),
        }
    }

    /// Lengthens the period by `margin`, for a value that is known only at run time.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when the period becomes longer
    /// than 10 years, or when the burst takes more than 10 years to refill.
    pub fn try_with_margin(self, margin: Duration) -> Result<Self, Error> {
        let period = self.period().saturating_add(margin);
        Self::checked(self.amount, period, self.burst)
            .map_err(|unmet| Self::error(unmet, self.amount, period, self.burst))
    }

    /// Returns the units per period.
    #[must_use]
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// Returns the time in which `amount` units accrue.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_micros(self.period_us)
    }

    /// Returns the units that can be spent at once after a rest.
    #[must_use]
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// Returns whether the amount is 0, so that every check is denied.
    #[must_use]
    pub const fn is_blocked(&self) -> bool {
        self.amount == 0
    }

    pub(crate) const fn blocked(self) -> Self {
        Self::of(0, 0, self.period_us)
    }

    const fn checked(amount: u64, period: Duration, burst: u64) -> Result<Self, InvalidQuota> {
        let period_us = period.as_micros();
        let (text, of) = if amount > MAX_AMOUNT {
            (
                "quota amount must be at most 999999999999999",
                QuotaField::Amount,
            )
        } else if burst == 0 && amount > 0 {
            ("quota burst must be at least 1", QuotaField::Burst)
        } else if burst > MAX_AMOUNT {
            (
                "quota burst must be at most 999999999999999",
                QuotaField::Burst,
            )
        } else if period_us == 0 {
            ("quota period must be at least 1 µs", QuotaField::Period)
        } else if period_us > MAX_PERIOD_US as u128 {
            (
                "quota period must be at most 10 years (3650 days)",
                QuotaField::Period,
            )
        } else if amount == 0 {
            return Ok(Self::of(0, 0, period_us as u64));
        } else if period_us * burst as u128 / amount as u128 > MAX_PERIOD_US as u128 {
            (
                "quota burst takes too long to refill: burst × period / amount must be at most 10 years",
                QuotaField::Drain,
            )
        } else {
            return Ok(Self::of(amount, burst, period_us as u64));
        };
        Err(InvalidQuota { text, of })
    }

    const fn of(amount: u64, burst: u64, period_us: u64) -> Self {
        if amount == 0 {
            // No algorithm sees a quota that blocks.
            return Self {
                amount,
                burst,
                period_us,
                unit_us: 0,
                fill_us: 0,
            };
        }
        let unit = (period_us / amount, period_us % amount);
        Self {
            amount,
            burst,
            period_us,
            unit_us: unit.0,
            fill_us: span(unit, amount, burst).0,
        }
    }

    fn error(unmet: InvalidQuota, amount: u64, period: Duration, burst: u64) -> Error {
        let got = match unmet.of {
            QuotaField::Amount => format!("{amount}"),
            QuotaField::Period => format!("{period:?}"),
            QuotaField::Burst => format!("{burst}"),
            QuotaField::Drain => format!("burst {burst} at {amount} per {period:?}"),
        };
        Error::config(format!("{}, got {got}", unmet.text))
    }

    /// Returns the share of this quota that each of `replicas` may admit alone.
    ///
    /// The amount is divided where it divides evenly. Otherwise, when `stretch` is set, the period
    /// is multiplied, so that the shares add up to the quota. Each share is at least one unit,
    /// unless the quota blocks.
    pub(crate) fn share(&self, replicas: u32, stretch: bool) -> Self {
        if self.is_blocked() {
            return *self;
        }
        let burst = (self.burst / u64::from(replicas)).max(1);
        let stretched = if stretch && !self.amount.is_multiple_of(replicas.into()) {
            let period = self.period().checked_mul(replicas);
            period.and_then(|period| Self::checked(self.amount, period, burst).ok())
        } else {
            None
        };
        stretched.unwrap_or_else(|| {
            Self::of(
                (self.amount / u64::from(replicas)).max(1),
                burst,
                self.period_us,
            )
        })
    }

    pub(crate) const fn period_us(&self) -> u64 {
        self.period_us
    }

    /// Returns this quota with another period, for a window: the rate is not computed anew.
    pub(crate) const fn with_period_us(self, period_us: u64) -> Self {
        Self { period_us, ..self }
    }

    /// Returns the emission interval, the time between two units, in microseconds as a double. A
    /// stored token bucket holds it, to show under which rate it was written. Lua computes exactly the same quotient.
    pub(crate) fn emission_interval(&self) -> f64 {
        self.period_us as f64 / self.amount as f64
    }

    /// Returns the time in which `units` accrue.
    #[inline]
    pub(crate) const fn span(&self, units: u64) -> Span {
        if units == self.burst {
            // The product may be too large, but the difference is below the amount: it is right
            // modulo 2⁶⁴.
            let product = self.period_us.wrapping_mul(units);
            return (
                self.fill_us,
                product.wrapping_sub(self.fill_us.wrapping_mul(self.amount)),
            );
        }
        span(
            (self.unit_us, self.period_us - self.unit_us * self.amount),
            self.amount,
            units,
        )
    }
}

/// Returns the time of `units` that take `unit` each. It divides only when a unit is not a whole
/// number of microseconds.
const fn span(unit: Span, n: u64, units: u64) -> Span {
    let (whole, part) = unit;
    match part.checked_mul(units) {
        Some(parts) if parts < n => (whole * units, parts),
        Some(parts) => (whole * units + parts / n, parts % n),
        None => {
            let (parts, n) = (part as u128 * units as u128, n as u128);
            (whole * units + (parts / n) as u64, (parts % n) as u64)
        }
    }
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

/// Reads the times of a quota.
pub trait QuotaParts: Sized {
    /// Returns the period in microseconds.
    fn period_us(&self) -> u64;

    /// Returns the time in which `units` accrue: whole microseconds, and parts of one as large as the amount.
    fn span(&self, units: u64) -> Span;
}

impl QuotaParts for Quota {
    #[inline]
    fn period_us(&self) -> u64 {
        Self::period_us(self)
    }

    #[inline]
    fn span(&self, units: u64) -> Span {
        Self::span(self, units)
    }
}

#[cfg(test)]
mod tests;
