//! Keys that are made from keys: parts of one level, levels from the outermost to the innermost,
//! and branches side by side.
//! The text of a single part is made in `mod.rs` and `parts.rs`.

use std::sync::Arc;

use super::{
    Buffer, INLINE_BYTES, KEY_BYTES, Key, LONG, LONG_BYTES, LongKey, MAX_BRANCHES, MAX_LEVELS,
};
use crate::key::KeyParts;

/// Stands between two levels. No level contains it, so the text of a key shows its levels.
const LEVEL: u8 = b'>';

/// Stands between two branches. No level contains it, so the text of a key shows its branches.
const BRANCH: u8 = b'^';

/// Makes keys of several parts in one level.
impl Key {
    /// Appends a part to the innermost level of the key.
    ///
    /// If `part` has several parts itself, they are appended as one part. If it is nested, its
    /// outermost level is appended, and its other levels become inner levels. If a key has
    /// branches, the part is appended to each of them. If the part has branches, each of them makes
    /// a branch.
    ///
    /// ```
    /// use tollgate::Key;
    ///
    /// let key = Key::new("acme").join("/export");
    /// assert_eq!(key, Key::from(("acme", "/export")));
    /// assert_ne!(Key::new("a").join(("b", "c")), Key::from(("a", "b", "c")));
    /// ```
    #[must_use]
    pub fn join(mut self, part: impl Into<Self>) -> Self {
        let part = part.into();
        if self.levels == 1 && part.levels == 1 && self.push_in_place(part.as_bytes()) {
            return self;
        }
        self.with_part(&part, |key, part| {
            let mut levels = part.each_level();
            let mut key = key;
            if let Some(outermost) = levels.next() {
                key = key.joined(outermost);
            }
            levels.fold(key, Self::below)
        })
    }

    /// Appends a part to the text of a key of one level. Returns `false` when the text becomes too long.
    fn push_in_place(&mut self, part: &[u8]) -> bool {
        let (at, is_joined) = (usize::from(self.len), is_joined(part));
        let (start, marks) = match is_joined {
            true => (at + 2, 3),
            false => (at + 1, 1),
        };
        let (end, len) = (start + part.len(), at + part.len() + marks);
        if len > KEY_BYTES {
            return false;
        }
        self.text[at] = b',';
        self.text[start..end].copy_from_slice(part);
        if is_joined {
            (self.text[at + 1], self.text[end]) = (b'(', b')');
        }
        self.len = len as u8;
        true
    }

    /// Appends a part, which is the text of a level, to the innermost level.
    pub(super) fn joined(self, part: &[u8]) -> Self {
        let mut text = Buffer::from_slice(self.innermost());
        text.push(b',');
        push_part(&mut text, part);
        self.with_innermost(&text)
    }

    /// Returns this key as the first element of a tuple. An innermost level of several parts stays
    /// one element.
    fn first(self) -> Self {
        if self.has_branches() {
            return Self::side_by_side(self.branches().iter().cloned().map(Self::first));
        }
        if !is_joined(self.innermost()) {
            return self;
        }
        let mut text = Buffer::new();
        push_part(&mut text, self.innermost());
        self.with_innermost(&text)
    }
}

/// Appends the text of a level as one part. Parentheses keep several parts together.
fn push_part(text: &mut Buffer, part: &[u8]) {
    if is_joined(part) {
        text.push(b'(');
        text.extend_from_slice(part);
        text.push(b')');
    } else {
        text.extend_from_slice(part);
    }
}

fn is_joined(level: &[u8]) -> bool {
    level.contains(&b',') || level.starts_with(b"!!")
}

impl<A: Into<Self>, B: Into<Self>> From<(A, B)> for Key {
    /// Creates a key of two parts.
    fn from((a, b): (A, B)) -> Self {
        a.into().first().join(b)
    }
}

impl<A: Into<Self>, B: Into<Self>, C: Into<Self>> From<(A, B, C)> for Key {
    /// Creates a key of three parts.
    fn from((a, b, c): (A, B, C)) -> Self {
        a.into().first().join(b).join(c)
    }
}

impl<A: Into<Self>, B: Into<Self>, C: Into<Self>, D: Into<Self>> From<(A, B, C, D)> for Key {
    /// Creates a key of four parts.
    fn from((a, b, c, d): (A, B, C, D)) -> Self {
        a.into().first().join(b).join(c).join(d)
    }
}

/// Nests keys in levels.
impl Key {
    /// Nests a key within this one, as its new innermost level.
    ///
    /// Use nested keys to limit a user, the user's tenant and all tenants together in one decision.
    /// A [`Policy`] meters the whole key by default, and the outer levels with
    /// [`Policy::at_level`].
    ///
    /// In a Redis Cluster, the outermost level selects the slot, so one server decides everything
    /// below it. Choose an outermost level that is as narrow as the limits allow.
    ///
    /// If `part` is nested itself, all its levels are appended. A key has at most four levels; a
    /// part beyond them is joined to the innermost level. A part is nested within each
    /// [branch](Self::with_branch), and each branch of a part makes a branch. So
    /// `tenant.child(address.with_branch(api_key))` has two branches below one tenant, which lie in
    /// one slot.
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// let ann = Key::new("acme").child("ann");
    /// assert_eq!(ann.encoded(), "acme>ann");
    /// assert_eq!(ann.parent(), Some(Key::new("acme")));
    ///
    /// let limiter = Limiter::new(
    ///     MemoryStore::new(),
    ///     [
    ///         Policy::fixed_window("tenant", Quota::per_hour(3)).at_level(1),
    ///         Policy::fixed_window("user", Quota::per_hour(2)),
    ///     ],
    /// );
    /// for _ in 0..2 {
    ///     assert!(limiter.check(&ann).await?.is_allowed());
    /// }
    /// assert!(limiter.check(&ann).await?.is_denied()); // The user has spent her quota.
    ///
    /// let bob = Key::new("acme").child("bob");
    /// assert!(limiter.check(&bob).await?.is_allowed());
    /// assert!(limiter.check(&bob).await?.is_denied()); // The tenant has spent its quota.
    /// # Ok(()) }
    /// ```
    ///
    /// [`Policy`]: crate::Policy
    /// [`Policy::at_level`]: crate::Policy::at_level
    #[must_use]
    pub fn child(self, part: impl Into<Self>) -> Self {
        self.with_part(&part.into(), |key, part| {
            part.each_level().fold(key, Self::below)
        })
    }

