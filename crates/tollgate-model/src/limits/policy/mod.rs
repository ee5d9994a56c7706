//! A policy: its name, its quota and its algorithm, the part of a key that it meters, and the terms
//! of its lease.
//! Several policies that are checked together are a set: see `policy_set/`.

mod constructors;
mod leased;
mod marks;
mod metered;
pub(crate) mod numbers;
mod raw;
mod text;
mod validity;

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

#[cfg(feature = "calendar")]
use crate::calendar::{Periods, Schedule};
use crate::{
    Algorithm, Error, Lease, Quota,
    algorithm::{Buckets, LockTimes},
};
pub use raw::PolicyParts;
use validity::check;
pub(crate) use validity::is_name;

/// The most policies of a set. With more, one script call would block the Redis server for too
/// long.
pub const MAX_POLICIES: usize = 8;

/// Combines a name, a [`Quota`] and the [`Algorithm`] that meters it.
///
/// Counters belong to the name of the policy and the [`Key`](crate::Key). Two limiters on the same
/// store that use the same policy name for the same key therefore spend from one counter. A policy
/// meters the whole key by default. It may meter an outer level of a nested key instead
/// ([`at_level`](Self::at_level)), or one of several branches ([`at_branch`](Self::at_branch)).
///
/// A name has 1 to 64 characters of `A-Z a-z 0-9 - _ . /`. Clients see it in the `RateLimit`
/// response headers, unless the policy is [hidden](Self::hidden).
///
/// The constructors are `const` and panic, so that a wrong literal fails the build. Use
/// [`try_new`](Self::try_new) for values that are known only at run time.
///
/// ```
/// use tollgate::{Algorithm, Policy, Quota};
///
/// const BURST: Policy = Policy::token_bucket("burst", Quota::per_second(20).with_burst(40));
/// assert_eq!(BURST.name(), "burst");
///
/// let daily = Policy::try_new("daily", Algorithm::FixedWindow, Quota::per_day(50_000))?;
/// assert_eq!(daily.algorithm(), Algorithm::FixedWindow);
///
/// let error = Policy::try_new("two words", Algorithm::FixedWindow, Quota::per_day(1)).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"policy name must be 1 to 64 characters of A-Z a-z 0-9 - _ . /, got "two words""#,
/// );
/// # Ok::<(), tollgate::Error>(())
/// ```
#[doc(alias = "bucket")]
#[doc(alias = "limit")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Policy {
    // Fields are compared in this order. Tenants have one policy with many quotas, so the name
    // comes last.
    quota: Quota,
    algorithm: Algorithm,
    /// The branch of the key that is metered, counted from 0, in the upper four bits. The number of
    /// its levels that are metered in the lower ones; 0 for the whole branch.
    reach: u8,
    lease: Terms,
    is_ranked: bool,
    is_hidden: bool,
    name: Name,
}

/// The bits of the number of levels in the reach.
const LEVELS: u8 = 15;

/// The number of integers of a leased policy's reading.
pub const LEASED_READING: usize = 4;

impl Policy {
    /// Creates a policy from values that are known only at run time.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when the name is not allowed, or
    /// when the quota does not fit the algorithm. The constructor of each algorithm lists its
    /// conditions under "Panics".
    pub fn try_new(
        name: impl Into<String>,
        algorithm: Algorithm,
        quota: Quota,
    ) -> Result<Self, Error> {
        let name = name.into();
        match check(name.as_bytes(), algorithm, quota) {
            Ok(()) => Ok(Self::of(Name::shared(name), algorithm, quota)),
            Err(unmet) => Err(unmet.error(&name, algorithm, quota)),
        }
    }

    /// Returns this policy with another quota: the same name, algorithm, level, branch and rank.
    ///
    /// With an amount of 0 the policy blocks: see [`Quota::is_blocked`].
    ///
    /// Use it for quotas that differ from tenant to tenant. The name is shared and not copied, so a
    /// set of one such policy takes less than 230 bytes. Counters belong to the name: units that a
    /// key has spent under one quota stay spent under the other.
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// const API: Policy = Policy::token_bucket("api", Quota::per_second(10));
    /// let acme = API.with_quota(Quota::per_second(500))?;
    /// assert_eq!((acme.name(), acme.quota()), ("api", Quota::per_second(500)));
    ///
    /// let day = Policy::fixed_window("day", Quota::per_day(100));
    /// let error = day.with_quota(Quota::per_day(100).with_burst(200)).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "policy quota burst must equal its amount: only the bucket algorithms have a burst, \
    ///      got 100 per 86400s with burst 200 in policy day",
    /// );
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when the quota does not fit the
    /// algorithm, or is too small for the [lease](Self::leased) of the policy. The constructor of
    /// each algorithm lists its conditions under "Panics".
    pub fn with_quota(&self, quota: Quota) -> Result<Self, Error> {
        match check(self.name().as_bytes(), self.algorithm, quota) {
            Ok(()) => {
                let policy = Self {
                    quota,
                    ..self.clone()
                };
                match self.lease() {
                    Some(lease) => policy.try_leased(lease),
                    None => Ok(policy),
                }
            }
            Err(unmet) => Err(unmet.error(self.name(), self.algorithm, quota)),
        }
    }

