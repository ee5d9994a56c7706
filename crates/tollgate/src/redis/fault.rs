use redis::{ErrorKind as Class, RedisError, ServerErrorKind};

use crate::{Error, ErrorKind};

/// What an error of the connection means for the call that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server does not have the script; nothing ran.
    NoScript,
    /// The connection leads nowhere useful: it is dropped, the next call makes another.
    Connection,
    /// The server answered, and cannot or will not do this now.
    Server,
}

impl Fault {
    pub(super) fn of(error: &RedisError) -> Self {
        match error.kind() {
            Class::Server(ServerErrorKind::NoScript) => Self::NoScript,
            Class::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading) => {
                Self::Connection
            }
            Class::Server(_) => Self::Server,
            Class::Extension if error.code().is_some() => Self::Server,
            _ => Self::Connection,
        }
    }
}

/// The error to show: its class, and what the server or the system said that holds no secret.
pub(super) fn error(error: &RedisError) -> Error {
    let code = error.code().unwrap_or_default();
    let (kind, what) = match (error.kind(), code) {
        (Class::AuthenticationFailed, _) | (_, "NOAUTH" | "WRONGPASS") => {
            (ErrorKind::Config, "redis refuses the user or password")
        }
        (_, "NOPERM") => (ErrorKind::Config, "the redis user lacks a right that the rate limiter needs"),
        (_, "WRONGTYPE") => (ErrorKind::Config, "a key of the rate limiter holds somebody else's data"),
        (_, "CROSSSLOT") => (ErrorKind::Config, "the keys of one decision lie in different cluster slots"),
        (Class::InvalidClientConfig, _) => (ErrorKind::Config, "the redis connection is configured wrongly"),
        (_, "OOM") => (ErrorKind::Unavailable, "redis is out of memory (OOM)"),
        (_, "NOREPLICAS") => (ErrorKind::Unavailable, "redis has too few replicas to write (NOREPLICAS)"),
        (_, "BUSY") => (ErrorKind::Unavailable, "redis is busy running a script (BUSY)"),
        (_, "MISCONF") => (ErrorKind::Unavailable, "redis refuses writes because it cannot persist (MISCONF)"),
        (_, "READONLY") => (ErrorKind::Unavailable, "the redis server is a replica (READONLY)"),
        (_, "MASTERDOWN") => (ErrorKind::Unavailable, "the redis replica lost its master (MASTERDOWN)"),
        (_, "LOADING") => (ErrorKind::Unavailable, "redis is loading its data (LOADING)"),
        (_, "CLUSTERDOWN") => (ErrorKind::Unavailable, "the redis cluster is down (CLUSTERDOWN)"),
        (_, "MOVED" | "ASK" | "TRYAGAIN") => (ErrorKind::Config, "redis is a cluster, but was not configured as one"),
        (Class::Server(ServerErrorKind::ResponseError), _) => server_text(error),
        (Class::Parse | Class::UnexpectedReturnType, _) => {
            (ErrorKind::Protocol, "redis answered with something that is no reply")
        }
        _ if error.is_timeout() => (ErrorKind::Timeout, "redis did not answer in time"),
        _ if error.is_connection_refusal() => (ErrorKind::Unavailable, "nothing listens at the redis address"),
        (Class::Io, _) => (ErrorKind::Unavailable, "the connection to redis is broken"),
        _ => (ErrorKind::Unavailable, "redis cannot be used"),
    };
    match io_error(error) {
        Some(io) => Error::with_source(kind, what, io),
        None => Error::new(kind, what),
    }
}

/// A plain `ERR`. Its text may quote arguments, so it is matched and never shown.
fn server_text(error: &RedisError) -> (ErrorKind, &'static str) {
    let text = error.detail().unwrap_or_default();
    if text.contains("can't run this command") || text.contains("ACL failure") || text.contains("can't access") {
        (ErrorKind::Config, "the redis user lacks a right that the rate limit script needs")
    } else if text.contains("max number of clients") {
        (ErrorKind::Unavailable, "redis has too many clients already")
    } else {
        (ErrorKind::Protocol, "redis refuses the rate limit script")
    }
}

/// The system's own error behind this one; it knows no address, user or key.
fn io_error(error: &RedisError) -> Option<std::io::Error> {
    let source = std::error::Error::source(error)?.downcast_ref::<std::io::Error>()?;
    Some(source.kind().into())
}