    /// Returns the key without its innermost level. `None` for a key of one level.
    ///
    /// If the key has branches, each branch loses its innermost level. `None` when a branch has one
    /// level.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        if self.has_branches() {
            let parents: Option<Vec<Self>> = self.branches().iter().map(Self::parent).collect();
            return parents.map(Self::side_by_side);
        }
        self.outer()
            .map(|outer| Self::nested(outer, self.levels - 1, self.ends))
    }

    /// Appends the text of a level. At the greatest number of levels, joins it to the innermost
    /// one.
    pub(super) fn below(self, level: &[u8]) -> Self {
        if usize::from(self.levels) == MAX_LEVELS {
            return self.joined(level);
        }
        let outer = self.as_bytes();
        let mut ends = self.ends;
        // The outer levels have at most 3 × 64 bytes and two separators.
        ends[usize::from(self.levels) - 1] = outer.len() as u8;
        let mut text = Buffer::from_slice(outer);
        text.push(LEVEL);
        text.extend_from_slice(level);
        Self::nested(&text, self.levels + 1, ends)
    }

    /// Replaces the innermost level by encoded text.
    pub(super) fn with_innermost(self, text: &[u8]) -> Self {
        let level = Self::from_text(text);
        match self.parent() {
            Some(parent) => parent.below(level.as_bytes()),
            None => level,
        }
    }

    pub(super) fn innermost(&self) -> &[u8] {
        self.outer()
            .map_or(self.as_bytes(), |outer| &self.as_bytes()[outer.len() + 1..])
    }

    pub(super) fn each_level(&self) -> impl Iterator<Item = &[u8]> {
        let starts = (0..self.levels).map(|outer| if outer == 0 { 0 } else { self.end(outer) + 1 });
        let ends = (1..self.levels)
            .map(|level| self.end(level))
            .chain([self.as_bytes().len()]);
        starts
            .zip(ends)
            .map(|(start, end)| &self.as_bytes()[start..end])
    }

    fn outer(&self) -> Option<&[u8]> {
        (self.levels > 1).then(|| &self.as_bytes()[..self.end(self.levels - 1)])
    }

    /// Creates a key from the text of all its levels.
    fn nested(text: &[u8], levels: u8, ends: [u8; MAX_LEVELS - 1]) -> Self {
        if text.len() <= INLINE_BYTES {
            return Self {
                levels,
                ends,
                ..Self::of(text)
            };
        }
        let mut long = [0; LONG_BYTES];
        long[..text.len()].copy_from_slice(text);
        let long = LongKey::Nested {
            len: text.len() as u16,
            text: long,
        };
        Self {
            len: LONG,
            levels,
            ends,
            long: Some(Arc::new(long)),
            ..Self::EMPTY
        }
    }
}

/// Puts keys side by side, as branches.
impl Key {
    /// Puts a key beside this one, as its last branch.
    ///
    /// Use branches to limit a request by two keys that are independent of each other, such as the
    /// address of a client and its API key. One decision covers all branches: either the policies
    /// of all are charged, or none. A [`Policy`] meters the first branch by default, and another
    /// branch with [`Policy::at_branch`]. Each branch may have [levels](Self::child).
    ///
    /// A branch has the counters that it has as a key of its own. So a check of an address beside
    /// an API key, and a check of the address alone, spend from one counter.
    ///
    /// In a Redis Cluster, all branches that a decision meters must lie in one slot: see
    /// [`ErrorKind::CrossSlot`](crate::ErrorKind::CrossSlot).
    ///
    /// If `part` has branches, all of them are appended. A key has at most four branches; a part
    /// beyond them is joined to the last branch. The text of a key with branches has up to 1039
    /// bytes, and is allocated.
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
    /// let key = |address: &str, api_key: &str| Key::from(address).with_branch(api_key);
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
    pub fn with_branch(self, part: impl Into<Self>) -> Self {
        let part = part.into();
        Self::side_by_side(self.branches().iter().chain(part.branches()).cloned())
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
                let text = texts.join(&BRANCH).into();
                let long = LongKey::Branches {
                    text,
                    keys: keys.into(),
                };
                Self {
                    len: LONG,
                    levels: 0,
                    long: Some(Arc::new(long)),
                    ..Self::EMPTY
                }
            }
        }
    }

    /// Joins a part to this key: each branch of the part to each branch of the key.
    #[inline]
    pub(super) fn with_part(self, part: &Self, join: impl Fn(Self, &Self) -> Self) -> Self {
        if !self.has_branches() && !part.has_branches() {
            return join(self, part);
        }
        let pairs = self
            .branches()
            .iter()
            .flat_map(|key| part.branches().iter().map(move |part| (key, part)));
        Self::side_by_side(pairs.map(|(key, part)| join(key.clone(), part)))
    }
}
