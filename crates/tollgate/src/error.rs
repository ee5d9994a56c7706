use std::{borrow::Cow, fmt, sync::Arc};

use crate::reason::Reason;

/// Why no decision was reached.
///
/// A denial is not an error, it is a [`Decision`](crate::Decision). Messages name the field and the
/// value that are wrong; keys, passwords and connection URLs never stand in them.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ErrorKind, Quota};
///
/// let error = Quota::try_new(0, Duration::from_secs(1)).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Config);
/// assert_eq!(error.to_string(), "quota amount must be at least 1, got 0");
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    reason: Reason,
    message: Cow<'static, str>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The classes of [`Error`], by what the caller can do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Something that was configured is wrong: a quota, a policy, an address, a password, a right
    /// the server does not grant. Trying again does not help.
    Config,
    /// The cost is above the burst of a policy, so that no waiting would ever let it pass. The
    /// state is untouched. Split the work, or refuse it for good.
    CostExceedsBurst,
    /// The store answered with something that is no answer. The call may have been charged.
    Protocol,
    /// The store did not answer before the deadline. The call may have been charged.
    Timeout,
    /// The store cannot be reached, or says that it cannot serve now.
    Unavailable,
    /// The store cannot do what was asked (entries of a policy that keeps none, for example).
    Unsupported,
}

impl Error {
    pub(crate) fn new(why: impl Into<Reason>, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Arc::new(Inner { reason: why.into(), message: message.into(), source: None }))
    }

    #[cfg(feature = "redis")]
    pub(crate) fn with_source(
        why: impl Into<Reason>,
        message: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(Inner { reason: why.into(), message: message.into(), source: Some(source.into()) }))
    }

    pub(crate) fn config(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    /// An error of a [`Store`](crate::Store) outside this crate: it cannot be reached, or cannot
    /// serve now.
    pub fn unavailable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// What class of error this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.reason.kind()
    }

    /// The cause in one word that does not change between versions: a label for metrics and alerts.
    ///
    /// | kind | words |
    /// |---|---|
    /// | [`Config`](ErrorKind::Config) | `auth`, `acl`, `tls`, `wrongtype`, `crossslot`, `cluster` (a cluster that was not configured as one), else `config` |
    /// | [`Timeout`](ErrorKind::Timeout) | `timeout` |
    /// | [`Unavailable`](ErrorKind::Unavailable) | `refused` (nothing listens), `connection` (it broke), `breaker` (not asked, because it did not answer before), `oom`, `noreplicas`, `busy`, `misconf`, `readonly`, `masterdown`, `loading`, `clusterdown`, `maxclients`, `overload` (too many checks wait here), else `unavailable` |
    /// | [`Protocol`](ErrorKind::Protocol) | `protocol` |
    /// | [`CostExceedsBurst`](ErrorKind::CostExceedsBurst) | `cost` |
    /// | [`Unsupported`](ErrorKind::Unsupported) | `unsupported` |
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.0.reason.as_str()
    }

    pub(crate) fn cause(&self) -> Reason {
        self.0.reason
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error").field("kind", &self.kind()).field("message", &self.0.message).finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as _)
    }
}
