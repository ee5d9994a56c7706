use std::{borrow::Cow, fmt};

/// Why a request has no key.
///
/// The message of a [missing](Self::missing) key is told to the client; it never holds what the
/// client sent.
#[derive(Clone, Debug)]
pub struct KeyError {
    kind: KeyErrorKind,
    message: Cow<'static, str>,
}

/// Whose fault it is that there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyErrorKind {
    /// The client left out what it should have sent, or sent nonsense: it is answered with 400.
    Missing,
    /// The service is set up wrongly, so that no request can have a key: the client is answered
    /// with 500, and the message goes to the log.
    Misconfigured,
}

impl KeyError {
    /// The client left out what it should have sent, or sent nonsense; `message` is told to it.
    pub fn missing(message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: KeyErrorKind::Missing, message: message.into() }
    }

    /// The service is set up wrongly; `message` goes to the log and says what to do about it.
    pub fn misconfigured(message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: KeyErrorKind::Misconfigured, message: message.into() }
    }

    /// Whose fault it is.
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
