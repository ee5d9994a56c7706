use std::{borrow::Cow, fmt};

/// Reports that a request has no key.
///
/// The client reads the message of a [missing](Self::missing) key. The message must not contain the
/// value that the client sent.
///
/// ```
/// use tollgate_tower::key::{KeyError, KeyErrorKind};
///
/// let error = KeyError::missing("header x-api-key is missing");
/// assert_eq!(error.kind(), KeyErrorKind::Missing);
/// assert_eq!(error.to_string(), "header x-api-key is missing");
/// ```
#[derive(Clone, Debug)]
pub struct KeyError {
    kind: KeyErrorKind,
    message: Cow<'static, str>,
}

/// Says whether the client or the service has to correct a [`KeyError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyErrorKind {
    /// The client did not send the key, or sent an invalid one. The response is 400.
    Missing,
    /// The service is set up wrongly, so that no request can have a key. The response is 500, and the
    /// message is logged.
    Misconfigured,
}

impl KeyError {
    /// Creates the error of a request without a valid key. The client receives `message`.
    pub fn missing(message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: KeyErrorKind::Missing, message: message.into() }
    }

    /// Creates the error of a service that is set up wrongly. The log receives `message`, which should
    /// say how to correct the setup.
    pub fn misconfigured(message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: KeyErrorKind::Misconfigured, message: message.into() }
    }

    /// Returns whether the client or the service has to correct the error.
    #[must_use]
    pub fn kind(&self) -> KeyErrorKind {
        self.kind
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for KeyError {}
