//! Sets the part of a key that a policy meters: the outer levels of a nested key, and one of its
//! branches.
//!
//! Levels are counted. A name for each would have to be stored in the key, and compared with that
//! of the policy in each check.

use super::{LEVELS, Policy};
use crate::{
    Error, ErrorKind, Key,
    model::key::{MAX_BRANCHES, MAX_LEVELS},
};

impl Policy {
    /// Meters the first `level` levels of a nested key instead of the whole key; 1 is the outermost
    /// level.
    ///
    /// All keys with the same first levels then spend from one counter. See [`Key::child`] for an
    /// example. A check of a key with fewer levels fails with
    /// [`ErrorKind::KeyLevels`](crate::ErrorKind::KeyLevels).
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
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// const API_KEY: Policy = Policy::token_bucket("api-key", Quota::per_second(100)).at_branch(2);
    /// assert_eq!(API_KEY.branch(), 2);
    /// ```
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
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let error = Policy::token_bucket("api-key", Quota::per_second(100)).try_at_branch(0).unwrap_err();
    /// assert_eq!(error.to_string(), "policy branch must be 1 to 4, got 0 in policy api-key");
    /// ```
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

#[cfg(test)]
mod tests {
    use crate::{ErrorKind, Key, Policy, PolicySet, Quota};

    fn policy(name: &'static str) -> Policy {
        Policy::token_bucket(name, Quota::per_second(1))
    }

    #[test]
    fn the_first_branch_is_the_default() {
        assert_eq!(policy("a").at_branch(1), policy("a"));
        assert_ne!(policy("a").at_branch(2), policy("a"));
        assert!(
            format!("{:?}", policy("a").at_level(3).at_branch(2)).ends_with(", level 3, branch 2")
        );
        let quota = Quota::per_second(7);
        assert_eq!(
            policy("a").at_branch(3).with_quota(quota).unwrap().branch(),
            3
        );
    }

    #[test]
    fn a_decision_belongs_to_the_branch_of_the_first_policy() {
        let key = Key::new("a").with_branch("b").with_branch("c");
        let set = PolicySet::from([policy("a").at_branch(2), policy("b").at_branch(3)]);
        assert_eq!(set.first_branch(&key), &Key::new("b"));
        assert_eq!(set.first_branch(&Key::new("flat")), &Key::new("flat"));
    }

    #[test]
    fn a_set_refuses_keys_that_lack_what_a_policy_meters() {
        let set = PolicySet::from([
            policy("a"),
            policy("b").at_branch(2).at_level(2),
            policy("c").at_branch(3),
        ]);
        let refusal = |key: Key| {
            let error = set.reaches(&key).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::KeyLevels);
            error.to_string()
        };
        assert_eq!(
            refusal(Key::new("a")),
            "policy b meters branch 2 of a key, got a key of 1"
        );
        let two = Key::new("a").child("b").with_branch("c");
        assert_eq!(
            refusal(two.clone()),
            "policy b meters 2 levels of a key, got a key of 1"
        );
        let nested = Key::new("a").with_branch(Key::new("b").child("c"));
        assert_eq!(
            refusal(nested.clone()),
            "policy c meters branch 3 of a key, got a key of 2"
        );
        assert!(set.reaches(&nested.with_branch("d")).is_ok());
        // Levels of the first branch are looked for in the first branch.
        let outer = PolicySet::from(policy("a").at_level(2));
        assert!(outer.reaches(&two).is_ok());
        assert!(
            outer
                .reaches(&Key::new("c").with_branch(Key::new("a").child("b")))
                .is_err()
        );
        assert!(
            PolicySet::from(policy("a")).reaches(&two).is_ok(),
            "other branches may be left over"
        );
    }
}
