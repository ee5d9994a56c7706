//! Why a message was dropped or a socket closed, and the close frame that says so.
//! How the frame is sent is in `closing.rs`.

use std::{error, fmt};

use axum::extract::ws::{CloseFrame, close_code};
use tollgate_core::{Decision, Error, ErrorKind};

use crate::headers::round_up;

/// The reason why a message was dropped, or why the socket was closed.
///
/// The stream of a [`LimitedSocket`](super::LimitedSocket) returns it inside an [`axum::Error`].
/// `Display` is the reason in the close frame.
///
/// ```
/// use tollgate_tower::ws::Refusal;
///
/// fn wait_of(error: axum::Error) -> Option<std::time::Duration> {
///     error.into_inner().downcast_ref::<Refusal>()?.decision()?.retry_after()
/// }
/// # let _ = wait_of;
/// ```
#[derive(Debug)]
pub struct Refusal {
    result: Result<Decision, Error>,
}

impl Refusal {
    pub(super) fn new(result: Result<Decision, Error>) -> Self {
        Self { result }
    }

    /// Returns the decision that denied the message, if the limiter decided.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        self.result.as_ref().ok()
    }

    /// Returns the error of the check, if there is no decision.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.result.as_ref().err()
    }

    /// Returns the close frame for this refusal, with the text of `Display` as the reason.
    ///
    /// The [module](super) lists the codes.
    #[must_use]
    pub fn close_frame(&self) -> CloseFrame {
        let code = match self.error().map(Error::kind) {
            None => close_code::POLICY,
            Some(ErrorKind::CostExceedsBurst) => close_code::SIZE,
            Some(kind) if kind.is_config() => close_code::ERROR,
            Some(_) => close_code::AGAIN,
        };
        CloseFrame {
            code,
            reason: self.to_string().into(),
        }
    }

    /// Returns whether another message may still pass.
    pub(super) fn is_of_message(&self) -> bool {
        self.error()
            .is_none_or(|error| error.kind() == ErrorKind::CostExceedsBurst)
    }
}

impl fmt::Display for Refusal {
    /// Writes at most 123 bytes, as a close frame has room for: the name of a policy has at most 64.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decision = match &self.result {
            Ok(decision) => decision,
            // The error stays on the server: it may describe the store.
            Err(error) => {
                return f.write_str(match error.kind() {
                    ErrorKind::CostExceedsBurst => "the message never fits the rate limit",
                    kind if kind.is_config() => "the rate limit is misconfigured",
                    _ => "the rate limit cannot be checked",
                });
            }
        };
        f.write_str("rate limit exceeded")?;
        let strictest = decision.strictest();
        if let Some(state) = strictest.filter(|state| !state.policy().is_hidden()) {
            write!(f, ": {}", state.policy().name())?;
        }
        match decision.retry_after() {
            Some(wait) => write!(f, ", retry after {} s", round_up(wait).max(1)),
            None => Ok(()),
        }
    }
}

impl error::Error for Refusal {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.error().map(|error| error as _)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Limiter, MemoryStore, Policy, Quota, store::Clock};

    use super::*;

    #[tokio::test]
    async fn a_close_frame_names_the_policy_unless_it_is_hidden() {
        let flood = || Policy::window_from_first_hit("flood", Quota::per_minute(1));
        for (policy, expected) in [
            (flood(), "rate limit exceeded: flood, retry after 60 s"),
            (flood().hidden(), "rate limit exceeded, retry after 60 s"),
        ] {
            let store = MemoryStore::builder().clock(Clock::manual(0)).build();
            let limiter = Limiter::new(store, policy);
            let _ = limiter.check("all").await;
            let refusal = Refusal::new(limiter.check("all").await);
            assert_eq!(refusal.to_string(), expected);
        }
    }
}
