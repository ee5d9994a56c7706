use std::{borrow::Cow, fmt::Write as _};

use http::{HeaderValue, Response, header};
use tollgate::Decision;

use super::{Completion, Reason, Rejection, Respond, accept::Form};
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
///
/// A client that does not [accept](https://www.rfc-editor.org/rfc/rfc9110#section-12.5.1) JSON but
/// text, a browser, gets a line of text; one that accepts neither, and a HEAD request, an empty
/// body.
///
/// The types are those that the draft asks IANA for; until they are registered
/// [`types_at`](Self::types_at) may point to pages of your own.
#[derive(Clone, Debug)]
pub struct Problem {
    /// As it stands inside a JSON string.
    types: Cow<'static, str>,
}

const TYPES: &str = "https://iana.org/assignments/http-problem-types";

impl Problem {
    /// The problem documents of the RateLimit draft.
    #[must_use]
    pub const fn new() -> Self {
        Self { types: Cow::Borrowed(TYPES) }
    }

    /// Problem documents with types of one's own: `base` stands before `#quota-exceeded`.
    #[must_use]
    pub fn types_at(base: impl Into<Cow<'static, str>>) -> Self {
        let base = base.into();
        let mut types = String::with_capacity(base.len());
        escape(&mut types, &base);
        Self { types: types.into() }
    }

    /// The text, and the media type that it is of.
    fn write(&self, rejection: &Rejection<'_>, form: Form) -> (String, Option<&'static str>) {
        match form {
            Form::Json => (self.document(rejection), Some("application/problem+json")),
            Form::Text => (text(rejection), Some("text/plain; charset=utf-8")),
            Form::Empty => (String::new(), None),
        }
    }

    fn document(&self, rejection: &Rejection<'_>) -> String {
        let mut json = String::with_capacity(256);
        if let Some(decision) = rejection.decision() {
            self.denial(&mut json, decision, rejection);
            return json;
        }
        // Writing to a string does not fail.
        let _ = write!(json, r#"{{"title":"{}","status":{}"#, title(rejection), rejection.status().as_u16());
        if let Some(detail) = detail(rejection) {
            json.push_str(r#","detail":""#);
            escape(&mut json, &detail);
            json.push('"');
        }
        json.push('}');
        json
    }

    /// Piece by piece: under attack it is most of what the service writes. A policy's name needs no escape.
    fn denial(&self, json: &mut String, decision: &Decision, rejection: &Rejection<'_>) {
        json.push_str(r#"{"type":""#);
        json.push_str(&self.types);
        json.push_str(r##"#quota-exceeded","title":"Quota exceeded","status":429"##);
        if let (Some(state), Some(seconds)) = (decision.binding(), rejection.retry_after_seconds()) {
            json.push_str(r#","detail":"Policy "#);
            json.push_str(state.policy().name());
            json.push_str(": try again in ");
            json.push_str(itoa::Buffer::new().format(seconds));
            json.push_str(r#" s.""#);
        }
        json.push_str(r#","violated-policies":["#);
        for (at, state) in decision.states().filter(|state| state.is_exceeded()).enumerate() {
            json.push_str(if at > 0 { r#",""# } else { "\"" });
            json.push_str(state.policy().name());
            json.push('"');
        }
        json.push_str("]}");
    }
}

impl Default for Problem {
    fn default() -> Self {
        Self::new()
    }
}

#[diagnostic::do_not_recommend]
impl<B: From<String>> Respond<B> for Problem {
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B> {
        let (text, media) = self.write(rejection, Form::of(rejection.request()));
        let mut response = Response::new(B::from(text));
        *response.status_mut() = rejection.status();
        if let Some(media) = media {
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        }
        response
    }

    fn complete(&self, rejection: &Rejection<'_>, completion: &Completion<'_>) -> Response<B> {
        let form = Form::of(rejection.request());
        completion.respond(rejection, form, || self.write(rejection, form), B::from)
    }
}

fn text(rejection: &Rejection<'_>) -> String {
    match detail(rejection) {
        Some(detail) => format!("{}. {detail}\n", title(rejection)),
        None => format!("{}.\n", title(rejection)),
    }
}

fn title(rejection: &Rejection<'_>) -> &'static str {
    match rejection.reason() {
        Reason::Denied(_) => "Quota exceeded",
        _ => rejection.status().canonical_reason().unwrap_or_default(),
    }
}

/// What the client may know.
fn detail(rejection: &Rejection<'_>) -> Option<String> {
    match rejection.reason() {
        Reason::Denied(decision) => {
            let (state, seconds) = (decision.binding()?, rejection.retry_after_seconds()?);
            Some(format!("Policy {}: try again in {seconds} s.", state.policy().name()))
        }
        Reason::CostNeverFits(error) => Some(error.to_string()),
        Reason::MissingKey(error) if error.kind() == KeyErrorKind::Missing => Some(error.to_string()),
        Reason::MissingKey(_) | Reason::Unavailable(_) => None,
    }
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
    fn text_is_escaped() {
        let mut json = String::new();
        escape(&mut json, "a \"b\" \\ \n ü");
        assert_eq!(json, r#"a \"b\" \\ \u000a ü"#);
    }
}
