//! What the outcome of a request means for the limit: a success, an overload, or nothing.
//! What follows from many signals is decided in `window.rs` and by the algorithm.

use http::{HeaderMap, StatusCode};

use tollgate_tower::Outcome;

/// Says what a finished request means for the limit of an
/// [`AdaptiveLimiter`](crate::AdaptiveLimiter).
///
/// [`AdaptiveBuilder::signal`](crate::AdaptiveBuilder::signal) chooses it for the outcome of a
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Signal {
    /// The latency of the request counts.
    Success,
    /// The service, or something that it needs, was overloaded. The limit falls when this happens
    /// to more than 5 % of the requests in a window.
    Overload,
    /// The request does not count, for example because the service did no work for it.
    Ignore,
}

/// The status codes of gRPC for an overload: `DEADLINE_EXCEEDED` and `UNAVAILABLE`.
const GRPC_OVERLOADS: [&[u8]; 2] = [b"4", b"14"];

const GRPC_STATUS: &str = "grpc-status";

impl Signal {
    /// Returns the signal that a layer uses by default.
    ///
    /// | outcome | signal |
    /// |---|---|
    /// | 408, 503 or 504, or the gRPC status `DEADLINE_EXCEEDED` or `UNAVAILABLE` | [`Overload`](Self::Overload) |
    /// | the service returned an error, such as a timeout | [`Overload`](Self::Overload) |
    /// | 429, or any other gRPC status in the headers | [`Ignore`](Self::Ignore), because a limit inside answered early |
    /// | all other 5xx | [`Ignore`](Self::Ignore), because a mistake in a handler is no overload |
    /// | all other responses | [`Success`](Self::Success) |
    /// | the request panicked | [`Ignore`](Self::Ignore) |
    /// | the request was cancelled | [`Success`](Self::Success) |
    ///
    /// A layer does not ask for the signal of a request that panics or is cancelled. The time of
    /// such a request counts as a latency if it is longer than the mean latency of the last window.
    /// So a timeout in an outer layer, which cancels the request, counts as a slow request.
    ///
    /// ```
    /// use http::{Response, StatusCode};
    /// use tollgate_overload::Signal;
    /// use tollgate_tower::Outcome;
    ///
    /// let (mut head, ()) = Response::new(()).into_parts();
    /// assert_eq!(Signal::of(&Outcome::Response(&head)), Signal::Success);
    /// head.status = StatusCode::SERVICE_UNAVAILABLE;
    /// assert_eq!(Signal::of(&Outcome::Response(&head)), Signal::Overload);
    /// head.status = StatusCode::TOO_MANY_REQUESTS;
    /// assert_eq!(Signal::of(&Outcome::Response(&head)), Signal::Ignore);
    /// ```
    #[must_use]
    pub fn of(outcome: &Outcome<'_>) -> Self {
        match outcome {
            Outcome::Response(head) => Self::of_head(head.status, &head.headers),
            Outcome::Failed => Self::Overload,
            // The limiter compares the time of a cancelled request with the last window.
            Outcome::Cancelled => Self::Success,
            // A panic, and what is not known here.
            _ => Self::Ignore,
        }
    }

    pub(crate) fn of_head(status: StatusCode, headers: &HeaderMap) -> Self {
        match status {
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Self::Overload,
            StatusCode::TOO_MANY_REQUESTS => Self::Ignore,
            _ if status.is_server_error() => Self::Ignore,
            _ => Self::of_grpc_status(headers),
        }
    }

    /// Returns the signal of headers or trailers that may hold a gRPC status.
    pub(crate) fn of_grpc_status(headers: &HeaderMap) -> Self {
        match headers.get(GRPC_STATUS).map(|status| status.as_bytes()) {
            Some(status) if GRPC_OVERLOADS.contains(&status) => Self::Overload,
            Some(b"0") | None => Self::Success,
            Some(_) => Self::Ignore,
        }
    }
}
