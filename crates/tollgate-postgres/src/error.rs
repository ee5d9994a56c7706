//! Sorts errors of the client and of the server by what they mean for a limiter.
//! How long a failing server is left alone is decided by the breaker of the core.

use std::{error::Error as _, fmt, io};

use deadpool_postgres::{PoolError, TimeoutType};
use tokio_postgres::error::{DbError, SqlState};
use tollgate_core::{Error, ErrorKind, ForeignText};

/// An error that is known here, on its way through the client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) kind: ErrorKind,
    pub(crate) words: &'static str,
}

impl Known {
    /// The code of an error message that stands for one of kind [`Protocol`](ErrorKind::Protocol).
    /// No server has it.
    pub(crate) const CODE: &str = "TOLLG";

    #[cfg(feature = "tls")]
    pub(crate) fn into_io(self) -> io::Error {
        io::Error::other(self)
    }

    fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words)
    }
}

impl std::error::Error for Known {}

/// Sorts an error of the client. Its message names no key and no secret.
pub(crate) fn sorted(error: &tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(refused) => of_server(refused),
        None => of_connection(error),
    }
}

/// Sorts an error of the pool. `size` is the number of its connections.
pub(crate) fn of_pool(error: &PoolError, size: usize) -> Error {
    match error {
        PoolError::Backend(error) => sorted(error),
        PoolError::Timeout(TimeoutType::Wait) => Error::new(
            ErrorKind::Overloaded,
            format!("the {size} connections to postgres are all in use"),
        ),
        PoolError::Timeout(_) => Error::new(
            ErrorKind::Unavailable,
            "postgres does not answer within the time for connecting",
        ),
        PoolError::Closed => Error::new(ErrorKind::Unavailable, "the pool of postgres is closed"),
        PoolError::NoRuntimeSpecified => Error::new(
            ErrorKind::Config,
            "the pool of postgres has timeouts and no runtime",
        ),
        PoolError::PostCreateHook(error) => match error {
            deadpool_postgres::HookError::Backend(error) => sorted(error),
            _ => Error::new(
                ErrorKind::Unavailable,
                "the hook of the pool of postgres failed",
            ),
        },
    }
}

/// Returns whether the server has undone a write because others wrote: it is decided again.
pub(crate) fn is_conflict(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED
    })
}

/// Returns whether the session does not know a statement that was prepared on the connection.
pub(crate) fn lost_statements(error: &tokio_postgres::Error) -> bool {
    error
        .code()
        .is_some_and(|code| *code == SqlState::INVALID_SQL_STATEMENT_NAME)
}

fn of_server(refused: &DbError) -> Error {
    let code = refused.code();
    let (kind, what) = match code.code() {
        "28P01" | "28000" => (
            ErrorKind::Authentication,
            "refuses the user or the password",
        ),
        "42501" => (ErrorKind::PermissionDenied, "denies a right on the table"),
        "3D000" => (ErrorKind::Config, "has no such database"),
        "42P01" | "3F000" => (
            ErrorKind::Config,
            "has no such table: run the SQL of tollgate_postgres::schema, or PostgresStore::create_table",
        ),
        "42703" | "42804" => (ErrorKind::Config, "has a table with other columns"),
        "25006" => (ErrorKind::ReadOnly, "is a standby, or read-only"),
        "53100" => (ErrorKind::WritesDisabled, "has no space on its disk"),
        "53200" => (ErrorKind::OutOfMemory, "is out of memory"),
        "53300" => (ErrorKind::TooManyClients, "accepts no more connections"),
        "57P03" => (ErrorKind::Loading, "is starting, or shutting down"),
        "57014" => (
            ErrorKind::Timeout,
            "has cancelled the statement, and has changed nothing",
        ),
        "55P03" => (ErrorKind::Busy, "did not get a lock in time"),
        "57P01" | "57P02" | "57P05" | "25P03" | "08000" | "08003" | "08006" => {
            (ErrorKind::ConnectionLost, "has closed the connection")
        }
        "26000" => (
            ErrorKind::Unavailable,
            "has lost a prepared statement: a pooler in transaction mode has to keep them, as PgBouncer does from 1.21 \
             on with max_prepared_statements",
        ),
        Known::CODE => {
            let text = ForeignText(refused.message()).to_string();
            return Error::new(ErrorKind::Protocol, text);
        }
        code => {
            let text = format!(
                "postgres says {} {}: {}",
                ForeignText(refused.severity()),
                ForeignText(code),
                ForeignText(refused.message())
            );
            return Error::new(ErrorKind::Unavailable, text);
        }
    };
    Error::new(kind, format!("postgres {what} ({})", code.code()))
}

fn of_connection(error: &tokio_postgres::Error) -> Error {
    let mut cause = error.source();
    let mut system = None;
    while let Some(source) = cause {
        system = system.or(source.downcast_ref::<io::Error>());
        cause = source.source();
    }
    let text = error.to_string();
    let is_tls = text.starts_with("error performing TLS") || system.is_some_and(is_of_tls);
    match system {
        Some(system) => of_system(system, is_tls, text.starts_with("error connecting")),
        None if error.is_closed() => lost(),
        None if is_tls => tls_failed(),
        None if text.contains("password") || text.contains("authentication") => Error::new(
            ErrorKind::Authentication,
            "postgres asks for another kind of password, or for one",
        ),
        None if text.contains("unexpected") || text.contains("deserializing") => not_valid(),
        None => Error::new(ErrorKind::Unavailable, "postgres cannot be used"),
    }
}

#[cfg(feature = "tls")]
fn is_of_tls(system: &io::Error) -> bool {
    system
        .get_ref()
        .is_some_and(|cause| cause.is::<rustls::Error>())
}

#[cfg(not(feature = "tls"))]
fn is_of_tls(_: &io::Error) -> bool {
    false
}

fn of_system(system: &io::Error, is_tls: bool, is_dial: bool) -> Error {
    if let Some(known) = Known::of(system) {
        return Error::new(known.kind, known.words);
    }
    match system.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Error::new(
            ErrorKind::ConnectionRefused,
            "nothing listens at the address of postgres",
        ),
        io::ErrorKind::TimedOut => Error::new(
            ErrorKind::Unavailable,
            "postgres does not answer within the time for connecting",
        ),
        // The client asks each server of the URL whether it accepts writes.
        io::ErrorKind::PermissionDenied => Error::new(
            ErrorKind::ReadOnly,
            "every server of postgres is a standby, or read-only",
        ),
        io::ErrorKind::InvalidData if is_tls => tls_failed(),
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput if !is_dial => not_valid(),
        _ => lost(),
    }
}

fn tls_failed() -> Error {
    Error::new(
        ErrorKind::Tls,
        "TLS to postgres failed, or one side does not use it",
    )
}

/// Reports values or messages that no server sends.
pub(crate) fn not_valid() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "postgres sent values that are not valid",
    )
}

/// Reports a connection that broke.
pub(crate) fn lost() -> Error {
    Error::new(
        ErrorKind::ConnectionLost,
        "the connection to postgres was lost",
    )
}
