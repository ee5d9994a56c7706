//! The parts of a request that actions read, for tools that try rules without a server. Reading them
//! is the matter of `action`.

use std::fmt;

use http::HeaderName;

/// A part of a request that [`Descriptors`](crate::Descriptors) read.
///
/// [`Descriptors::reads`](crate::Descriptors::reads) lists them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestPart {
    /// The address of the client: see [`ClientIp`](crate::ClientIp).
    ClientAddress,
    /// A header field.
    Header(HeaderName),
    /// The method.
    Method,
    /// The path.
    Path,
    /// The route of an axum router.
    Route,
}

impl fmt::Display for RequestPart {
    /// Writes the part with its article, as in `the header x-tenant`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientAddress => f.write_str("the address of the client"),
            Self::Header(name) => write!(f, "the header {name}"),
            Self::Method => f.write_str("the method"),
            Self::Path => f.write_str("the path"),
            Self::Route => f.write_str("the route"),
        }
    }
}
