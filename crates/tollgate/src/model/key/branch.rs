//! Keys side by side: the branches of a key.

use std::{slice, sync::Arc};

use super::{Key, LONG, LongKey, MAX_BRANCHES};

/// Stands between two branches. No level contains it, so the text of a key shows its branches.
const SEPARATOR: u8 = b'^';

impl Key {
    /// Puts a key beside this one, as its last branch.
    ///
    /// Use branches to limit a request by two keys of which neither contains the other, such as the address of a client and
    /// its API key. One decision covers all branches: either the policies of all are charged, or none. A [`Policy`] meters
    /// the first branch by default, and another one with [`Policy::at_branch`]. Each branch may have [levels](Self::child).
    ///
    /// The state of a policy on a branch is that of the branch's key alone. So a check of an address beside an API key
    /// and a check of the address spend from one counter.
    ///
    /// In a Redis Cluster, all branches that a decision meters must lie in one slot: see
    /// [`ErrorKind::CrossSlot`](crate::ErrorKind::CrossSlot).
    ///
    /// The branches of a part are all appended. A key has at most four branches; a part beyond them is joined to the last
    /// one. The text has up to 1039 bytes. Only a key with branches allocates them.
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = Limiter::new(
    ///     MemoryStore::new(),
    ///     [
    ///         Policy::fixed_window("address", Quota::per_hour(3)),
    ///         Policy::fixed_window("api-key", Quota::per_hour(2)).at_branch(2),
    ///     ],
    /// );
    /// let key = |address: &str, api_key: &str| Key::from(address).beside(api_key);
    /// assert_eq!(key("192.0.2.7", "acme").encoded(), "192.0.2.7^acme");
    ///
    /// for _ in 0..2 {
    ///     assert!(limiter.check(key("192.0.2.7", "acme")).await?.is_allowed());
    /// }
    /// // The API key has spent its quota. The address is not charged.
    /// assert!(limiter.check(key("192.0.2.7", "acme")).await?.is_denied());
    /// assert!(limiter.check(key("192.0.2.7", "other")).await?.is_allowed());
    /// assert!(limiter.check(key("192.0.2.7", "other")).await?.is_denied()); // The address has spent its quota.
    /// # Ok(()) }
    /// ```
    ///
    /// [`Policy`]: crate::Policy
    /// [`Policy::at_branch`]: crate::Policy::at_branch
    #[must_use]
    pub fn beside(self, part: impl Into<Self>) -> Self {
        let part = part.into();
        Self::side_by_side(self.branches().iter().chain(part.branches()).cloned())
    }

    /// Returns the branches, 1 to 4. A key without branches is its only one.
    ///
    /// ```
    /// use tollgate::Key;
    ///
    /// let (address, api_key) = (Key::new("192.0.2.7"), Key::new("acme"));
    /// assert_eq!(address.clone().beside(&api_key).branches(), [address.clone(), api_key]);
    /// assert_eq!(address.branches(), [address.clone()]);
    /// ```
    #[must_use]
    #[inline]
    pub fn branches(&self) -> &[Self] {
        if self.has_branches() { self.long_branches() } else { slice::from_ref(self) }
    }

    /// Returns `true` when the key has several branches.
    #[inline]
    pub(crate) fn has_branches(&self) -> bool {
        self.levels == 0
    }

    /// Returns the branch at this place, counted from 0. A key without branches returns itself.
    #[inline]
    pub(crate) fn branch(&self, at: u8) -> &Self {
        if self.has_branches() { self.long_branches().get(usize::from(at)).unwrap_or(self) } else { self }
    }

    #[cold]
    fn long_branches(&self) -> &[Self] {
        match self.long.as_deref() {
            Some(LongKey::Branches { keys, .. }) => keys,
            _ => slice::from_ref(self),
        }
    }

    /// Creates a key of these branches, which have none themselves. One branch alone is the key.
    pub(super) fn side_by_side(branches: impl IntoIterator<Item = Self>) -> Self {
        let mut keys: Vec<Self> = Vec::with_capacity(MAX_BRANCHES);
        for branch in branches {
            let is_full = keys.len() == MAX_BRANCHES;
            match keys.last_mut() {
                Some(last) if is_full => *last = last.clone().join(branch),
                _ => keys.push(branch),
            }
        }
        match keys.len() {
            0 | 1 => keys.pop().unwrap_or(Self::EMPTY),
            _ => {
                let texts: Vec<&[u8]> = keys.iter().map(Self::as_bytes).collect();
                let text = texts.join(&SEPARATOR).into();
                let long = LongKey::Branches { text, keys: keys.into() };
                Self { len: LONG, levels: 0, long: Some(Arc::new(long)), ..Self::EMPTY }
            }
        }
    }

    /// Joins a part to this key: each branch of the part to each branch of the key.
    #[inline]
    pub(super) fn with_part(self, part: &Self, join: impl Fn(Self, &Self) -> Self) -> Self {
        if !self.has_branches() && !part.has_branches() {
            return join(self, part);
        }
        let pairs = self.branches().iter().flat_map(|key| part.branches().iter().map(move |part| (key, part)));
        Self::side_by_side(pairs.map(|(key, part)| join(key.clone(), part)))
    }
}
