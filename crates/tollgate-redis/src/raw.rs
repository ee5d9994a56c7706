//! Runs scripts of another crate on the server of a [`RedisStore`], with its connection, credentials,
//! Sentinels and health.
//!
//! `tollgate-regions` keeps what a region holds with it. Take it to keep another kind of state beside
//! that of the store, under the same prefix. Semantic versioning covers it.

// What is sent goes the way of all calls: `backend.rs` and `server/`. Nothing here decides a check.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::{
    RedisStore,
    backend::Servers,
    protocol::Script,
    server::{Call, CallError, Sent, Server},
};
use tollgate_core::{Error, ErrorKind, Key, Policy, store::Deadline};

/// A script over one key, whose argument and whose reply are numbers: little-endian doubles in one
/// string.
///
/// ```
/// use tollgate::redis::raw::NumberScript;
///
/// let script = NumberScript::new("return ARGV[1]");
/// assert!(script.text().starts_with("return"));
/// ```
#[derive(Debug)]
pub struct NumberScript(Script);

/// Names the key of a call: a policy, the key that it meters, and the end of the name on the server.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The metered key.
    pub key: &'a Key,
    /// The last part of the name. It differs from those of the store, which are `o` and numbers.
    pub suffix: &'a str,
}

tollgate_core::debug_fields! { Place<'a>: policy, suffix, .. }

impl NumberScript {
    /// Creates a script of this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(Script::new(text.into()))
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }
}

/// Runs a script, and returns the numbers of its reply.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] when the store is a cluster, [`ErrorKind::Protocol`] when the reply is
/// no string of doubles, and whatever becomes of a call.
pub async fn run(
    store: &RedisStore,
    script: &NumberScript,
    place: Place<'_>,
    numbers: &[f64],
    deadline: Option<Deadline>,
) -> Result<Vec<f64>, Error> {
    let server = server(store)?;
    let argument = packed(numbers);
    let write = |by_body| call(server, &script.0, by_body, place, &argument);
    unpacked(server.call(write, deadline).await?)
}

/// Runs a script that writes, and waits on the same connection until so many replicas have what it
/// wrote. Returns the numbers of its reply.
///
/// Calls that are made meanwhile wait behind it: take a store of its own for such calls.
///
/// # Errors
///
/// As [`run`], and [`ErrorKind::TooFewReplicas`] when fewer replicas have it within the time. What the
/// script wrote may be lost then, or not.
pub async fn run_replicated(
    store: &RedisStore,
    script: &NumberScript,
    place: Place<'_>,
    numbers: &[f64],
    (replicas, within): (u32, Duration),
) -> Result<Vec<f64>, Error> {
    let server = server(store)?;
    if let Some(refusal) = server.refusal(None) {
        return Err(refusal);
    }
    let argument = packed(numbers);
    let mut by_body = false;
    loop {
        let connection = server.connection().await?;
        let mut wait = redis::cmd("WAIT");
        wait.arg(replicas).arg(within.as_millis().max(1) as u64);
        let calls = [
            call(server, &script.0, by_body, place, &argument),
            wait.into(),
        ];
        let mut outcomes = server
            .send_all(&connection, calls.into_iter().collect())
            .await
            .into_iter();
        let reply = match outcomes.next() {
            Some(Sent::Answered(outcome)) => outcome?,
            Some(Sent::UnknownScript) if !by_body => {
                by_body = true;
                continue;
            }
            Some(Sent::Unsent(error)) => return Err(error),
            Some(Sent::UnknownScript) | None => return Err(malformed()),
        };
        return match outcomes.next().map(acknowledged) {
            Some(Ok(count)) if count >= i64::from(replicas) => unpacked(reply),
            Some(Ok(count)) => Err(Error::new(
                ErrorKind::TooFewReplicas,
                format!("{count} of {replicas} replicas of redis have the write"),
            )),
            Some(Err(error)) => Err(error),
            None => Err(malformed()),
        };
    }
}

/// Deletes the key of a place.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] when the store is a cluster, and whatever becomes of a call.
pub async fn remove(
    store: &RedisStore,
    place: Place<'_>,
    deadline: Option<Deadline>,
) -> Result<(), Error> {
    let server = server(store)?;
    let write = |_| {
        let mut command = redis::cmd("DEL");
        server.add_key_of(place.policy, place.key, place.suffix, &mut command);
        command.into()
    };
    server.call(write, deadline).await?;
    Ok(())
}

/// Returns the first part of every key of the store, which is also its label in metrics.
#[must_use]
pub fn prefix(store: &RedisStore) -> &str {
    &store.backend().prefix
}

/// Returns whether the store is on a cluster, whose calls have no place here.
#[must_use]
pub fn is_cluster(store: &RedisStore) -> bool {
    server(store).is_err()
}

fn server(store: &RedisStore) -> Result<&Server, Error> {
    match &store.backend().servers {
        Servers::One(sender) => Ok(&sender.server),
        Servers::Cluster(_) => Err(Error::new(
            ErrorKind::Unsupported,
            "a cluster runs no script of another crate",
        )),
    }
}

fn call(
    server: &Server,
    script: &Script,
    by_body: bool,
    place: Place<'_>,
    argument: &[u8],
) -> Call {
    Call::of(script, by_body, 1, |command: &mut Cmd| {
        server.add_key_of(place.policy, place.key, place.suffix, command);
        command.arg(argument);
    })
}

fn acknowledged(sent: Sent) -> Result<i64, Error> {
    match sent {
        Sent::Answered(Ok(Value::Int(count))) => Ok(count),
        Sent::Answered(Err(CallError::NotExecuted(not_executed))) => Err(not_executed.error),
        Sent::Answered(Err(CallError::Failed(error))) | Sent::Unsent(error) => Err(error),
        Sent::Answered(Ok(_)) | Sent::UnknownScript => Err(malformed()),
    }
}

fn packed(numbers: &[f64]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

fn unpacked(reply: Value) -> Result<Vec<f64>, Error> {
    let Value::BulkString(bytes) = reply else {
        return Err(malformed());
    };
    let (words, []) = bytes.as_chunks() else {
        return Err(malformed());
    };
    Ok(words.iter().map(|word| f64::from_le_bytes(*word)).collect())
}

fn malformed() -> Error {
    Error::new(ErrorKind::Protocol, "the reply of a script is malformed")
}
