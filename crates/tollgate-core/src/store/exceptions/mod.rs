//! Exceptions: another quota for one key of a limiter, or a fresh start, which an operator grants until an end.
//! See `list.rs` for how a store keeps them, and `in_force.rs` for how a limiter applies them.

mod in_force;
mod list;

use std::{fmt, str::FromStr, time::Duration};

use tollgate_model::raw::{KeyParts, PolicyParts};

pub use in_force::{ExceptionsInForce, WeakExceptions};
pub use list::{ExceptionCall, ExceptionList, ExceptionReply};

use crate::{Error, Key, Policy, PolicySet, Quota, clock::micros};

/// Another quota of a policy for one key, until an end. An author grants it for a reason.
///
/// The key is that which the policy meters: for a policy [at level](Policy::at_level) 1, a key of one
/// level, and for a policy of a [branch](Policy::at_branch), the key of that branch. What the key has
/// spent stays spent. There is one exception at most for a policy and a key of a limiter; another one
/// replaces it. A [fresh start](ExceptionChange::FreshStart) stands beside it.
///
/// [`Limiter::grant_exception`](crate::Limiter::grant_exception) grants it, and so does the command
/// `tollgate except`. `Display` writes the line that stands in the store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use std::time::Duration;
/// use tollgate::{Limiter, MemoryStore, Policy, Quota, store::{Exception, ExceptionChange}};
///
/// let limiter = Limiter::builder(MemoryStore::new())
///     .policies(Policy::fixed_window("daily", Quota::per_day(100)))
///     .published()
///     .build();
/// let two_hours = Duration::from_secs(7_200);
/// let exception = Exception::new("daily", "acme", ExceptionChange::Factor(2.5), two_hours)
///     .by("ann")
///     .because("imports its archive");
/// limiter.grant_exception(exception).await?;
/// assert_eq!(limiter.check("acme").await?.state("daily").unwrap().remaining(), 249);
/// assert_eq!(limiter.check("other").await?.state("daily").unwrap().remaining(), 99);
///
/// limiter.withdraw_exception("daily", "acme").await?;
/// assert_eq!(limiter.check("acme").await?.state("daily").unwrap().remaining(), 98);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq)]
pub struct Exception {
    limiter: String,
    policy: String,
    key: String,
    change: ExceptionChange,
    author: String,
    reason: String,
    /// Microseconds since the Unix epoch, by the clock of the store. 0 before it is granted.
    begins_us: u64,
    ends_us: u64,
}

/// The change that an exception makes to the quota of a policy.
///
/// ```
/// use tollgate::{Policy, Quota, store::ExceptionChange};
///
/// let policy = Policy::token_bucket("api", Quota::per_second(10).with_burst(40));
/// let changed = ExceptionChange::Factor(0.5).of(&policy)?;
/// assert_eq!(changed.quota(), Quota::per_second(5).with_burst(20));
/// let error = ExceptionChange::Factor(1e9).of(&policy).unwrap_err();
/// assert!(error.to_string().starts_with("factor of an exception must be "));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ExceptionChange {
    /// This quota takes the place of that of the policy.
    Quota(Quota),
    /// The amount and the burst are multiplied, and rounded to whole units, at least one. The factor is
    /// above 0 and at most 1 000.
    Factor(f64),
    /// Forgets, once, all that the policy has counted of the key. The quota stays.
    ///
    /// The state is removed once, at the grant. A process that has denied the key may go on denying it
    /// for up to 1 s, as after a [reset](crate::Limiter::reset). Until its end, the exception says who
    /// did so, and why; nothing comes back at the end, and it cannot be withdrawn.
    FreshStart,
}

/// The greatest factor.
const MAX_FACTOR: f64 = 1_000.0;

/// The most characters of an author, of a reason, and of any other text.
const MAX_AUTHOR: usize = 64;
const MAX_REASON: usize = 200;
const MAX_TEXT: usize = 512;

