//! Sorts errors of the client and of the server by what they mean for a limiter.
//! How long a failing server is left alone is decided by the breaker of the core.

use std::{error::Error as _, io};

use deadpool_postgres::{PoolError, TimeoutType};
use tokio_postgres::error::{DbError, SqlState};
use tollgate::{Error, ErrorKind};

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
        _ => {
            let (severity, message, code) = (refused.severity(), refused.message(), code.code());
            let text = format!("postgres says {severity} {code}: {message}");
            return Error::new(ErrorKind::Unavailable, text);
        }
    };
    Error::new(kind, format!("postgres {what} ({})", code.code()))
}

fn of_connection(error: &tokio_postgres::Error) -> Error {
    let mut cause = error.source();
    while let Some(source) = cause {
        if let Some(system) = source.downcast_ref::<io::Error>() {
            return of_system(system);
        }
        cause = source.source();
    }
    let text = error.to_string();
    match () {
        () if error.is_closed() => lost(),
        () if text.contains("TLS") => Error::new(
            ErrorKind::Tls,
            "TLS to postgres failed, or one side does not use it",
        ),
        () if text.contains("password") || text.contains("authentication") => Error::new(
            ErrorKind::Authentication,
            "postgres asks for another kind of password, or for one",
        ),
        () => Error::new(ErrorKind::Unavailable, "postgres cannot be used"),
    }
}

fn of_system(system: &io::Error) -> Error {
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
        io::ErrorKind::InvalidData => Error::new(ErrorKind::Tls, "TLS to postgres failed"),
        _ => lost(),
    }
}

/// Reports a connection that broke.
pub(crate) fn lost() -> Error {
    Error::new(
        ErrorKind::ConnectionLost,
        "the connection to postgres was lost",
    )
}
