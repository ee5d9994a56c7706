use std::fmt::Write as _;

use http::{HeaderValue, Method, Response, StatusCode, header};

use super::{Reason, Rejection, Respond};
use crate::key::KeyErrorKind;

/// Answers with a problem document (RFC 9457, `application/problem+json`).
///
/// A denial is of the type `quota-exceeded` and lists the `violated-policies`, as the RateLimit
/// draft has it. The caller's key does not appear in it.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{RateLimitLayer, key::Global};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::window_from_first_hit("hourly", Quota::per_hour(1)));
/// let service = RateLimitLayer::new(limiter, Global)
///     .layer(service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) }));
/// let _ = service.clone().oneshot(Request::new(())).await;
/// let denied = service.oneshot(Request::new(())).await.unwrap();
/// assert_eq!(
///     denied.into_body(),
///     r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"Policy hourly: try again in 3600 s.","violated-policies":["hourly"]}"#,
/// );
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Problem {}

const TYPES: &str = "https://iana.org/assignments/http-problem-types";

impl Problem {
    /// The problem documents of the RateLimit draft.
    #[must_use]
    pub const fn new() -> Self {
        Self {}
    }

    fn document(&self, rejection: &Rejection<'_>) -> String {
        let status = rejection.status();
        let mut json = String::with_capacity(256);
        match rejection.reason() {
            Reason::Denied(decision) => {
                // Writing to a string does not fail.
                let _ = write!(
                    json,
                    r#"{{"type":"{TYPES}#quota-exceeded","title":"Quota exceeded","status":{},"detail":""#,
                    status.as_u16()
                );
                if let (Some(state), Some(seconds)) = (decision.binding(), rejection.retry_after_seconds()) {
                    let _ = write!(json, "Policy {}: try again in {seconds} s.", state.policy().name());
                }
                json.push_str(r#"","violated-policies":["#);
                for (at, state) in decision.states().filter(|state| state.is_exceeded()).enumerate() {
                    // A policy's name needs no escape.
                    let comma = if at > 0 { "," } else { "" };
                    let _ = write!(json, r#"{comma}"{}""#, state.policy().name());
                }
                json.push_str("]}");
            }
            Reason::CostNeverFits(error) => about_blank(&mut json, status, Some(&error.to_string())),
            Reason::MissingKey(error) => {
                let detail = (error.kind() == KeyErrorKind::Missing).then(|| error.to_string());
                about_blank(&mut json, status, detail.as_deref());
            }
            Reason::Unavailable(_) => about_blank(&mut json, status, None),
        }
        json
    }
}

impl<B: From<String>> Respond<B> for Problem {
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B> {
        let has_body = rejection.request().method != Method::HEAD;
        let body = if has_body { self.document(rejection) } else { String::new() };
        let mut response = Response::new(B::from(body));
        *response.status_mut() = rejection.status();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}

/// A problem that says no more than its status.
fn about_blank(json: &mut String, status: StatusCode, detail: Option<&str>) {
    let title = status.canonical_reason().unwrap_or_default();
    let _ = write!(json, r#"{{"title":"{title}","status":{}"#, status.as_u16());
    if let Some(detail) = detail {
        json.push_str(r#","detail":""#);
        escape(json, detail);
        json.push('"');
    }
    json.push('}');
}

/// Text as the inside of a JSON string.
fn escape(json: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            '\0'..='\x1f' => {
                let _ = write!(json, "\\u{:04x}", u32::from(character));
            }
            _ => json.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_is_escaped() {
        let mut json = String::new();
        about_blank(&mut json, StatusCode::BAD_REQUEST, Some("a \"b\" \\ \n ü"));
        assert_eq!(json, r#"{"title":"Bad Request","status":400,"detail":"a \"b\" \\ \u000a ü"}"#);
    }
}
