//! The one error type of the crate: what went wrong, in words that hold no key and no secret.
//! Its kinds are in `kind.rs`. A denial is no error: see `decision/`.

mod foreign;
mod kind;

use std::{borrow::Cow, fmt, sync::Arc};

pub use foreign::ForeignText;
pub use kind::{ErrorKind, ErrorKindParts};

/// Reports why no decision was reached.
///
/// A denial is not an error. It is a [`Decision`](crate::Decision). A message names the field and
/// the value that are wrong. An error of connecting names host and port. A message never contains a
/// key, a password or a connection URL.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ErrorKind, Quota};
///
/// let error = Quota::try_new(1, Duration::ZERO).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Config);
/// assert_eq!(error.to_string(), "quota period must be at least 1 µs, got 0ns");
/// ```
#[derive(Clone)]
pub struct Error(Arc<ErrorInner>);

struct ErrorInner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Creates an error, for a [`Store`] outside this crate.
    ///
    /// The message is lower case, without a full stop. It must not contain a key or a secret.
    ///
    /// [`Store`]: https://docs.rs/tollgate/latest/tollgate/trait.Store.html
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Arc::new(ErrorInner {
            kind,
            message: message.into(),
            source: None,
        }))
    }

    /// Creates an error with what caused it, which [`source`](std::error::Error::source) returns.
    ///
    /// ```
    /// use std::{error::Error as _, io};
    /// use tollgate::{Error, ErrorKind};
    ///
    /// let cause = io::Error::from(io::ErrorKind::ConnectionRefused);
    /// let error = Error::with_source(ErrorKind::ConnectionRefused, "the database does not listen", cause);
    /// assert_eq!(error.source().unwrap().to_string(), "connection refused");
    /// ```
    pub fn with_source(
        kind: ErrorKind,
        message: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(ErrorInner {
            kind,
            message: message.into(),
            source: Some(source.into()),
        }))
    }

    /// Creates an error of the kind [`Config`](ErrorKind::Config), for bad input.
    pub fn config(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    /// Returns the kind of the error. [`ErrorKind::as_str`] is a stable label for metrics and
    /// alerts.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

crate::debug_fields! { Error: kind = .kind(), message = .0.message }

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as _)
    }
}