    /// Returns this calendar window with periods that begin with a customer: at `anchor`, and after
    /// each unit of the calendar from there on, also before it.
    ///
    /// A month that has no such day ends on its last day, and the next one that has it begins on it
    /// again. A local time that the clocks show twice is the first one. One that they skip is moved
    /// by as much as they are put forward (RFC 5545). With a quota of several units, such as 30
    /// days in a window of days, each period has so many.
    ///
    /// The periods of a new anchor are in force at once. What was spent in a period that had not
    /// ended where the new one begins counts in the new one. So between two neighbouring starts of
    /// both anchors at most one quota is admitted, and a move renews nothing:
    /// [`reset`][`Limiter::reset`] does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{CalendarUnit, Limiter, MemoryStore, Policy, Quota, store::Clock};
    ///
    /// let lisbon = "Europe/Lisbon".parse()?;
    /// let plan = Policy::calendar_window("plan", 1, CalendarUnit::Month, lisbon)
    ///     .with_anchor("2026-01-31T09:30".parse()?)?;
    ///
    /// // 2026-02-28 09:29:59 in Lisbon. February has no 31st.
    /// let clock = Clock::manual(1_772_270_999_000_000);
    /// let limiter = Limiter::new(MemoryStore::builder().clock(clock.clone()).build(), plan);
    /// assert!(limiter.check("acme").await?.is_allowed());
    /// assert_eq!(limiter.check("acme").await?.retry_after(), Some(Duration::from_secs(1)));
    ///
    /// let trial = Policy::calendar_window("trial", 100, CalendarUnit::Day, lisbon)
    ///     .with_anchor("2026-01-17".parse()?)?
    ///     .with_quota(Quota::new(100, Duration::from_secs(30 * 86_400)))?;
    /// assert_eq!(trial.to_string(), "trial=100/30d, calendar_window(day, Europe/Lisbon, 2026-01-17T00:00)");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when the policy is no calendar
    /// window.
    ///
    /// [`Limiter::reset`]: https://docs.rs/tollgate/latest/tollgate/struct.Limiter.html#method.reset
    #[cfg(feature = "calendar")]
    pub fn with_anchor(&self, anchor: crate::Anchor) -> Result<Self, Error> {
        match self.algorithm {
            Algorithm::CalendarWindow { unit, zone, .. } => Ok(Self {
                algorithm: Algorithm::CalendarWindow {
                    unit,
                    zone,
                    anchor: Some(anchor),
                },
                ..self.clone()
            }),
            other => Err(Error::config(format!(
                "policy anchor must be that of a calendar window, got {anchor} in policy {} of {other}",
                self.name()
            ))),
        }
    }

    pub(crate) fn blocked(&self) -> Self {
        Self {
            quota: self.quota.blocked(),
            ..self.clone()
        }
    }

    /// Creates a policy from literals.
    #[track_caller]
    const fn literal(name: &'static str, algorithm: Algorithm, quota: Quota) -> Self {
        if let Err(unmet) = check(name.as_bytes(), algorithm, quota) {
            panic!("{}", unmet.text);
        }
        Self::of(Name::literal(name), algorithm, quota)
    }

    const fn of(name: Name, algorithm: Algorithm, quota: Quota) -> Self {
        Self {
            quota,
            algorithm,
            reach: 0,
            lease: Terms::NONE,
            is_ranked: true,
            is_hidden: false,
            name,
        }
    }

