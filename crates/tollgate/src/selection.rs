use crate::{Limiter, Policy, PolicySet};

/// Says which limits apply to a tenant or to a request.
///
/// A function that looks limits up returns it, or a value that converts into it: a [`Policy`], a [`PolicySet`], a
/// [`Limiter`], or an `Option` of one of them. `None` selects the default limiter, so that a missing entry never lifts a
/// limit.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota, Selection};
///
/// let default = Limiter::new(MemoryStore::new(), Policy::token_bucket("api", Quota::per_minute(10)));
/// let pro = Selection::from(Policy::token_bucket("api", Quota::per_minute(500)));
/// assert_eq!(pro.limiter(&default).unwrap().policies().iter().next().unwrap().quota(), Quota::per_minute(500));
///
/// let unknown = Selection::from(None::<Policy>);
/// assert_eq!(unknown.limiter(&default).unwrap().policies(), default.policies());
/// assert!(Selection::Exempt.limiter(&default).is_none());
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
    /// Selects no limit.
    Exempt,
}

impl Selection {
    /// Returns the selected limiter. `None` when no limit applies.
    #[must_use]
    pub fn limiter(self, default: &Limiter) -> Option<Limiter> {
        match self {
            Self::Default => Some(default.clone()),
            Self::Policies(policies) => Some(default.with_policies(policies)),
            Self::Limiter(limiter) => Some(limiter),
            Self::Exempt => None,
        }
    }
}

impl From<Policy> for Selection {
    fn from(policy: Policy) -> Self {
        Self::Policies(policy.into())
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
