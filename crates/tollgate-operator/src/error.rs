//! The reasons why an operator could not do its work.
//! Mistakes in files of rules are those of tollgate-rules.

use std::fmt;

use tollgate::{Error, ErrorKind};

/// Reports why an operator could not do its work. The message has no password.
///
/// ```
/// use tollgate_operator::{Operator, OperatorErrorKind};
///
/// let error = Operator::builder("http://ann:secret@127.0.0.1").build().unwrap_err();
/// assert_eq!(error.kind(), OperatorErrorKind::Refused);
/// assert!(error.is_refused() && !error.to_string().contains("secret"));
/// ```
#[derive(Debug)]
pub struct OperatorError {
    kind: OperatorErrorKind,
    message: String,
}

/// Names the cause of an [`OperatorError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperatorErrorKind {
    /// The request is wrong: a URL, a key, a share, or an exception that the policy cannot have. It
    /// changed nothing, and is refused again.
    Refused,
    /// The request names what is not there: a limiter, a rule or an exception. It changed nothing.
    NotFound,
    /// The store has no room for another exception. It changed nothing.
    Full,
    /// The user in the URL has no right to it.
    Forbidden,
    /// The server did not answer in time, or could not do its part.
    Unavailable,
}

impl OperatorError {
    pub(crate) fn new(kind: OperatorErrorKind, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self { kind, message }
    }

    pub(crate) fn refused(message: impl fmt::Display) -> Self {
        Self::new(OperatorErrorKind::Refused, message)
    }

    pub(crate) fn not_found(message: impl fmt::Display) -> Self {
        Self::new(OperatorErrorKind::NotFound, message)
    }

    pub(crate) fn unavailable(message: impl fmt::Display) -> Self {
        Self::new(OperatorErrorKind::Unavailable, message)
    }

    /// Returns the cause.
    #[must_use]
    pub fn kind(&self) -> OperatorErrorKind {
        self.kind
    }

    /// Returns the message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns whether the request was refused. Otherwise the server could not do its part.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        use OperatorErrorKind::{Full, NotFound, Refused};
        matches!(self.kind, Refused | NotFound | Full)
    }
}

/// Takes what the core refuses as a refusal, and all else as a failure of the store.
impl From<Error> for OperatorError {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Config => OperatorErrorKind::Refused,
            ErrorKind::Full => OperatorErrorKind::Full,
            ErrorKind::PermissionDenied => OperatorErrorKind::Forbidden,
            _ => OperatorErrorKind::Unavailable,
        };
        Self::new(kind, error)
    }
}

impl fmt::Display for OperatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for OperatorError {}
