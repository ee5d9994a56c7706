use std::fmt;

use redis::{RedisError, ServerErrorKind};

use super::Node;
use crate::{Error, reason::Reason};

/// A call that a server did not run, so that it may be sent again. It is the source of the error
/// that whoever sent the call is told.
#[derive(Clone, Debug)]
pub(super) struct Unrun {
    pub(super) why: Why,
    /// What is told when it is not sent again.
    pub(super) error: Error,
}

/// Why a call was not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Another server has the slot now. It may have left out its own host: that of the one that
    /// told.
    Moved(Node),
    /// The key lies at another server already, or is new: the slot is on its way there.
    Ask(Node),
    /// Some keys of the call are on their way.
    Again,
    /// The server could not be reached, or is not the one to ask.
    Unfit,
}

impl Why {
    fn of(error: &RedisError) -> Option<Self> {
        let redis::ErrorKind::Server(kind) = error.kind() else { return None };
        let node = || error.redirect_node().and_then(|(addr, _)| address(addr));
        match kind {
            ServerErrorKind::Moved => node().map(Self::Moved),
            ServerErrorKind::Ask => node().map(Self::Ask),
            ServerErrorKind::TryAgain => Some(Self::Again),
            ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading => Some(Self::Unfit),
            _ => None,
        }
    }
}

impl Unrun {
    /// The error to tell the sender: that nothing ran, where the server says so.
    pub(super) fn mark(said: &RedisError, error: Error) -> Error {
        match Why::of(said) {
            Some(Why::Unfit) => Self::wrap(Why::Unfit, error),
            Some(why) => Self::wrap(why, Error::new(Reason::Unavailable, "a slot of the redis cluster is being moved")),
            None => error,
        }
    }

    /// No connection could be made.
    pub(super) fn unfit(error: Error) -> Error {
        Self::wrap(Why::Unfit, error)
    }

    fn wrap(why: Why, error: Error) -> Error {
        Error::with_source(error.cause(), "the call did not run", Self { why, error })
    }

    pub(super) fn of(error: &Error) -> Option<&Self> {
        std::error::Error::source(error)?.downcast_ref()
    }
}

impl fmt::Display for Unrun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Unrun {}

/// Host and port of a redirect. The host may be an IPv6 address, or missing.
fn address(text: &str) -> Option<Node> {
    let (host, port) = text.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_redirects_are_understood() {
        let node = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(address("127.0.0.1:6381"), node("127.0.0.1", 6381));
        assert_eq!(address("fe80::1:2:6381"), node("fe80::1:2", 6381));
        assert_eq!(address("[fe80::1]:6381"), node("fe80::1", 6381));
        assert_eq!(address("limits.example:6381"), node("limits.example", 6381));
        assert_eq!(address(":6381"), node("", 6381));
        for wrong in ["", "host", "host:", "host:port", "host:65536", "host:-1"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_ran_or_may_have_run_is_not_marked() {
        let marked = |code: &str, detail: &str| {
            let said = redis::make_extension_error(code.to_owned(), Some(detail.to_owned()));
            let error = Unrun::mark(&said, Error::unavailable("as it was"));
            Unrun::of(&error).map(|unrun| unrun.why.clone())
        };
        assert_eq!(marked("OOM", "no room"), None);
        assert_eq!(marked("BUSY", "a script runs"), None);
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
        assert!(Unrun::of(&Unrun::mark(&broken, Error::unavailable("as it was"))).is_none());
        let late = RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        assert!(Unrun::of(&Unrun::mark(&late, Error::unavailable("as it was"))).is_none());
    }
}
