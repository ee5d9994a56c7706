//! What an error of the client library or the server means: for the caller, in safe words, and for
//! the connection.
//! Whether the call can have run is decided in `server/not_executed.rs`.

use std::{borrow::Cow, fmt, io, sync::Arc};

use redis::{ErrorKind as RedisKind, RedisError, ServerErrorKind};

use tollgate_core::{Error, ErrorKind};

/// Sorts an error of a call by what it means for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// The server does not know the script. Nothing was executed.
    UnknownScript,
    /// The connection is broken. The next call makes a new one.
    BrokenConnection,
    /// The server answered that it is not the server to ask, or not yet. The next call looks for
    /// the server again.
    WrongServer,
    /// The server answered, and cannot or will not execute the call now.
    Refused,
}

impl ErrorClass {
    pub(crate) fn of(error: &RedisError) -> Self {
        match error.kind() {
            RedisKind::Server(ServerErrorKind::NoScript) => Self::UnknownScript,
            RedisKind::Server(
                ServerErrorKind::ReadOnly
                | ServerErrorKind::MasterDown
                | ServerErrorKind::BusyLoading,
            ) => Self::WrongServer,
            RedisKind::Server(_) => Self::Refused,
            RedisKind::Extension if error.code().is_some() => Self::Refused,
            _ => Self::BrokenConnection,
        }
    }
}

const BROKEN: (ErrorKind, &str) = (
    ErrorKind::ConnectionLost,
    "the connection to redis is broken",
);
const IN_CLUSTER: &str =
    "the redis server is part of a cluster, but the store was built for a single server";

/// Returns whether a call inside a script was refused because its slot is being moved, and its key
/// is not here. Redis 8 has another message when some of the keys are still here.
pub(crate) fn is_refused_in_move(error: &RedisError) -> bool {
    error.detail().is_some_and(|text| {
        text.contains("non local key") || text.contains("during rehashing of the slot")
    })
}

/// An error of our own stream. The client library hands it on as the source of an I/O error, where
/// [`error`] finds it.
#[derive(Debug)]
pub(crate) struct StreamError {
    kind: ErrorKind,
    words: &'static str,
}

impl StreamError {
    pub(crate) fn error(kind: ErrorKind, words: &'static str) -> io::Error {
        io::Error::other(Self { kind, words })
    }

    fn of(error: &RedisError) -> Option<&Self> {
        system_error(error)?.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words)
    }
}

impl std::error::Error for StreamError {}

/// Converts an error of a connection that is not up yet. `server` names the server: its kind, and
/// its host and port. A server that `may_want_tls` is one that is spoken to without.
pub(crate) fn connecting(server: &str, may_want_tls: bool, error: &RedisError) -> Error {
    let cause = self::error(error);
    let is_unreachable = |io: &io::Error| {
        matches!(
            io.kind(),
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable
        )
    };
    let words = match cause.kind() {
        ErrorKind::ConnectionRefused => "nothing listens there".into(),
        ErrorKind::ConnectionLost if system_error(error).is_some_and(is_unreachable) => {
            "there is no way to it".into()
        }
        // A server that expects TLS ends a connection without it, and says nothing.
        ErrorKind::ConnectionLost if may_want_tls => {
            "the connection ended before the server answered; if it expects TLS, the URL begins with rediss".into()
        }
        ErrorKind::ConnectionLost => "the connection ended before the server answered".into(),
        _ => Cow::Owned(cause.to_string()),
    };
    with_source(
        cause.kind(),
        format!("cannot connect to {server}: {words}").into(),
        error,
    )
}

