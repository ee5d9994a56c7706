//! Describes settings of a server that an operator should change.
//! What is looked for is in `mod.rs` and `scripts.rs`.

use std::fmt;

use tollgate_core::{Error, ErrorKind};

/// Describes a setting of a server that an operator should change. See
/// [`RedisStore::diagnose`](crate::RedisStore::diagnose).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    code: &'static str,
    detail: String,
}

/// The code of a right that the user lacks.
pub(super) const ACL: &str = "TOLLGATE-ACL";

impl Finding {
    pub(super) fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
        }
    }

    /// Returns a code that does not change between versions: `TOLLGATE-EVICTION`, `TOLLGATE-ACL`,
    /// `TOLLGATE-CLOCK`, `TOLLGATE-VERSION` or `TOLLGATE-DISTANT`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Returns what is wrong, and what to do about it.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

/// Returns `None` for a call that the user may not make.
pub(super) fn granted<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(error),
    }
}

/// Names a command that the user may not call, and the right to grant.
pub(super) fn lacks(command: &str, right: &str) -> Finding {
    Finding::new(
        ACL,
        format!("the user may not call {command}; grant {right}"),
    )
}
