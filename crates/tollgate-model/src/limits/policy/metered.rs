//! Sets the part of a key that a policy meters: the outer levels of a nested key, and one of its
//! branches.
//!
//! Levels are counted. A name for each would have to be stored in the key, and compared with that
//! of the policy in each check.
//! How a key gets levels and branches is in `key/combined.rs`.

use super::{LEVELS, Policy};
use crate::{
    Error, ErrorKind, Key,
    key::{MAX_BRANCHES, MAX_LEVELS},
};

impl Policy {
    /// Meters the first `level` levels of a nested key instead of the whole key; 1 is the outermost
    /// level.
    ///
    /// All keys with the same first levels then spend from one counter. See [`Key::child`] for an
    /// example. A check of a key with fewer levels fails with
    /// [`ErrorKind::KeyLevels`](crate::ErrorKind::KeyLevels).
    ///
    /// # Panics
    ///
    /// Panics when the level is not between 1 and 4. In a `const` this fails the build.
    #[must_use]
    #[track_caller]
    pub const fn at_level(mut self, level: u8) -> Self {
        if !is_level(level) {
            panic!("policy level must be 1 to 4");
        }
        self.reach = self.reach & !LEVELS | level;
        self
    }

    /// Meters the first `level` levels of a nested key, as [`at_level`](Self::at_level) does, for a
    /// level that is known only at run time.
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
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when the level is not between 1
    /// and 4.
    pub fn try_at_level(self, level: u8) -> Result<Self, Error> {
        if !is_level(level) {
            return Err(Error::config(format!(
                "policy level must be 1 to 4, got {level} in policy {}",
                self.name()
            )));
        }
        Ok(self.at_level(level))
    }

    /// Refuses a key that lacks the branch or the levels that the policy meters.
    pub(crate) fn find(&self, key: &Key) -> Result<(), Error> {
        let lacking = match key.branches().get(usize::from(self.reach >> 4)) {
            Some(branch) if usize::from(self.depth()) <= branch.levels() => return Ok(()),
            Some(branch) => format!(
                "{} levels of a key, got a key of {}",
                self.depth(),
                branch.levels()
            ),
            None => format!(
                "branch {} of a key, got a key of {}",
                self.branch(),
                key.branches().len()
            ),
        };
        Err(Error::new(
            ErrorKind::KeyLevels,
            format!("policy {} meters {lacking}", self.name()),
        ))
    }

    /// Meters one branch of a key that has several [side by side](crate::Key::with_branch); 1, the
    /// default, is the first branch.
    ///
    /// Combine it with [`at_level`](Self::at_level) to meter the outer levels of the branch. A
    /// check of a key with fewer branches fails with
    /// [`ErrorKind::KeyLevels`](crate::ErrorKind::KeyLevels). A key without branches is one branch.
    ///
    /// # Panics
    ///
    /// Panics when the branch is not between 1 and 4. In a `const` this fails the build.
    #[must_use]
    #[track_caller]
    pub const fn at_branch(mut self, branch: u8) -> Self {
        if !is_branch(branch) {
            panic!("policy branch must be 1 to 4");
        }
        self.reach = (branch - 1) << 4 | self.depth();
        self
    }

    /// Meters one branch of a key, as [`at_branch`](Self::at_branch) does, for a branch that is
    /// known only at run time.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when the branch is not between 1
    /// and 4.
    pub fn try_at_branch(self, branch: u8) -> Result<Self, Error> {
        if !is_branch(branch) {
            return Err(Error::config(format!(
                "policy branch must be 1 to 4, got {branch} in policy {}",
                self.name()
            )));
        }
        Ok(self.at_branch(branch))
    }
}

const fn is_level(level: u8) -> bool {
    level >= 1 && level as usize <= MAX_LEVELS
}

const fn is_branch(branch: u8) -> bool {
    branch >= 1 && branch as usize <= MAX_BRANCHES
}
