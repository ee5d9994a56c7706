//! The proof that a server did not run a call, without which no call is sent again.
//! What an error means for the caller is in `protocol/error.rs`; where the call goes next is
//! decided in `cluster/routing.rs` and `dispatch/worker.rs`.

use redis::{RedisError, ServerErrorKind};

use crate::{connect::Address, protocol};
use tollgate_core::Error;

/// Reports a failed call, and whether it is certain that the server did not execute it.
#[derive(Clone, Debug)]
pub(crate) enum CallError {
    /// The server certainly did not execute the call, so it may be sent again.
    NotExecuted(Box<NotExecuted>),
    /// The server may have executed the call. It is never sent again.
    Failed(Error),
}

/// Describes a call that a server did not execute.
#[derive(Clone, Debug)]
pub(crate) struct NotExecuted {
    pub(crate) reason: NotExecutedReason,
    /// The error for the caller when the call is not sent again.
    pub(crate) error: Error,
}

/// Names the reason why a server did not execute a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotExecutedReason {
    /// Another server has the slot now. The host may be empty: it is then the host of the server
    /// that answered.
    Moved(Address),
    /// The key is on another server already, or is new: the slot is being moved there.
    Ask(Address),
    /// Some keys of the call are being moved.
    TryAgain,
    /// The same, of a call over several checks. It is not known which of them have such keys.
    TryApart,
    /// The server could not be reached, or is not the server to ask.
    Unreachable,
}

impl CallError {
    /// Sorts the error of a server.
    pub(super) fn new(reply: &RedisError, error: Error) -> Self {
        match NotExecutedReason::of(reply) {
            Some(reason) => Self::NotExecuted(Box::new(NotExecuted { reason, error })),
            None => Self::Failed(error),
        }
    }

    /// Reports that no connection could be made.
    pub(crate) fn unreachable(error: Error) -> Self {
        Self::NotExecuted(Box::new(NotExecuted {
            reason: NotExecutedReason::Unreachable,
            error,
        }))
    }
}

impl CallError {
    /// Returns the error of one check, if this is the error of a call over several: only some of
    /// their keys may be elsewhere.
    pub(crate) fn of_one_among_several(&self) -> Self {
        let mut error = self.clone();
        if let Self::NotExecuted(not_executed) = &mut error
            && matches!(
                not_executed.reason,
                NotExecutedReason::Ask(_) | NotExecutedReason::TryAgain
            )
        {
            not_executed.reason = NotExecutedReason::TryApart;
        }
        error
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NotExecuted(not_executed) => not_executed.error,
            CallError::Failed(error) => error,
        }
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl NotExecutedReason {
    fn of(error: &RedisError) -> Option<Self> {
        let redis::ErrorKind::Server(kind) = error.kind() else {
            return None;
        };
        let address = || error.redirect_node().and_then(|(text, _)| address(text));
        match kind {
            ServerErrorKind::Moved => address().map(Self::Moved),
            ServerErrorKind::Ask => address().map(Self::Ask),
            ServerErrorKind::TryAgain => Some(Self::TryAgain),
            // The key of a script expired after the server had looked for it. The scripts read
            // their keys before they write, so nothing was executed.
            ServerErrorKind::ResponseError if protocol::is_refused_in_move(error) => {
                Some(Self::TryAgain)
            }
            ServerErrorKind::ReadOnly
            | ServerErrorKind::MasterDown
            | ServerErrorKind::BusyLoading => Some(Self::Unreachable),
            _ => None,
        }
    }
}

/// Reads host and port of a redirect. The host may be an IPv6 address, or missing.
fn address(text: &str) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_redirects_are_read() {
        let expected = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(address("127.0.0.1:6381"), expected("127.0.0.1", 6381));
        assert_eq!(address("fe80::1:2:6381"), expected("fe80::1:2", 6381));
        assert_eq!(address("[fe80::1]:6381"), expected("fe80::1", 6381));
        assert_eq!(
            address("limits.example:6381"),
            expected("limits.example", 6381)
        );
        assert_eq!(address(":6381"), expected("", 6381));
        for wrong in ["", "host", "host:", "host:port", "host:65536", "host:-1"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }

    /// Returns the error of a reply as the server writes it.
    fn reply(line: &str) -> RedisError {
        match redis::parse_redis_value(format!("-{line}\r\n").as_bytes()) {
            Ok(redis::Value::ServerError(error)) => error.into(),
            other => panic!("{line}: {other:?}"),
        }
    }

    fn is_not_executed(error: &RedisError) -> bool {
        matches!(
            CallError::new(error, Error::config("as it was")),
            CallError::NotExecuted(_)
        )
    }

    #[test]
    fn a_call_that_may_have_been_executed_is_not_reported_as_not_executed() {
        let lines = [
            "ERR any text",
            "OOM no room",
            "BUSY a script runs",
            "MISCONF no disk",
            "NOREPLICAS too few",
            "EXECABORT aborted",
            "CROSSSLOT two slots",
            "CLUSTERDOWN the cluster is down",
            "NOPERM no right",
            "WRONGTYPE a list",
        ];
        for line in lines {
            assert!(!is_not_executed(&reply(line)), "{line}");
        }
        for kind in [
            std::io::ErrorKind::UnexpectedEof,
            std::io::ErrorKind::TimedOut,
        ] {
            assert!(
                !is_not_executed(&RedisError::from(std::io::Error::from(kind))),
                "{kind}"
            );
        }
    }

    #[test]
    fn a_redirect_or_a_server_that_is_not_the_one_to_ask_did_not_execute_the_call() {
        let lines = [
            "MOVED 7 10.0.0.1:7000",
            "ASK 7 10.0.0.1:7000",
            "TRYAGAIN some keys are moving",
            "ERR Script attempted to access a non local key in a cluster node script: 1c95ea, on @user_script:158.",
            "ERR Unable to execute command 'mget' in script because undeclared keys were accessed during rehashing of the \
             slot script: 1a2f04, on @user_script:4.",
            "READONLY a replica",
            "MASTERDOWN no master",
            "LOADING the data",
        ];
        for line in lines {
            assert!(is_not_executed(&reply(line)), "{line}");
        }
    }

    #[test]
    fn a_redirect_of_a_call_over_several_checks_holds_for_none_of_them() {
        let reason = |line| match CallError::new(&reply(line), Error::config("as it was"))
            .of_one_among_several()
        {
            CallError::NotExecuted(not_executed) => not_executed.reason,
            CallError::Failed(_) => panic!("{line}"),
        };
        assert_eq!(reason("ASK 7 10.0.0.1:7000"), NotExecutedReason::TryApart);
        assert_eq!(
            reason("TRYAGAIN some keys are moving"),
            NotExecutedReason::TryApart
        );
        let moved = NotExecutedReason::Moved(("10.0.0.1".to_owned(), 7000));
        assert_eq!(reason("MOVED 7 10.0.0.1:7000"), moved);
        assert_eq!(reason("READONLY a replica"), NotExecutedReason::Unreachable);
    }
}
