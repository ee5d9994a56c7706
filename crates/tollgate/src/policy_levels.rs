use crate::{Policy, PolicySet, algorithm::PolicyLevel};

/// What the policies of a set read at one instant, in the order of the set.
///
/// A decision passes through many hands, so it is small, and made of plain words: as many as each algorithm has, side
/// by side. Three policies fit without an allocation, most often.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyLevels {
    len: u8,
    /// A bit for each policy that denies.
    denying: u8,
    words: [u64; INLINE],
    /// What finds no place there.
    more: Option<Box<[u64; MOST]>>,
}

const INLINE: usize = 6;

/// The words of eight policies beyond those: four each at the most.
const MOST: usize = 32 - INLINE;

impl PolicyLevels {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The level of a policy that is alone.
    #[inline]
    pub(crate) fn one(level: PolicyLevel) -> Self {
        let [first, second, third, fourth] = level.words;
        Self { len: 1, denying: u8::from(!level.fits), words: [first, second, third, fourth, 0, 0], more: None }
    }

    /// Those of all policies of a set, in its order.
    pub(crate) fn collect<'a>(levels: impl IntoIterator<Item = (&'a Policy, PolicyLevel)>) -> Self {
        let (mut all, mut at) = (Self::new(), 0);
        for (policy, level) in levels {
            all.denying |= u8::from(!level.fits) << all.len;
            all.len += 1;
            for &word in &level.words[..policy.algorithm().words()] {
                match all.words.get_mut(at) {
                    Some(place) => *place = word,
                    None => all.more.get_or_insert_default()[at - INLINE] = word,
                }
                at += 1;
            }
        }
        all
    }

    /// What `change` makes of each.
    #[cfg(feature = "redis")]
    #[inline]
    pub(crate) fn map<'a>(
        &'a self,
        policies: &'a PolicySet,
        change: impl Fn(&Policy, &PolicyLevel) -> PolicyLevel,
    ) -> Self {
        let mut each = self.iter(policies).map(|(policy, level)| (policy, change(policy, &level)));
        match (self.len, each.next()) {
            (1, Some((_, alone))) => Self::one(alone),
            (_, first) => Self::collect(first.into_iter().chain(each)),
        }
    }

    /// Whether no policy denies.
    #[inline]
    pub(crate) fn fit(&self) -> bool {
        self.denying == 0
    }

    /// The policies and what they read; nothing where no policy was asked.
    #[inline]
    pub(crate) fn iter<'a>(
        &'a self,
        policies: &'a PolicySet,
    ) -> impl ExactSizeIterator<Item = (&'a Policy, PolicyLevel)> {
        let mut next = 0;
        policies.iter().take(self.len.into()).enumerate().map(move |(at, policy)| {
            let count = policy.algorithm().words();
            let words = std::array::from_fn(|word| if word < count { self.word(next + word) } else { 0 });
            next += count;
            (policy, PolicyLevel { fits: self.denying >> at & 1 == 0, words })
        })
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        match (self.words.get(at), &self.more) {
            (Some(word), _) => *word,
            (None, Some(more)) => more[at - INLINE],
            (None, None) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quota;

    #[test]
    fn what_was_pushed_is_read_back() {
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
            for (word, value) in words[..policy.algorithm().words()].iter_mut().zip(1..) {
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
    fn each_is_changed_by_itself() {
        let quota = Quota::per_second(5);
        let [bucket, log] = [Policy::token_bucket("bucket", quota), Policy::sliding_log("log", quota)];
        let level = |policy: &Policy, first| {
            let words = std::array::from_fn(|at| if at < policy.algorithm().words() { first + at as u64 } else { 0 });
            PolicyLevel { fits: true, words }
        };
        for set in [PolicySet::from(bucket.clone()), PolicySet::from([bucket, log])] {
            let levels = PolicyLevels::collect(set.iter().map(|policy| (policy, level(policy, 10))));
            let denied = levels.map(&set, |policy, read| {
                assert_eq!(*read, level(policy, 10));
                PolicyLevel { fits: false, ..level(policy, 20) }
            });
            let expected = set.iter().map(|policy| (policy, PolicyLevel { fits: false, ..level(policy, 20) }));
            assert_eq!(denied.iter(&set).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    }
}