/// Converts an error of the client. Keeps the words of the server or the system that hold no
/// secret.
pub(crate) fn error(error: &RedisError) -> Error {
    if let Some(passed_on) = StreamError::of(error) {
        return Error::new(passed_on.kind, passed_on.words);
    }
    let code = error.code().unwrap_or_default();
    let (kind, message) = match (error.kind(), code) {
        (RedisKind::AuthenticationFailed, _) | (_, "NOAUTH" | "WRONGPASS") => (
            ErrorKind::Authentication,
            "redis refuses the user or password",
        ),
        (_, "NOPERM") => (
            ErrorKind::PermissionDenied,
            "the redis user lacks a right that the rate limiter needs",
        ),
        (_, "WRONGTYPE") => (
            ErrorKind::WrongType,
            "a key of the rate limiter holds data of another program",
        ),
        (_, "CROSSSLOT") => (
            ErrorKind::CrossSlot,
            "the keys of one decision lie in different cluster slots",
        ),
        (RedisKind::InvalidClientConfig, _) => (
            ErrorKind::Config,
            "the redis connection is configured wrongly",
        ),
        (_, "OOM") => (ErrorKind::OutOfMemory, "redis is out of memory (OOM)"),
        (_, "NOREPLICAS") => (
            ErrorKind::TooFewReplicas,
            "redis has too few replicas to write (NOREPLICAS)",
        ),
        (_, "BUSY") => (ErrorKind::Busy, "redis is busy with a script (BUSY)"),
        (_, "MISCONF") => (
            ErrorKind::WritesDisabled,
            "redis refuses writes because it cannot persist (MISCONF)",
        ),
        (_, "READONLY") => (
            ErrorKind::ReadOnly,
            "the redis server is a replica (READONLY)",
        ),
        (_, "MASTERDOWN") => (
            ErrorKind::MasterDown,
            "the redis replica lost its master (MASTERDOWN)",
        ),
        (_, "LOADING") => (ErrorKind::Loading, "redis is loading its data (LOADING)"),
        (_, "CLUSTERDOWN") => (
            ErrorKind::ClusterDown,
            "the redis cluster is down (CLUSTERDOWN)",
        ),
        (_, "MOVED" | "ASK" | "TRYAGAIN") => (ErrorKind::ClusterMismatch, IN_CLUSTER),
        (RedisKind::Server(ServerErrorKind::ResponseError), _) => server_text(error),
        (RedisKind::Parse, _) if is_cut(error) => BROKEN,
        (RedisKind::Parse | RedisKind::UnexpectedReturnType, _) => {
            (ErrorKind::Protocol, "redis sent a reply that is not valid")
        }
        _ if error.is_timeout() => (ErrorKind::Timeout, "redis did not answer in time"),
        _ if error.is_connection_refusal() => (
            ErrorKind::ConnectionRefused,
            "nothing listens at the redis address",
        ),
        _ if is_tls(error) => (ErrorKind::Tls, tls_words(error)),
        (RedisKind::Io, _) => BROKEN,
        _ => (ErrorKind::Unavailable, "redis cannot be used"),
    };
    with_source(kind, message.into(), error)
}

fn with_source(kind: ErrorKind, message: Cow<'static, str>, error: &RedisError) -> Error {
    match system_error(error) {
        // The kind alone: it holds no address, user or key.
        Some(io) => Error::with_source(kind, message, io::Error::from(io.kind())),
        None => Error::new(kind, message),
    }
}

/// Sorts a plain `ERR`. Its text may quote arguments, so the text is matched and never shown.
fn server_text(error: &RedisError) -> (ErrorKind, &'static str) {
    let text = error.detail().unwrap_or_default();
    if text.contains("can't run this command")
        || text.contains("ACL failure")
        || text.contains("can't access")
    {
        (
            ErrorKind::PermissionDenied,
            "the redis user lacks a right that the rate limit script needs",
        )
    } else if text.contains("cluster support disabled") {
        (
            ErrorKind::ClusterMismatch,
            "the redis server is not part of a cluster, but the store was built for a cluster",
        )
    } else if is_refused_in_move(error) {
        (ErrorKind::ClusterMismatch, IN_CLUSTER)
    } else if text.contains("DB index is out of range") || text.contains("SELECT is not allowed") {
        (
            ErrorKind::Config,
            "the server has no database of this number",
        )
    } else if text.contains("max number of clients") {
        (ErrorKind::TooManyClients, "redis accepts no more clients")
    } else {
        (ErrorKind::Protocol, "redis refuses the rate limit script")
    }
}