/// Separates the parts of a line, and of a name.
const PART: char = '\t';

impl Exception {
    /// The shortest and the longest time for which an exception is granted.
    pub const MIN: Duration = Duration::from_secs(1);
    /// The longest time for which an exception is granted: 366 days.
    pub const MAX: Duration = Duration::from_secs(366 * 86_400);

    /// Creates an exception that lasts so long from the moment on at which the store takes it.
    #[must_use]
    pub fn new(
        policy: impl Into<String>,
        key: impl Into<Key>,
        change: ExceptionChange,
        lasts: Duration,
    ) -> Self {
        Self {
            limiter: String::new(),
            policy: policy.into(),
            key: key.into().encoded().to_owned(),
            change,
            author: String::new(),
            reason: String::new(),
            begins_us: 0,
            ends_us: micros(lasts),
        }
    }

    /// Sets who grants the exception: 1 to 64 characters.
    #[must_use]
    pub fn by(mut self, author: impl Into<String>) -> Self {
        self.author = author.into();
        self
    }

    /// Sets why it is granted: 1 to 200 characters.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Sets the key by its [encoded](Key::encoded) text, as commands print it.
    #[must_use]
    pub fn at_key(mut self, encoded: impl Into<String>) -> Self {
        self.key = encoded.into();
        self
    }

    /// Sets the name of the limiter. [`Limiter::grant_exception`](crate::Limiter::grant_exception) does
    /// so itself.
    #[must_use]
    pub fn at_limiter(mut self, limiter: impl Into<String>) -> Self {
        self.limiter = limiter.into();
        self
    }

    /// Returns the name of the limiter.
    #[must_use]
    pub fn limiter(&self) -> &str {
        &self.limiter
    }

    /// Returns the name of the policy.
    #[must_use]
    pub fn policy(&self) -> &str {
        &self.policy
    }

    /// Returns the [encoded](Key::encoded) key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns what it makes of the quota.
    #[must_use]
    pub fn change(&self) -> ExceptionChange {
        self.change
    }

    /// Returns who granted it.
    #[must_use]
    pub fn author(&self) -> &str {
        &self.author
    }

    /// Returns why it was granted.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns since when it is in force, in microseconds since the Unix epoch by the clock of the
    /// store. 0 before it is granted.
    #[must_use]
    pub fn begins_us(&self) -> u64 {
        self.begins_us
    }

    /// Returns when it ends, in microseconds since the Unix epoch by the clock of the store. Before it
    /// is granted, the microseconds for which it lasts.
    #[must_use]
    pub fn ends_us(&self) -> u64 {
        self.ends_us
    }

    /// Returns the text that no other exception of a store has: the limiter, the policy and the key, which
    /// has a mark behind it for a fresh start.
    #[must_use]
    pub fn id(&self) -> String {
        let mark = if self.is_fresh_start() {
            FRESH_MARK
        } else {
            ""
        };
        id(&self.limiter, &self.policy, &self.key) + mark
    }

    /// Returns whether it is a [fresh start](ExceptionChange::FreshStart), which changes no quota.
    #[must_use]
    pub fn is_fresh_start(&self) -> bool {
        self.change == ExceptionChange::FreshStart
    }

