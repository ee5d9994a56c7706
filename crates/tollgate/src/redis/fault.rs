use std::sync::Arc;

use redis::{ErrorKind as Class, RedisError, ServerErrorKind};

use crate::{Error, reason::Reason};

/// What an error of the connection means for the call that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The server does not have the script; nothing ran.
    NoScript,
    /// The connection leads nowhere useful: it is dropped, the next call makes another.
    Connection,
    /// The server answered that it is not, or not yet, the one to ask: the connection is dropped,
    /// and the server looked for anew.
    Topology,
    /// The server answered, and cannot or will not do this now.
    Server,
}

impl Fault {
    pub(super) fn of(error: &RedisError) -> Self {
        match error.kind() {
            Class::Server(ServerErrorKind::NoScript) => Self::NoScript,
            Class::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading) => {
                Self::Topology
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
    let (reason, what) = match (error.kind(), code) {
        (Class::AuthenticationFailed, _) | (_, "NOAUTH" | "WRONGPASS") => {
            (Reason::Auth, "redis refuses the user or password")
        }
        (_, "NOPERM") => (Reason::Acl, "the redis user lacks a right that the rate limiter needs"),
        (_, "WRONGTYPE") => (Reason::WrongType, "a key of the rate limiter holds somebody else's data"),
        (_, "CROSSSLOT") => (Reason::CrossSlot, "the keys of one decision lie in different cluster slots"),
        (Class::InvalidClientConfig, _) => (Reason::Config, "the redis connection is configured wrongly"),
        (_, "OOM") => (Reason::Oom, "redis is out of memory (OOM)"),
        (_, "NOREPLICAS") => (Reason::NoReplicas, "redis has too few replicas to write (NOREPLICAS)"),
        (_, "BUSY") => (Reason::Busy, "redis is busy running a script (BUSY)"),
        (_, "MISCONF") => (Reason::Misconf, "redis refuses writes because it cannot persist (MISCONF)"),
        (_, "READONLY") => (Reason::ReadOnly, "the redis server is a replica (READONLY)"),
        (_, "MASTERDOWN") => (Reason::MasterDown, "the redis replica lost its master (MASTERDOWN)"),
        (_, "LOADING") => (Reason::Loading, "redis is loading its data (LOADING)"),
        (_, "CLUSTERDOWN") => (Reason::ClusterDown, "the redis cluster is down (CLUSTERDOWN)"),
        (_, "MOVED" | "ASK" | "TRYAGAIN") => (Reason::Cluster, "redis is a cluster, but was not configured as one"),
        (Class::Server(ServerErrorKind::ResponseError), _) => server_text(error),
        (Class::Parse | Class::UnexpectedReturnType, _) => {
            (Reason::Protocol, "redis answered with something that is no reply")
        }
        _ if error.is_timeout() => (Reason::Timeout, "redis did not answer in time"),
        _ if error.is_connection_refusal() => (Reason::Refused, "nothing listens at the redis address"),
        _ if is_tls(error) => {
            (Reason::Tls, "TLS with redis fails: a certificate is refused, or one side speaks no TLS")
        }
        (Class::Io, _) => (Reason::Connection, "the connection to redis is broken"),
        _ => (Reason::Unavailable, "redis cannot be used"),
    };
    match io_error(error) {
        Some(io) => Error::with_source(reason, what, io),
        None => Error::new(reason, what),
    }
}

/// A plain `ERR`. Its text may quote arguments, so it is matched and never shown.
fn server_text(error: &RedisError) -> (Reason, &'static str) {
    let text = error.detail().unwrap_or_default();
    if text.contains("can't run this command") || text.contains("ACL failure") || text.contains("can't access") {
        (Reason::Acl, "the redis user lacks a right that the rate limit script needs")
    } else if text.contains("cluster support disabled") {
        (Reason::Cluster, "redis is no cluster, but was configured as one")
    } else if text.contains("max number of clients") {
        (Reason::MaxClients, "redis has too many clients already")
    } else {
        (Reason::Protocol, "redis refuses the rate limit script")
    }
}

/// Nothing but TLS finds bytes of its own that are invalid.
fn is_tls(error: &RedisError) -> bool {
    system(error).is_some_and(|io| io.kind() == std::io::ErrorKind::InvalidData)
}

/// Whether the server does not take the connection.
pub(super) fn is_unwelcome(error: &RedisError) -> bool {
    matches!(self::error(error).cause(), Reason::Auth | Reason::MaxClients)
}

/// The class of the system's own error behind this one; it knows no address, user or key.
fn io_error(error: &RedisError) -> Option<std::io::Error> {
    system(error).map(|io| io.kind().into())
}

/// The client keeps what is behind an error in an `Arc`.
fn system(error: &RedisError) -> Option<&std::io::Error> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?.downcast_ref()
}