    /// Returns the name, as it appears in Redis keys and in the `RateLimit` headers.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.text()
    }

    /// Returns the algorithm that meters the quota.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// Returns the most units that can be had at once, and the time in which so many accrue: the
    /// `q` and the `w` of the field `RateLimit-Policy`.
    ///
    /// With `q` as the amount, a bucket with a greater burst would have `r=8` beside `q=5`. A burst
    /// below the amount leaves the amount and the period as they are: `r` is never above `q` then,
    /// and the shorter time might be less than a second.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Policy, Quota};
    ///
    /// let burst = Policy::token_bucket("burst", Quota::per_second(5).with_burst(7));
    /// assert_eq!(burst.units_and_window(), (7, Duration::from_millis(1_400)));
    /// let refills = Policy::interval_bucket("refills", Quota::per_second(5).with_burst(7));
    /// assert_eq!(refills.units_and_window(), (7, Duration::from_secs(2)));
    /// let low = Policy::token_bucket("low", Quota::per_second(5).with_burst(1));
    /// assert_eq!(low.units_and_window(), (5, Duration::from_secs(1)));
    /// ```
    #[must_use]
    pub fn units_and_window(&self) -> (u64, Duration) {
        let (amount, burst) = (self.quota.amount(), self.quota.burst());
        let period = self.quota.period();
        if burst <= amount {
            return (amount, period);
        }
        let window = match self.algorithm.is_continuous() {
            false => u128::from(burst.div_ceil(amount)) * period.as_nanos(),
            true => (u128::from(burst) * period.as_nanos()).div_ceil(u128::from(amount)),
        };
        (
            burst,
            u64::try_from(window).map_or(Duration::MAX, Duration::from_nanos),
        )
    }

    #[inline]
    pub(crate) fn quota_ref(&self) -> &Quota {
        &self.quota
    }

    /// Returns the width and the number of the sub-windows of [`Algorithm::SlidingBuckets`].
    pub(crate) fn buckets(&self) -> Buckets {
        let count = match self.algorithm {
            Algorithm::SlidingBuckets { buckets } => u64::from(buckets),
            _ => 1,
        };
        Buckets {
            width_us: self.quota.period_us().div_ceil(count),
            count,
        }
    }

    pub(crate) fn lock_times(&self) -> LockTimes {
        match self.algorithm {
            Algorithm::Lockout { first, longest } => LockTimes {
                first_us: first.as_micros() as u64,
                longest_us: longest.as_micros() as u64,
            },
            // No other algorithm has the state that asks for them.
            _ => LockTimes {
                first_us: 1,
                longest_us: 1,
            },
        }
    }

    /// Returns the periods around a time. Only a calendar window has them.
    #[cfg(feature = "calendar")]
    pub(crate) fn periods(&self, now_us: u64) -> Periods {
        match self.algorithm {
            Algorithm::CalendarWindow { unit, zone, anchor } => {
                let every = self.quota.period_us() / unit.nominal().as_micros() as u64;
                let schedule = Schedule {
                    unit,
                    every: every as u16,
                    anchor,
                };
                zone.periods(schedule, now_us)
            }
            // No other algorithm has the state that asks for it.
            _ => Periods::default(),
        }
    }

    /// Returns the policy that each of `replicas` enforces alone during an outage: its share of the
    /// quota, not leased.
    pub(crate) fn share(&self, replicas: u32) -> Self {
        let mut quota = self.quota.share(replicas, self.algorithm.is_continuous());
        if !self.algorithm.has_burst() {
            quota = quota.with_burst(quota.amount());
        }
        Self {
            quota,
            lease: Terms::NONE,
            ..self.clone()
        }
    }

    /// Returns `true` when the second integer of a reading is always zero, so that the reply to a check
    /// without ceilings leaves it out.
    pub(crate) fn is_short(&self) -> bool {
        let quota = &self.quota;
        !self.is_leased()
            && self.algorithm.facts().is_parted
            && quota.period_us().is_multiple_of(quota.amount())
    }

    /// Returns the interval that shows by which quota a state was stored, in microseconds: the period
    /// of a fixed window or of one from the first hit, and the
    /// [emission interval](Quota::emission_interval) of any other.
    pub(crate) fn interval_us(&self) -> f64 {
        if self.algorithm.is_timed() {
            self.quota.period_us() as f64
        } else {
            self.quota.emission_interval()
        }
    }

    /// Returns this policy with another period.
    pub(crate) fn with_period_us(&self, period_us: u64) -> Self {
        Self {
            quota: self.quota.with_period_us(period_us),
            ..self.clone()
        }
    }

    /// Returns a number that stands for the name, the level and the algorithm in the name of a
    /// reservation. It is the same in all processes.
    pub(crate) fn fingerprint(&self) -> u64 {
        let tag = self
            .algorithm
            .tag()
            .bytes()
            .fold(u64::from(self.depth()), |all, byte| {
                all << 8 | u64::from(byte)
            });
        (self.name.whole_hash() ^ tag).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Reads the part of a key that a policy meters, and the lease.
impl Policy {
    /// Returns the number of levels that the policy meters, and `None` when it meters the whole
    /// key.
    #[must_use]
    pub fn level(&self) -> Option<u8> {
        (self.depth() > 0).then_some(self.depth())
    }

    /// Returns the branch of a key that the policy meters, from 1.
    #[must_use]
    pub fn branch(&self) -> u8 {
        (self.reach >> 4) + 1
    }

    /// Returns the number of levels that are metered; 0 for the whole branch.
    #[inline]
    const fn depth(&self) -> u8 {
        self.reach & LEVELS
    }

    /// Returns the terms on which the policy is leased, and `None` when it is not.
    #[must_use]
    pub fn lease(&self) -> Option<Lease> {
        self.lease.lease()
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}, {:?}", self.name(), self.algorithm, self.quota)?;
        if let Some(level) = self.level() {
            write!(f, ", level {level}")?;
        }
        if self.branch() > 1 {
            write!(f, ", branch {}", self.branch())?;
        }
        f.write_str(if self.is_leased() { ", leased" } else { "" })?;
        f.write_str(if self.is_ranked { "" } else { ", unranked" })?;
        f.write_str(if self.is_hidden { ", hidden" } else { "" })
    }
}

