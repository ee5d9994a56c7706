//! Answers that say why there is no other: problem documents.
//! See `guard.rs`, `input.rs` and `routes.rs` for which request gets one.

use std::fmt;

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header::CONTENT_TYPE};
use serde_json::json;
use tollgate::{Error, ErrorKind};
use tollgate_operator::{OperatorError, OperatorErrorKind};

/// A problem document (RFC 9457). It names a field and its value.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl fmt::Display) -> Self {
        Self {
            status,
            detail: detail.to_string(),
        }
    }

    /// Creates the answer to input that is refused.
    pub(crate) fn refused(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Creates the answer to input that names what is not there.
    pub(crate) fn not_found(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(crate) fn forbidden(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }
}

impl From<OperatorError> for Problem {
    fn from(error: OperatorError) -> Self {
        let status = match error.kind() {
            OperatorErrorKind::Refused => StatusCode::BAD_REQUEST,
            OperatorErrorKind::NotFound => StatusCode::NOT_FOUND,
            OperatorErrorKind::Full => StatusCode::CONFLICT,
            // The user in the URL of the operator is not the visitor.
            _ => StatusCode::BAD_GATEWAY,
        };
        Self::new(status, error)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Config | ErrorKind::CostExceedsBurst | ErrorKind::KeyLevels => {
                StatusCode::BAD_REQUEST
            }
            ErrorKind::Full => StatusCode::CONFLICT,
            ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::BAD_GATEWAY,
        };
        Self::new(status, error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or_default(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let json = [(CONTENT_TYPE, "application/problem+json")];
        (self.status, json, document.to_string()).into_response()
    }
}