    /// Refuses an exception that these policies of its limiter cannot have.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) with the name and the value of what is refused:
    /// a policy that the limiter does not have, a key of other levels than the policy meters, a quota
    /// that its algorithm cannot have, a factor that is not above 0 and at most 1 000, a time that is not
    /// 1 s to 366 days, and an author or a reason that is empty, too long, or contains control characters
    /// or angle brackets.
    pub fn fits(&self, policies: &PolicySet) -> Result<(), Error> {
        self.is_valid()?;
        let named = |policy: &&Policy| policy.name() == self.policy;
        let Some(policy) = policies.iter().find(named) else {
            let names: Vec<_> = policies.iter().map(Policy::name).collect();
            return Err(Error::config(format!(
                "policy of an exception must be one of the limiter {:?}, which has {}, got {:?}",
                self.limiter,
                names.join(", "),
                self.policy
            )));
        };
        let levels = self.key.split('>').count();
        if let Some(level) = policy.level().filter(|level| usize::from(*level) != levels) {
            return Err(Error::config(format!(
                "key of an exception must have the {level} levels that the policy {} meters, got {levels}",
                self.policy
            )));
        }
        if self.is_fresh_start() && <Key as KeyParts>::read(&self.key).is_none() {
            return Err(Error::config(format!(
                "key of an exception must be an encoded key, got {:?}",
                self.key
            )));
        }
        self.change.of(policy).map(drop)
    }

    /// Refuses what no limiter can have.
    fn is_valid(&self) -> Result<(), Error> {
        is_text("limiter", &self.limiter, MAX_TEXT)?;
        is_text("policy", &self.policy, MAX_TEXT)?;
        is_text("key", &self.key, MAX_TEXT)?;
        is_text("author", &self.author, MAX_AUTHOR)?;
        is_text("reason", &self.reason, MAX_REASON)?;
        for (field, text) in [("author", &self.author), ("reason", &self.reason)] {
            if text.contains(['<', '>']) {
                return Err(Error::config(format!(
                    "{field} of an exception must have no angle brackets, got {text:?}"
                )));
            }
        }
        let lasts = Duration::from_micros(self.ends_us.saturating_sub(self.begins_us));
        if !(Self::MIN..=Self::MAX).contains(&lasts) {
            return Err(Error::config(format!(
                "time of an exception must be 1 s to 366 days, got {lasts:?}"
            )));
        }
        // No encoded key has a brace, as the mark of a fresh start has.
        if self.key.contains(['{', '}']) {
            return Err(Error::config(format!(
                "key of an exception must be encoded, without braces, got {:?}",
                self.key
            )));
        }
        match self.change {
            ExceptionChange::Factor(factor) => is_factor(factor),
            ExceptionChange::Quota(_) | ExceptionChange::FreshStart => Ok(()),
        }
    }

    /// Returns the parts of a grant, for a store that writes the line itself: the [id](Self::id), the
    /// microseconds for which it lasts, and the end of its line, behind the times.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when no limiter can have the exception.
    pub fn parts(&self) -> Result<(String, u64, String), Error> {
        self.is_valid()?;
        let end = format!("{}{PART}{}{PART}{}", self.change, self.author, self.reason);
        Ok((self.id(), self.ends_us.saturating_sub(self.begins_us), end))
    }

    /// Returns the exception as the store keeps it from `now_us` on.
    fn granted_at(&self, now_us: u64) -> Self {
        let lasts_us = self.ends_us.saturating_sub(self.begins_us);
        Self {
            begins_us: now_us,
            ends_us: now_us.saturating_add(lasts_us),
            ..self.clone()
        }
    }
}

fn id(limiter: &str, policy: &str, key: &str) -> String {
    format!("{limiter}{PART}{policy}{PART}{key}")
}

fn is_text(field: &str, text: &str, most: usize) -> Result<(), Error> {
    let length = text.chars().count();
    if length == 0 || length > most {
        return Err(Error::config(format!(
            "{field} of an exception must have 1 to {most} characters, got {length}"
        )));
    }
    if text.contains(char::is_control) {
        return Err(Error::config(format!(
            "{field} of an exception must have no control characters, got {text:?}"
        )));
    }
    Ok(())
}

fn is_factor(factor: f64) -> Result<(), Error> {
    if factor > 0.0 && factor <= MAX_FACTOR {
        return Ok(());
    }
    Err(Error::config(format!(
        "factor of an exception must be above 0 and at most {MAX_FACTOR}, got {factor}"
    )))
}

