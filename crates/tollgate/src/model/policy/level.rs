//! The levels of a nested key that a policy meters.
//!
//! Levels are counted. A name for each would have to be stored in the key, and compared with that of the policy in each check.

use super::Policy;
use crate::{
    Error, ErrorKind, Key,
    model::key::{KeyLevel, MAX_LEVELS},
};

/// The bits of the number of levels in the reach.
const LEVELS: u8 = 15;

impl Policy {
    /// Meters the first `level` levels of a nested key instead of the whole key; 1 is the outermost level.
    ///
    /// All keys with the same first levels then spend from one counter. See [`Key::child`] for an example. A check of a
    /// key with fewer levels fails with [`ErrorKind::KeyLevels`](crate::ErrorKind::KeyLevels).
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// const TENANT: Policy = Policy::token_bucket("tenant", Quota::per_second(100)).at_level(1);
    /// assert_eq!(TENANT.level(), Some(1));
    /// ```
    ///
    /// # Panics
    ///
    /// Panics when the level is not between 1 and 4. In a `const` this fails the build.
    #[must_use]
    #[track_caller]
    pub const fn at_level(mut self, level: u8) -> Self {
        if !is_valid(level) {
            panic!("policy level must be 1 to 4");
        }
        self.reach = self.reach & !LEVELS | level;
        self
    }

    /// Meters the first `level` levels of a nested key, as [`at_level`](Self::at_level) does, for a level that is known
    /// only at run time.
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let error = Policy::token_bucket("tenant", Quota::per_second(100)).try_at_level(5).unwrap_err();
    /// assert_eq!(error.to_string(), "policy level must be 1 to 4, got 5 in policy tenant");
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when the level is not between 1 and 4.
    pub fn try_at_level(self, level: u8) -> Result<Self, Error> {
        if !is_valid(level) {
            return Err(Error::config(format!("policy level must be 1 to 4, got {level} in policy {}", self.name())));
        }
        Ok(self.at_level(level))
    }

    /// Returns the number of levels that the policy meters, and `None` when it meters the whole key.
    #[must_use]
    pub fn level(&self) -> Option<u8> {
        (self.depth() > 0).then_some(self.depth())
    }

    /// Returns the branch of a key that the policy meters. A key without branches returns itself.
    #[inline]
    pub(crate) fn branch_of<'a>(&self, key: &'a Key) -> &'a Key {
        key.branch(self.reach >> 4)
    }

    /// Returns the levels of a key that the policy meters.
    #[inline]
    pub(crate) fn metered<'a>(&self, key: &'a Key) -> KeyLevel<'a> {
        self.branch_of(key).level(self.depth())
    }

    /// Returns `true` when the state belongs to this key, or to one branch of it, alone, and not to an outer level, which
    /// other keys share.
    pub(crate) fn is_own(&self, key: &Key) -> bool {
        let branch = key.branches().get(usize::from(self.reach >> 4));
        branch.is_some_and(|branch| self.depth() == 0 || usize::from(self.depth()) == branch.levels())
    }

    /// Returns the number of levels that are metered; 0 for the whole branch.
    #[inline]
    pub(super) const fn depth(&self) -> u8 {
        self.reach & LEVELS
    }

    /// Returns what a key must have for this policy. A key without branches and with a [reach](Key::reach) as large has it.
    #[inline]
    pub(crate) fn reach(&self) -> u8 {
        self.reach
    }

    /// Refuses a key that lacks the branch or the levels that the policy meters.
    pub(crate) fn find(&self, key: &Key) -> Result<(), Error> {
        let lacking = match key.branches().get(usize::from(self.reach >> 4)) {
            Some(branch) if usize::from(self.depth()) <= branch.levels() => return Ok(()),
            Some(branch) => format!("{} levels of a key, got a key of {}", self.depth(), branch.levels()),
            None => format!("branch {} of a key, got a key of {}", self.branch(), key.branches().len()),
        };
        Err(Error::new(ErrorKind::KeyLevels, format!("policy {} meters {lacking}", self.name())))
    }
}

const fn is_valid(level: u8) -> bool {
    level >= 1 && level as usize <= MAX_LEVELS
}
