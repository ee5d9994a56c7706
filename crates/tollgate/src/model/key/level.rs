//! Nested keys: levels from the outermost to the innermost.

use std::sync::Arc;

use super::{Buffer, INLINE_BYTES, Key, LONG, LONG_BYTES, LongKey, MAX_LEVELS};

/// Stands between two levels. No level contains it, so the text of a key shows its levels.
const SEPARATOR: u8 = b'>';

/// Borrows the part of a key that a policy meters: all levels, or the outer ones.
#[derive(Clone, Copy)]
pub(crate) struct KeyLevel<'a> {
    bytes: &'a [u8],
    /// The key, when it is metered whole.
    whole: Option<&'a Key>,
}

impl Key {
    /// Nests a key within this one, as its new innermost level.
    ///
    /// Use nested keys to limit a user, the user's tenant and all tenants together in one decision. A [`Policy`] meters
    /// the whole key by default, and the outer levels with [`Policy::at_level`]. All states of one decision lie in one
    /// slot of a Redis Cluster, which the outermost level selects. So keep the outermost level as narrow as the limits
    /// allow: everything below one outermost level is decided by one server.
    ///
    /// The levels of a nested part are all appended. A key has at most four levels; a part beyond them is joined to the
    /// innermost level. A key is nested within each [branch](Self::beside), and each branch of a part makes a branch. So
    /// `tenant.child(address.beside(api_key))` has two branches below one tenant, which lie in one slot.
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
        self.with_part(&part.into(), |key, part| part.each_level().fold(key, Self::below))
    }

    /// Returns the key without its innermost level, and `None` for a key of one level.
    ///
    /// Of a key with branches, each branch loses its innermost level. `None` when a branch has one level.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        if self.has_branches() {
            let parents: Option<Vec<Self>> = self.branches().iter().map(Self::parent).collect();
            return parents.map(Self::side_by_side);
        }
        self.outer().map(|outer| Self::nested(outer, self.levels - 1, self.ends))
    }

    /// Returns the number of levels, 1 to 4. Of a key with branches, that of the first branch.
    #[must_use]
    #[inline]
    pub fn levels(&self) -> usize {
        if self.has_branches() { self.branch(0).levels.into() } else { self.levels.into() }
    }

    /// Returns the number of levels of a key without branches, and 0 for a key with branches.
    #[inline]
    pub(crate) fn reach(&self) -> u8 {
        self.levels
    }

    /// Returns the first `count` levels. Returns all levels when `count` is 0, or when the key has no more.
    #[inline]
    pub(crate) fn level(&self, count: u8) -> KeyLevel<'_> {
        if count == 0 || count >= self.levels {
            return KeyLevel { bytes: self.as_bytes(), whole: Some(self) };
        }
        KeyLevel { bytes: &self.as_bytes()[..self.end(count)], whole: None }
    }

    /// Returns the text of the outermost level.
    #[cfg(any(test, feature = "redis"))]
    #[inline]
    pub(crate) fn outermost(&self) -> &[u8] {
        self.level(1).bytes
    }

    /// Appends the text of a level. At the greatest number of levels, joins it to the innermost one.
    pub(super) fn below(self, level: &[u8]) -> Self {
        if usize::from(self.levels) == MAX_LEVELS {
            return self.joined(level);
        }
        let outer = self.as_bytes();
        let mut ends = self.ends;
        // The outer levels have at most 3 × 64 bytes and two separators.
        ends[usize::from(self.levels) - 1] = outer.len() as u8;
        let mut text = Buffer::from_slice(outer);
        text.push(SEPARATOR);
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

    /// Returns the text of the innermost level.
    pub(super) fn innermost(&self) -> &[u8] {
        self.outer().map_or(self.as_bytes(), |outer| &self.as_bytes()[outer.len() + 1..])
    }

    /// Returns the text of each level, outermost first.
    pub(super) fn each_level(&self) -> impl Iterator<Item = &[u8]> {
        let starts = (0..self.levels).map(|outer| if outer == 0 { 0 } else { self.end(outer) + 1 });
        let ends = (1..self.levels).map(|level| self.end(level)).chain([self.as_bytes().len()]);
        starts.zip(ends).map(|(start, end)| &self.as_bytes()[start..end])
    }

    #[cold]
    pub(super) fn long_text(&self) -> &[u8] {
        match self.long.as_deref() {
            Some(LongKey::Nested { len, text }) => &text[..usize::from(*len)],
            Some(LongKey::Branches { text, .. }) => text,
            None => &[],
        }
    }

    /// Returns the levels around the innermost one.
    fn outer(&self) -> Option<&[u8]> {
        (self.levels > 1).then(|| &self.as_bytes()[..self.end(self.levels - 1)])
    }

    /// Returns the end of an outer level, which is counted from 1.
    #[inline]
    fn end(&self, level: u8) -> usize {
        self.ends[usize::from(level) - 1].into()
    }

    /// Creates a key from the text of all its levels.
    fn nested(text: &[u8], levels: u8, ends: [u8; MAX_LEVELS - 1]) -> Self {
        if text.len() <= INLINE_BYTES {
            return Self { levels, ends, ..Self::of(text) };
        }
        let mut long = [0; LONG_BYTES];
        long[..text.len()].copy_from_slice(text);
        let long = LongKey::Nested { len: text.len() as u16, text: long };
        Self { len: LONG, levels, ends, long: Some(Arc::new(long)), ..Self::EMPTY }
    }
}

impl<'a> KeyLevel<'a> {
    #[inline]
    pub(crate) fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the first `N` bytes of a whole key with its padding, when the key is not longer.
    #[inline]
    pub(crate) fn padded<const N: usize>(self) -> Option<&'a [u8; N]> {
        let key = self.whole?;
        if usize::from(key.len) <= N { key.text.first_chunk() } else { None }
    }
}
