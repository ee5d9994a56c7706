//! The reasons why a request was not decided.
//! Denials are no failures: they are answered in `answer.rs`.

use tollgate::{Error, ErrorKind};
use tollgate_rules::RequestError;
use tonic::{Code, Status};

/// The reason why a request was not decided.
#[derive(Debug)]
pub(super) enum CallFailure {
    /// The request is wrong, or there are no rules.
    Request(Status),
    /// The store did not decide.
    Store(Error),
}

impl From<Status> for CallFailure {
    fn from(status: Status) -> Self {
        Self::Request(status)
    }
}

impl From<RequestError> for CallFailure {
    fn from(error: RequestError) -> Self {
        // Envoy's service has these words, and operators search logs for them.
        let message = match error {
            RequestError::NoDescriptors => {
                "rate limit descriptor list must not be empty".to_owned()
            }
            _ => error.to_string(),
        };
        Self::Request(Status::invalid_argument(message))
    }
}

impl From<Error> for CallFailure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// Returns the gRPC status of a failure. The texts of the store contain no key and no password.
pub(super) fn status(failure: &CallFailure) -> Status {
    match failure {
        CallFailure::Request(status) => status.clone(),
        CallFailure::Store(error) if error.kind() == ErrorKind::Config => {
            Status::new(Code::Internal, error.to_string())
        }
        CallFailure::Store(error) => Status::new(Code::Unavailable, error.to_string()),
    }
}
