#[cfg(feature = "test-util")]
use crate::model::algorithm::Numbers;
use crate::{
    Policy, PolicySet,
    model::{algorithm::PolicyLevel, cost::EachCost},
};

/// Holds the levels of all policies of a set at one instant, in the order of the set.
///
/// A decision is moved many times, so this type is small: it stores only the words that each algorithm uses, side by
/// side. Up to [`INLINE`] words need no allocation, which is enough for three policies of most algorithms.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyLevels {
    len: u8,
    /// One bit for each policy, set when the policy denies.
    denying: u8,
    words: [u64; INLINE],
    /// Holds what does not fit in place.
    more: Option<Box<More>>,
}

/// Holds what few decisions have.
#[derive(Clone, Debug, Default)]
struct More {
    /// The words after the first [`INLINE`].
    words: [u64; MORE],
    /// The cost for each policy, when the costs differ.
    costs: Option<EachCost>,
    /// The numbers of each policy, when a test has set them and no state has them.
    #[cfg(feature = "test-util")]
    numbers: Option<Vec<Numbers>>,
}

/// The number of words that are stored without an allocation.
const INLINE: usize = 6;

/// The number of further words: eight policies have at most four words each.
const MORE: usize = 32 - INLINE;

impl PolicyLevels {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Creates the levels of a set of one policy.
    #[inline]
    pub(crate) fn one(level: PolicyLevel) -> Self {
        let [first, second, third, fourth] = level.words;
        Self { len: 1, denying: u8::from(!level.fits), words: [first, second, third, fourth, 0, 0], more: None }
    }

    /// Creates the levels of all policies of a set, in its order.
    pub(crate) fn collect<'a>(levels: impl IntoIterator<Item = (&'a Policy, PolicyLevel)>) -> Self {
        let (mut all, mut at) = (Self::new(), 0);
        for (policy, level) in levels {
            all.denying |= u8::from(!level.fits) << all.len;
            all.len += 1;
            for &word in &level.words[..policy.words()] {
                match all.words.get_mut(at) {
                    Some(slot) => *slot = word,
                    None => all.more.get_or_insert_default().words[at - INLINE] = word,
                }
                at += 1;
            }
        }
        all
    }

    /// Returns the levels that `change` returns for each policy.
    #[cfg(feature = "redis")]
    #[inline]
    pub(crate) fn map<'a>(
        &'a self,
        policies: &'a PolicySet,
        change: impl Fn(usize, &Policy, &PolicyLevel) -> PolicyLevel,
    ) -> Self {
        let each = self.iter(policies).enumerate();
        let mut each = each.map(|(at, (policy, level))| (policy, change(at, policy, &level)));
        match (self.len, each.next()) {
            (1, Some((_, alone))) => Self::one(alone),
            (_, first) => Self::collect(first.into_iter().chain(each)),
        }
    }

    /// Keeps the cost for each policy beside the levels.
    #[cold]
    pub(crate) fn with_costs(mut self, costs: &EachCost) -> Self {
        self.more.get_or_insert_default().costs = Some(costs.clone());
        self
    }

    /// Drops the cost for each policy.
    pub(crate) fn forget_costs(&mut self) {
        if let Some(more) = &mut self.more {
            more.costs = None;
        }
    }

    /// Returns the cost for each policy, when the costs differ.
    #[inline]
    pub(crate) fn costs(&self) -> Option<&EachCost> {
        self.more.as_ref().and_then(|more| more.costs.as_ref())
    }

    /// Sets the numbers of each policy, whatever the levels say.
    #[cfg(feature = "test-util")]
    pub(crate) fn with_numbers(mut self, numbers: Vec<Numbers>) -> Self {
        self.more.get_or_insert_default().numbers = Some(numbers);
        self
    }

    /// Returns the numbers that a test has set for the policy at this place of the set.
    #[cfg(feature = "test-util")]
    pub(crate) fn set_numbers(&self, at: usize) -> Option<Numbers> {
        self.more.as_ref()?.numbers.as_ref()?.get(at).copied()
    }

    /// Returns `true` when no policy denies.
    #[inline]
    pub(crate) fn fit(&self) -> bool {
        self.denying == 0
    }

    /// Returns each policy with its level. Returns nothing for a decision that no policy took part in.
    #[inline]
    pub(crate) fn iter<'a>(
        &'a self,
        policies: &'a PolicySet,
    ) -> impl ExactSizeIterator<Item = (&'a Policy, PolicyLevel)> {
        let mut next = 0;
        policies.iter().take(self.len.into()).enumerate().map(move |(at, policy)| {
            let count = policy.words();
            let words = std::array::from_fn(|word| if word < count { self.word(next + word) } else { 0 });
            next += count;
            (policy, PolicyLevel { fits: self.denying >> at & 1 == 0, words })
        })
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        match (self.words.get(at), &self.more) {
            (Some(word), _) => *word,
            (None, Some(more)) => more.words[at - INLINE],
            (None, None) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quota;

    #[test]
    fn collected_levels_are_returned_unchanged() {
        let quota = Quota::per_second(5);
        let policies = PolicySet::from([
            Policy::sliding_log("log", quota),
            Policy::token_bucket("bucket", quota),
            Policy::sliding_window("window", quota),
            Policy::fixed_window("fixed", quota),
        ]);
        let mut expected = Vec::new();
        for (at, policy) in (1..).zip(policies.iter()) {
            let mut words = [0; 4];
            for (word, value) in words[..policy.words()].iter_mut().zip(1..) {
                *word = at * 10 + value;
            }
            expected.push((policy, PolicyLevel { fits: at % 2 == 0, words }));
        }
        let levels = PolicyLevels::collect(expected.iter().copied());
        let read: Vec<_> = levels.iter(&policies).collect();
        assert_eq!(read, expected);
        assert!(!levels.fit());
        let one = PolicyLevels::one(expected[1].1);
        let set = PolicySet::from(expected[1].0.clone());
        assert_eq!(one.iter(&set).map(|(_, level)| level).collect::<Vec<_>>(), [expected[1].1]);
        assert!(one.fit());
        assert_eq!(PolicyLevels::new().iter(&policies).len(), 0);
    }

    #[cfg(feature = "redis")]
    #[test]
    fn map_changes_each_level() {
        let quota = Quota::per_second(5);
        let [bucket, log] = [Policy::token_bucket("bucket", quota), Policy::sliding_log("log", quota)];
        let level = |policy: &Policy, first| {
            let words = std::array::from_fn(|at| if at < policy.words() { first + at as u64 } else { 0 });
            PolicyLevel { fits: true, words }
        };
        for set in [PolicySet::from(bucket.clone()), PolicySet::from([bucket, log])] {
            let levels = PolicyLevels::collect(set.iter().map(|policy| (policy, level(policy, 10))));
            let denied = levels.map(&set, |_, policy, read| {
                assert_eq!(*read, level(policy, 10));
                PolicyLevel { fits: false, ..level(policy, 20) }
            });
            let expected = set.iter().map(|policy| (policy, PolicyLevel { fits: false, ..level(policy, 20) }));
            assert_eq!(denied.iter(&set).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    }
}