impl ExceptionChange {
    /// Returns the policy with the changed quota.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the algorithm or the lease of the policy
    /// cannot have the quota, and for a factor that is not above 0 and at most 1 000.
    pub fn of(self, policy: &Policy) -> Result<Policy, Error> {
        match self {
            Self::Quota(quota) => policy.with_quota(quota),
            Self::FreshStart => Ok(policy.clone()),
            Self::Factor(factor) => {
                is_factor(factor)?;
                let quota = policy.quota();
                if quota.is_blocked() {
                    return Ok(policy.clone());
                }
                let times = |units: u64| ((units as f64 * factor).round() as u64).max(1);
                let scaled = Quota::try_new(times(quota.amount()), quota.period())?;
                policy.with_quota(scaled.try_with_burst(times(quota.burst()))?)
            }
        }
    }
}

const QUOTA: &str = "quota ";
const FACTOR: &str = "factor ";
const FRESH: &str = "fresh start";

/// Stands behind the key of a fresh start, so that it replaces no other exception of the key.
const FRESH_MARK: &str = "{fresh}";

impl fmt::Display for ExceptionChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(quota) => write!(f, "{QUOTA}{quota}"),
            Self::Factor(factor) => write!(f, "{FACTOR}{factor}"),
            Self::FreshStart => f.write_str(FRESH),
        }
    }
}

impl FromStr for ExceptionChange {
    type Err = Error;

    /// Parses what `Display` writes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for any other text.
    fn from_str(text: &str) -> Result<Self, Error> {
        if let Some(quota) = text.strip_prefix(QUOTA) {
            return Ok(Self::Quota(quota.parse()?));
        }
        if text == FRESH {
            return Ok(Self::FreshStart);
        }
        let factor = text.strip_prefix(FACTOR).and_then(|text| text.parse().ok());
        let factor = factor.ok_or_else(|| {
            Error::config(format!(
                "change of an exception must be a quota, a factor or a fresh start, got {text:?}"
            ))
        })?;
        is_factor(factor)?;
        Ok(Self::Factor(factor))
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{PART}{}{PART}{}{PART}{}{PART}{}{PART}{}",
            self.id(),
            self.begins_us,
            self.ends_us,
            self.change,
            self.author,
            self.reason
        )
    }
}

impl FromStr for Exception {
    type Err = Error;

    /// Parses what `Display` writes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the line has another form, or is not valid.
    /// A newer version may have written it.
    fn from_str(line: &str) -> Result<Self, Error> {
        let parts: Vec<_> = line.split(PART).collect();
        let [
            limiter,
            policy,
            key,
            begins_us,
            ends_us,
            change,
            author,
            reason,
        ] = parts[..]
        else {
            return Err(Error::config("an exception must be a line of eight parts"));
        };
        let time = |text: &str| {
            text.parse::<u64>().map_err(|_| {
                Error::config(format!(
                    "time of an exception must be a number, got {text:?}"
                ))
            })
        };
        let change = change.parse()?;
        let key = match change {
            ExceptionChange::FreshStart => key
                .strip_suffix(FRESH_MARK)
                .ok_or_else(|| Error::config("a fresh start must have its mark behind the key"))?,
            _ => key,
        };
        let exception = Self {
            limiter: limiter.to_owned(),
            policy: policy.to_owned(),
            key: key.to_owned(),
            change,
            author: author.to_owned(),
            reason: reason.to_owned(),
            begins_us: time(begins_us)?,
            ends_us: time(ends_us)?,
        };
        exception.is_valid()?;
        Ok(exception)
    }
}

/// Returns the bytes by which an exception names the key that a policy meters.
fn metered<'k>(policy: &Policy, key: &'k Key) -> &'k [u8] {
    policy.metered(key).as_bytes()
}

// Leaves out the key, which may identify a person.
crate::debug_fields! {
    Exception: limiter, policy, change, author, reason, begins_us, ends_us, ..
}
