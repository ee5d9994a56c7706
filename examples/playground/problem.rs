//! Refuses input: each refused field is named with its value.

use axum::{
    body::Body,
    extract::{FromRequest, Request},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::StreamExt;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use serde_path_to_error::Segment;

/// The largest body that is read, in bytes.
const MAX_BODY: usize = 16 * 1024;

/// The largest body that is read to its end and dropped, in bytes.
const MAX_DROPPED: usize = 64 * 1024 * 1024;

/// The most characters of a refused value that are repeated in an error.
const MAX_VALUE: usize = 80;

/// Names a refused field, its value, and the reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FieldError {
    pub(crate) field: String,
    pub(crate) value: String,
    pub(crate) message: String,
}

/// Answers a request that was refused, with a problem document (RFC 9457) that lists the fields.
#[derive(Debug)]
pub(crate) struct Refused {
    status: StatusCode,
    errors: Vec<FieldError>,
}

impl FieldError {
    #[allow(
        clippy::needless_pass_by_value,
        reason = "callers pass numbers and texts"
    )]
    pub(crate) fn new(
        field: impl Into<String>,
        value: impl ToString,
        message: impl Into<String>,
    ) -> Self {
        let value = value.to_string();
        let short: String = value.chars().take(MAX_VALUE).collect();
        let value = if short.len() < value.len() {
            format!("{short}…")
        } else {
            short
        };
        Self {
            field: field.into(),
            value,
            message: message.into(),
        }
    }

    /// Refuses a number outside of `range`, which is written as `1 to 500`.
    pub(crate) fn unless_within(
        field: &str,
        value: u64,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<(), Self> {
        if range.contains(&value) {
            return Ok(());
        }
        let message = format!(
            "{field} must be {} to {}, got {value}",
            range.start(),
            range.end()
        );
        Err(Self::new(field, value, message))
    }
}

impl Refused {
    #[allow(
        clippy::needless_pass_by_value,
        reason = "callers pass numbers and texts"
    )]
    pub(crate) fn new(
        status: StatusCode,
        field: &str,
        value: impl ToString,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            errors: vec![FieldError::new(field, value, message)],
        }
    }

    pub(crate) fn fields(errors: Vec<FieldError>) -> Self {
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            errors,
        }
    }
}

impl From<FieldError> for Refused {
    fn from(error: FieldError) -> Self {
        Self::fields(vec![error])
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let detail: Vec<_> = self
            .errors
            .iter()
            .map(|error| error.message.as_str())
            .collect();
        let document = json!({
            "title": "The request was refused",
            "status": self.status.as_u16(),
            "detail": detail.join("; "),
            "errors": self.errors,
        });
        (
            self.status,
            [(header::CONTENT_TYPE, "application/problem+json")],
            document.to_string(),
        )
            .into_response()
    }
}

/// Extracts a JSON body of at most 16 KiB, and names the field that does not fit the type.
pub(crate) struct Input<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Input<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Refused> {
        let (parts, body) = request.into_parts();
        require_json(&parts.headers)?;
        let body = read(body).await.map_err(|length| {
            let message = format!("body must have at most {MAX_BODY} bytes, got {length}");
            Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "body", length, message)
        })?;
        parse(&body).map(Self)
    }
}

/// Reads a body of at most 16 KiB. Returns the length of a larger one, as far as it was read.
///
/// A larger body is read and dropped, because a client that is still sending may not receive the
/// response.
async fn read(body: Body) -> Result<Vec<u8>, usize> {
    let (mut data, mut length) = (Vec::new(), 0);
    let mut frames = body.into_data_stream();
    while let Some(Ok(frame)) = frames.next().await {
        length += frame.len();
        if length <= MAX_BODY {
            data.extend_from_slice(&frame);
        }
        if length > MAX_DROPPED {
            break;
        }
    }
    if length > MAX_BODY {
        Err(length)
    } else {
        Ok(data)
    }
}

/// Requires the content type of JSON. Another site cannot send it from a browser without being
/// asked first.
fn require_json(headers: &HeaderMap) -> Result<(), Refused> {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("none");
    if content_type
        .split(';')
        .next()
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
    {
        return Ok(());
    }
    let message = format!("content-type must be application/json, got {content_type}");
    Err(Refused::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "content-type",
        content_type,
        message,
    ))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        let message = format!("body must be JSON: {error}");
        Refused::new(
            StatusCode::BAD_REQUEST,
            "body",
            String::from_utf8_lossy(body),
            message,
        )
    })?;
    serde_path_to_error::deserialize(&value).map_err(|error| {
        let field = error.path().to_string();
        let refused = error
            .path()
            .iter()
            .try_fold(&value, |value, segment| match segment {
                Segment::Seq { index } => value.get(index),
                Segment::Map { key } => value.get(key),
                Segment::Enum { .. } | Segment::Unknown => Some(value),
            });
        let refused = refused.map_or_else(String::new, Value::to_string);
        FieldError::new(&field, refused, format!("{field}: {}", error.inner())).into()
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "the fields are only parsed")]
    struct Outer {
        list: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "the fields are only parsed")]
    struct Inner {
        amount: u64,
    }

    fn error(body: &str) -> FieldError {
        let mut refused = parse::<Outer>(body.as_bytes()).expect_err(body);
        refused.errors.remove(0)
    }

    #[test]
    fn a_value_of_another_type_is_named_with_its_path() {
        let negative = error(r#"{"list": [{"amount": 1}, {"amount": -1}]}"#);
        assert_eq!(
            (negative.field.as_str(), negative.value.as_str()),
            ("list[1].amount", "-1")
        );
        assert!(
            negative.message.contains("invalid value: integer `-1`"),
            "{}",
            negative.message
        );
        let text = error(r#"{"list": [{"amount": "ten"}]}"#);
        assert_eq!(
            (text.field.as_str(), text.value.as_str()),
            ("list[0].amount", r#""ten""#)
        );
        assert!(
            error(r#"{"list": [], "more": 1}"#)
                .message
                .contains("unknown field `more`")
        );
        assert_eq!(error("{").field, "body");
    }

    #[test]
    fn a_long_value_is_shortened() {
        assert_eq!(
            FieldError::new("key", "ä".repeat(1_000), "")
                .value
                .chars()
                .count(),
            MAX_VALUE + 1
        );
    }
}
