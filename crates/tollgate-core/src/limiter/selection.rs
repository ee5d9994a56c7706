//! What a look-up of limits may return, and the limiter that follows from it.
//! The look-up of tenants and its cache are in `tenants/`.

use tollgate_model::raw::PolicySetParts;

use crate::{Error, Limiter, Policy, PolicySet};

/// Says which limits apply to a tenant or to a request.
///
/// A function that looks limits up returns it, or a value that converts into it: policies in every
/// form that [`Limiter::new`] takes (a [`Policy`], an array, a `Vec`, a [`PolicySet`]), a
/// [`Limiter`], or an `Option` of one of them. `None` means that no limits were found. It selects
/// the default limiter, so that a missing entry never lifts a limit.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota, limiter::{Limited, Selection}};
///
/// let api = |amount| Policy::token_bucket("api", Quota::per_minute(amount));
/// let default = Limiter::new(MemoryStore::new(), api(10));
/// let policies = |selection: Selection| match selection.limiter(&default) {
///     Ok(Limited::By(limiter)) => limiter.policies().clone(),
///     other => panic!("{other:?}"),
/// };
/// // A plan of a rate and a day.
/// let pro = Selection::from([api(500), Policy::fixed_window("day", Quota::per_day(100_000))]);
/// assert_eq!(policies(pro).len(), 2);
/// assert_eq!(policies(Selection::from(None::<Policy>)), api(10).into());
/// assert!(policies(Selection::Blocked).is_blocked());
/// assert!(matches!(Selection::Exempt.limiter(&default), Ok(Limited::Exempt)));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Selection {
    /// Selects the default limiter. The default.
    #[default]
    Default,
    /// Selects these policies, with the store and all options of the default limiter.
    Policies(PolicySet),
    /// Selects this limiter.
    Limiter(Limiter),
    /// Denies every request, without a wait and without a call to the store: see
    /// [`Decision::is_blocked`](crate::Decision::is_blocked). Use it for a tenant that is
    /// suspended.
    Blocked,
    /// Selects no limit.
    Exempt,
    /// The policies are not valid, for the reason that [`PolicySet::try_new`] gave. A fetch that
    /// returns it has failed.
    Invalid(Error),
}

/// Says what limits a tenant or a request, or that nothing does.
///
/// [`TenantLimiters::limiter_for`](crate::tenants::TenantLimiters::limiter_for) returns it. An
/// exemption has a name of its own, because `None` means that nothing was found: see [`Selection`].
#[derive(Clone, Debug)]
pub enum Limited {
    /// The limiter decides.
    By(Limiter),
    /// No limit applies.
    Exempt,
}

impl Limited {
    /// Returns the limiter. `None` for an exemption.
    #[must_use]
    pub fn into_limiter(self) -> Option<Limiter> {
        match self {
            Self::By(limiter) => Some(limiter),
            Self::Exempt => None,
        }
    }
}

impl Selection {
    /// Returns the selected limiter, or the exemption.
    ///
    /// # Errors
    ///
    /// Fails with the error of [`Selection::Invalid`].
    pub fn limiter(self, default: &Limiter) -> Result<Limited, Error> {
        match self {
            Self::Default => Ok(Limited::By(default.clone())),
            Self::Policies(policies) => Ok(Limited::By(default.with_policies(policies))),
            Self::Limiter(limiter) => Ok(Limited::By(limiter)),
            Self::Blocked => Ok(Limited::By(
                default.with_policies(default.policies().blocked()),
            )),
            Self::Exempt => Ok(Limited::Exempt),
            Self::Invalid(error) => Err(error),
        }
    }

    fn of(policies: impl IntoIterator<Item = Policy>) -> Self {
        PolicySet::try_new(policies).map_or_else(Self::Invalid, Self::Policies)
    }
}

impl From<Policy> for Selection {
    fn from(policy: Policy) -> Self {
        Self::Policies(policy.into())
    }
}

impl<const N: usize> From<[Policy; N]> for Selection {
    /// Selects the policies of an array.
    fn from(policies: [Policy; N]) -> Self {
        Self::of(policies)
    }
}

impl From<Vec<Policy>> for Selection {
    /// Selects the policies of a vector.
    fn from(policies: Vec<Policy>) -> Self {
        Self::of(policies)
    }
}

impl From<PolicySet> for Selection {
    fn from(policies: PolicySet) -> Self {
        Self::Policies(policies)
    }
}

impl From<Limiter> for Selection {
    fn from(limiter: Limiter) -> Self {
        Self::Limiter(limiter)
    }
}

impl<T: Into<Self>> From<Option<T>> for Selection {
    /// Selects the default limiter for `None`.
    fn from(selected: Option<T>) -> Self {
        selected.map_or(Self::Default, Into::into)
    }
}