/// Returns whether a reply could not be read because the connection ended in its middle. Only the
/// text of the parser says so.
fn is_cut(error: &RedisError) -> bool {
    error.to_string().contains("end of input")
}

/// Returns whether TLS failed. Only TLS reports invalid data from the system.
fn is_tls(error: &RedisError) -> bool {
    system_error(error).is_some_and(|io| io.kind() == io::ErrorKind::InvalidData)
}

/// Returns whether the server does not know a command.
pub(crate) fn is_unknown_command(error: &RedisError) -> bool {
    error.kind() == RedisKind::Server(ServerErrorKind::ResponseError)
        && error
            .detail()
            .is_some_and(|text| text.starts_with("unknown command"))
}

/// Returns what is wrong with TLS, where it is known.
#[cfg(feature = "tls")]
fn tls_words(error: &RedisError) -> &'static str {
    use rustls::{AlertDescription, CertificateError, Error as TlsError};

    let cause = system_error(error)
        .and_then(io::Error::get_ref)
        .and_then(|cause| cause.downcast_ref::<TlsError>());
    match cause {
        Some(TlsError::InvalidCertificate(reason)) => match reason {
            CertificateError::UnknownIssuer => {
                "TLS with redis failed: the authority that signed the server's certificate is not trusted here"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "TLS with redis failed: the server's certificate is for another name than the host of the URL"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "TLS with redis failed: the server's certificate has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "TLS with redis failed: the server's certificate is not valid yet by the clock of this machine"
            }
            _ => "TLS with redis failed: the server's certificate is not valid",
        },
        Some(TlsError::InvalidMessage(_)) => {
            "TLS with redis failed: the server does not speak TLS on this port"
        }
        Some(TlsError::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied,
        )) => "TLS with redis failed: the server refuses the client certificate, or asks for one",
        _ => NO_TLS,
    }
}

#[cfg(not(feature = "tls"))]
fn tls_words(_: &RedisError) -> &'static str {
    NO_TLS
}

const NO_TLS: &str =
    "TLS with redis failed: a certificate was refused, or one side does not use TLS";

/// Returns whether the server does not accept the connection.
pub(crate) fn rejects_connection(error: &RedisError) -> bool {
    matches!(
        self::error(error).kind(),
        ErrorKind::Authentication | ErrorKind::TooManyClients
    )
}

/// Returns the system's error behind this one. The client keeps it in an `Arc`.
fn system_error(error: &RedisError) -> Option<&io::Error> {
    let source = std::error::Error::source(error)?;
    source
        .downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?
        .downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error of a reply as the server writes it.
    fn reply(line: &str) -> RedisError {
        match redis::parse_redis_value(format!("-{line}\r\n").as_bytes()) {
            Ok(redis::Value::ServerError(error)) => error.into(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_refusal_keeps_the_connection() {
        let lines = [
            "OOM command not allowed",
            "NOREPLICAS not enough good replicas",
            "MISCONF cannot persist",
            "BUSY a script runs",
            "NOPERM no right",
            "WRONGTYPE a list",
            "CLUSTERDOWN the cluster is down",
            "ERR any text",
            "MOVED 7 10.0.0.1:7000",
        ];
        for line in lines {
            assert_eq!(ErrorClass::of(&reply(line)), ErrorClass::Refused, "{line}");
        }
    }

    #[test]
    fn a_server_that_is_not_the_one_to_ask_is_left() {
        for line in [
            "READONLY a replica",
            "MASTERDOWN no master",
            "LOADING the data",
        ] {
            assert_eq!(
                ErrorClass::of(&reply(line)),
                ErrorClass::WrongServer,
                "{line}"
            );
        }
        assert_eq!(
            ErrorClass::of(&reply("NOSCRIPT unknown")),
            ErrorClass::UnknownScript
        );
        let broken = RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(ErrorClass::of(&broken), ErrorClass::BrokenConnection);
    }
}
