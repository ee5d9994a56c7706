//! Limits as operators see them.
//! When and where it is shown is decided in `tollgate-remote/src/presence/`.

use std::{
    fmt,
    str::FromStr,
    sync::{Arc, Weak},
};

use tollgate_model::raw::EnforcementParts;

use crate::{Enforcement, Error, PolicySet, lock::Lock};

/// The limits of a limiter, as operators see them: its name, its policies, and the share of the
/// keys for which they are enforced. A publication contains no keys. Clones share their content.
///
/// A [`Limiter`](crate::Limiter) that is [published](crate::LimiterBuilder::published) passes its
/// publication to [`Store::publish`](crate::Store::publish), and holds a clone. A store that
/// publishes shows the text for as long as a limiter holds a clone.
///
/// ```
/// use tollgate::{Enforcement, Policy, Quota, store::Publication};
///
/// let policies = [
///     Policy::token_bucket("burst", Quota::per_second(10).with_burst(40)),
///     Policy::fixed_window("daily", Quota::per_day(50_000)),
/// ];
/// let published = Publication::new("search", policies, Some(Enforcement::share(25)));
/// let text = published.to_string();
/// assert_eq!(
///     text,
///     "burst=10/s burst 40, token_bucket; daily=50000/day, fixed_window; enforced 25%; limiter search",
/// );
/// let read: Publication = text.parse()?;
/// assert_eq!((read.name(), read.policies()), ("search", published.policies()));
/// assert_eq!(read.enforcement().unwrap().percent(), 25);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone)]
pub struct Publication(Arc<Published>);

struct Published {
    name: String,
    policies: Lock<PolicySet>,
    enforcement: Option<Enforcement>,
}

/// Separates the name of the limiter. It is the last part, so that it needs no escapes and is found
/// in every text.
const LIMITER: &str = "; limiter ";

impl Publication {
    /// Creates the publication of a limiter with this name. `enforcement` is the share that
    /// operators may set.
    ///
    /// # Panics
    ///
    /// When [`PolicySet::try_new`] refuses the policies.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        policies: impl Into<PolicySet>,
        enforcement: impl Into<Option<Enforcement>>,
    ) -> Self {
        let (name, policies, enforcement) =
            (name.into(), Lock::new(policies.into()), enforcement.into());
        Self(Arc::new(Published {
            name,
            policies,
            enforcement,
        }))
    }

    /// Returns the name of the limiter.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the policies that are in force now.
    #[must_use]
    pub fn policies(&self) -> PolicySet {
        self.0.policies.lock().clone()
    }

    /// Returns the share of the keys for which the policies are enforced, if operators may set it.
    #[must_use]
    pub fn enforcement(&self) -> Option<&Enforcement> {
        self.0.enforcement.as_ref()
    }

    /// Applies the share that an operator has set, in percent. `None` withdraws it. Returns whether
    /// anything changed. A store that publishes calls this.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the share is above 100. The old share
    /// then stays.
    pub fn set_share(&self, percent: Option<u8>) -> Result<bool, Error> {
        self.enforcement().map_or(Ok(false), |enforcement| {
            enforcement.set_by_operator(percent)
        })
    }

    /// Replaces the policies by what `current` returns. It is called under the lock, so the later
    /// of two replacements remains.
    pub(crate) fn replace_policies(&self, current: impl FnOnce() -> PolicySet) {
        let mut policies = self.0.policies.lock();
        *policies = current();
    }

    /// Returns a reference that does not keep the store publishing.
    #[must_use]
    pub fn downgrade(&self) -> WeakPublication {
        WeakPublication(Arc::downgrade(&self.0))
    }
}

/// Refers to a publication that no limiter may hold any more.
#[derive(Debug)]
pub struct WeakPublication(Weak<Published>);

impl WeakPublication {
    /// Returns the publication while a limiter holds it.
    pub fn upgrade(&self) -> Option<Publication> {
        self.0.upgrade().map(Publication)
    }
}

impl fmt::Display for Publication {
    /// Writes the text that operators read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, policy) in self.policies().iter().enumerate() {
            write!(f, "{}{policy}", if at == 0 { "" } else { "; " })?;
        }
        if let Some(enforcement) = self.enforcement() {
            write!(f, "; enforced {enforcement}")?;
        }
        write!(f, "{LIMITER}{}", self.name())
    }
}

impl FromStr for Publication {
    type Err = Error;

    /// Parses what `Display` writes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the text has another form, or names a
    /// policy that is not valid: a newer version may have written it.
    fn from_str(text: &str) -> Result<Self, Error> {
        let (parts, name) = text
            .split_once(LIMITER)
            .ok_or_else(|| Error::config("published limits must end with the limiter"))?;
        let (mut policies, mut enforcement) = (Vec::new(), None);
        for part in parts.split("; ") {
            match part.strip_prefix("enforced ") {
                Some(share) => enforcement = Some(share.parse()?),
                None => policies.push(part.parse()?),
            }
        }
        Ok(Self::new(name, PolicySet::try_new(policies)?, enforcement))
    }
}

crate::debug_fields! {
    Publication: name = .name(), policies = .policies(), enforcement = .enforcement()
}