/// The name of a policy, which several policies may share.
///
/// The hash has 32 bits and stands in each variant, so that it shares a word with the discriminant.
/// A name takes three words and not four, because a service may have a policy for each of its
/// tenants.
#[derive(Clone)]
enum Name {
    Literal { hash: u32, text: &'static str },
    Shared { hash: u32, text: Arc<str> },
}

impl Name {
    const fn literal(text: &'static str) -> Self {
        Self::Literal {
            hash: upper(hash_name(text.as_bytes())),
            text,
        }
    }

    fn shared(text: String) -> Self {
        Self::Shared {
            hash: upper(hash_name(text.as_bytes())),
            text: text.into(),
        }
    }

    #[inline]
    fn text(&self) -> &str {
        match self {
            Self::Literal { text, .. } => text,
            Self::Shared { text, .. } => text,
        }
    }

    /// Returns the upper half of the hash. It is computed once, because every check in process
    /// needs it.
    #[inline]
    fn upper_hash(&self) -> u32 {
        match self {
            Self::Literal { hash, .. } | Self::Shared { hash, .. } => *hash,
        }
    }

    /// Computes the whole hash. It is the same in all processes.
    fn whole_hash(&self) -> u64 {
        hash_name(self.text().as_bytes())
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.upper_hash() == other.upper_hash() && self.text() == other.text()
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

/// Hashes a name by repeated multiplication. That is enough, because names are short and clients do
/// not choose them.
#[must_use]
pub const fn hash_name(name: &[u8]) -> u64 {
    let (mut hash, mut at) = (0, 0);
    while at < name.len() {
        hash = (hash ^ name[at] as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        at += 1;
    }
    hash
}

/// Returns the upper half of a hash. A multiplication mixes it better than the lower one.
const fn upper(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The terms of a valid policy in three bytes, so that a policy is as small as without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    /// Milliseconds. Two bytes fit where a number of two bytes, which is aligned, does not.
    generation_ms: [u8; 2],
    /// Zero when the policy is not leased.
    share: u8,
}

impl Terms {
    /// The terms of a policy that is not leased.
    const NONE: Self = Self {
        generation_ms: [0; 2],
        share: 0,
    };

    pub(crate) const fn new(generation_ms: u16, share: u8) -> Self {
        Self {
            generation_ms: generation_ms.to_be_bytes(),
            share,
        }
    }

    const fn is_leased(self) -> bool {
        self.share > 0
    }

    fn lease(self) -> Option<Lease> {
        self.is_leased().then(|| {
            let generation = Duration::from_millis(u16::from_be_bytes(self.generation_ms).into());
            Lease::new().generation(generation).share(self.share)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of reservations contain the hash, and replicas of two versions read them.
    #[test]
    fn the_whole_hash_is_the_same_in_all_versions() {
        assert_eq!(Name::literal("api").whole_hash(), 0xe998_85f5_6c47_e380);
    }
}
