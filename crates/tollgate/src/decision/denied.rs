use std::{fmt, time::Duration};

use super::Decision;

/// Reports a denied request as an error, from [`Decision::into_result`].
///
/// The message names the policy that denies and the wait. It does not contain the key.
#[derive(Clone, Debug)]
pub struct Denied(Box<Decision>);

impl Denied {
    pub(super) fn new(decision: Decision) -> Self {
        Self(Box::new(decision))
    }

    /// Returns the decision that denied the request.
    #[must_use = "this only returns the decision"]
    pub fn decision(&self) -> &Decision {
        &self.0
    }

    /// Returns how long until the same request would pass, if no other request spends from this key.
    ///
    /// A denial always has a wait, so this is `Some`.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after()
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rate limit")?;
        if let Some(state) = self.0.binding() {
            write!(f, " {}", state.policy().name())?;
        }
        f.write_str(" exceeded")?;
        match self.retry_after() {
            Some(wait) => write!(f, ", retry after {wait:?}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Denied {}
