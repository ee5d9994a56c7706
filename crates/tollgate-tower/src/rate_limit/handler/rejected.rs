use std::fmt;

use http::{Response, StatusCode};

/// Holds the response to a request that a [`HandlerLimiter`](super::HandlerLimiter) has rejected.
///
/// With the feature `axum` it is a response of a handler, so `?` returns it.
#[must_use = "the client must receive the response"]
pub struct Rejected<B> {
    // Boxed, so that the result of a check stays small.
    response: Box<Response<B>>,
}

impl<B> Rejected<B> {
    pub(super) fn new(response: Response<B>) -> Self {
        Self { response: Box::new(response) }
    }

    /// Returns the status: 429, 413, 500 or 503, or the one that the [responder](crate::Respond) has chosen.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Returns the response.
    #[must_use]
    pub fn into_response(self) -> Response<B> {
        *self.response
    }
}

impl<B> From<Rejected<B>> for Response<B> {
    fn from(rejected: Rejected<B>) -> Self {
        rejected.into_response()
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Rejected<axum::body::Body> {
    fn into_response(self) -> axum::response::Response {
        *self.response
    }
}

impl<B> fmt::Debug for Rejected<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("status", &self.status()).finish_non_exhaustive()
    }
}
