//! The policies of a set, in two words.

use std::{ops::Deref, slice, sync::Arc};

use smallvec::SmallVec;

use crate::Policy;

/// Holds the policies of a set in their order. One policy is held without a list.
///
/// The type takes two words, and a `SmallVec` three. A service may have a set for each of its tenants.
#[derive(Debug)]
pub(super) enum Policies {
    One(Arc<Policy>),
    /// Holds no single policy.
    List(Box<[Arc<Policy>]>),
}

impl Deref for Policies {
    type Target = [Arc<Policy>];

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::One(policy) => slice::from_ref(policy),
            Self::List(policies) => policies,
        }
    }
}

impl FromIterator<Arc<Policy>> for Policies {
    fn from_iter<I: IntoIterator<Item = Arc<Policy>>>(policies: I) -> Self {
        let mut policies: SmallVec<[_; 1]> = policies.into_iter().collect();
        policies.shrink_to_fit();
        match policies.into_inner() {
            Ok([alone]) => Self::One(alone),
            Err(policies) => Self::List(policies.into_boxed_slice()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quota;

    #[test]
    fn one_policy_is_held_without_a_list_and_several_keep_their_order() {
        assert_eq!(size_of::<Policies>(), 2 * size_of::<usize>());
        let all = ["a", "b", "c"].map(|name| Arc::new(Policy::token_bucket(name, Quota::per_second(1))));
        for count in 0..=all.len() {
            let some = &all[..count];
            let policies: Policies = some.iter().cloned().collect();
            assert_eq!(&*policies, some);
            assert_eq!(matches!(policies, Policies::One(_)), count == 1);
        }
    }
}
