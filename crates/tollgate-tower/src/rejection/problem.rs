//! The default answer: a problem document, as JSON or as text, by what the client accepts.
//! Other answers are in `respond.rs`, reasons and waits in `reason.rs`.

use std::{borrow::Cow, fmt::Write as _};

use http::{HeaderMap, HeaderValue, Method, Response, header, request::Parts};
use tollgate_core::Policy;

use super::{
    reason::{Reason, Rejection},
    respond::Respond,
};
use crate::headers::number_value;

/// Responds with a problem document (RFC 9457, `application/problem+json`).
///
/// A denial has the type `quota-exceeded` and lists the `violated-policies`, as
/// draft-ietf-httpapi-ratelimit-headers describes. A request without a permit has the same type. The
/// denial of a [lockout](tollgate_core::Policy::lockout) has the type `abnormal-usage-detected` of the
/// same draft, and an overload has `temporary-reduced-capacity`. The document never contains the
/// key, and it never names a [hidden](tollgate_core::Policy::hidden) policy.
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
/// The body follows the `Accept` header ([RFC
/// 9110](https://www.rfc-editor.org/rfc/rfc9110#section-12.5.1)). A client that prefers text, such
/// as a browser, receives one line of text. A client that accepts neither JSON nor text receives an
/// empty body. A HEAD request receives the headers of a GET request, `Content-Length` included, and
/// no body ([RFC 9110](https://www.rfc-editor.org/rfc/rfc9110#section-8.6)).
///
/// The draft asks IANA to register the types. Until then, [`types_at`](Self::types_at) can point to
/// pages of your own.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The members of a denial's document that are the same for every denial.
    denial: Cow<'static, str>,
    /// The same for a denial by a lockout.
    lockout: Cow<'static, str>,
    /// The same for an overload.
    overload: Cow<'static, str>,
}

const DENIAL: &str = r##"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429"##;

const LOCKOUT: &str = r##"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal usage detected","status":429"##;

const OVERLOAD: &str = r##"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary reduced capacity","status":503"##;

const JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

impl Problem {
    /// Creates a responder with the types that the draft describes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            denial: Cow::Borrowed(DENIAL),
            lockout: Cow::Borrowed(LOCKOUT),
            overload: Cow::Borrowed(OVERLOAD),
        }
    }

    /// Creates a responder with types of your own.
    ///
    /// The type of a denial is `base` followed by `#quota-exceeded`, and by
    /// `#abnormal-usage-detected` where a lockout denies. The type of an overload is `base` followed
    /// by `#temporary-reduced-capacity`.
    #[must_use]
    pub fn types_at(base: impl Into<Cow<'static, str>>) -> Self {
        let base = base.into();
        let members = |rest: &str| {
            let mut members = r#"{"type":""#.to_owned();
            escape(&mut members, &base);
            (members + rest).into()
        };
        Self {
            denial: members(r##"#quota-exceeded","title":"Quota exceeded","status":429"##),
            lockout: members(
                r##"#abnormal-usage-detected","title":"Abnormal usage detected","status":429"##,
            ),
            overload: members(
                r##"#temporary-reduced-capacity","title":"Temporary reduced capacity","status":503"##,
            ),
        }
    }

    fn document(&self, rejection: &Rejection<'_>) -> String {
        if let Reason::Denied(_) = rejection.reason() {
            return self.denial(rejection);
        }
        if let Reason::Blocked = rejection.reason() {
            return format!("{}}}", self.denial);
        }
        if let Reason::Overloaded(_) = rejection.reason() {
            let detail = detail(rejection).unwrap_or_default();
            return format!(r#"{},"detail":"{detail}"}}"#, self.overload);
        }
        if let Reason::NoPermit(denied) = rejection.reason() {
            // The name of a limit needs no escapes.
            let (detail, name) = (detail(rejection).unwrap_or_default(), denied.name());
            return format!(
                r#"{},"detail":"{detail}","violated-policies":["{name}"]}}"#,
                self.denial
            );
        }
        let mut json = String::with_capacity(256);
        // Writing to a `String` never fails.
        let _ = write!(
            json,
            r#"{{"title":"{}","status":{}"#,
            title(rejection),
            rejection.status().as_u16()
        );
        if let Some(detail) = detail(rejection) {
            json.push_str(r#","detail":""#);
            escape(&mut json, &detail);
            json.push('"');
        }
        json.push('}');
        json
    }

    /// Writes the document of a denial without formatting machinery: under attack, most responses
    /// are denials. The name of a policy needs no escapes.
    fn denial(&self, rejection: &Rejection<'_>) -> String {
        const DETAIL: &str = r#","detail":""#;
        const VIOLATED: &str = r#","violated-policies":["#;
        let members = match rejection.is_locked_out() {
            true => &self.lockout,
            false => &self.denial,
        };
        let mut digits = itoa::Buffer::new();
        let seconds = rejection.retry_after_seconds();
        let seconds = seconds.map(|seconds| digits.format(seconds));
        let detail = match (rejection.awaited_policy(), seconds) {
            (_, None) => [""; 6],
            (Some(name), Some(seconds)) => [
                DETAIL,
                "Policy ",
                name,
                ": try again in ",
                seconds,
                r#" s.""#,
            ],
            (None, Some(seconds)) => [DETAIL, "Try again in ", seconds, r#" s.""#, "", ""],
        };
        let violated = || rejection.violated().map(Policy::name);
        // A policy that is hidden stands in no list, and does not leave an empty one.
        let has_list = violated().next().is_some() || !rejection.is_hidden();
        let list = match has_list {
            // The comma in front of each name but the first takes the byte of the bracket.
            true => {
                VIOLATED.len()
                    + violated()
                        .map(|name| name.len() + r#""","#.len())
                        .sum::<usize>()
            }
            false => 0,
        };
        let detail_len: usize = detail.iter().map(|part| part.len()).sum();
        let mut json = String::with_capacity(members.len() + detail_len + list + 1);
        json.push_str(members);
        json.extend(detail);
        if has_list {
            json.push_str(VIOLATED);
            for (at, name) in violated().enumerate() {
                json.push_str(if at > 0 { r#",""# } else { "\"" });
                json.push_str(name);
                json.push('"');
            }
            json.push(']');
        }
        json.push('}');
        json
    }
}

impl Default for Problem {
    fn default() -> Self {
        Self::new()
    }
}

#[diagnostic::do_not_recommend]
impl<B: From<String>> Respond<B> for Problem {
    #[inline]
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B> {
        let (body, media_type) = match BodyFormat::of(rejection.request()) {
            BodyFormat::Json => (self.document(rejection), Some(JSON)),
            BodyFormat::Text => (text(rejection), Some(TEXT)),
            BodyFormat::Empty => (String::new(), None),
        };
        let is_head = rejection.request().method == Method::HEAD;
        let len = body.len();
        let mut response = Response::new(B::from(if is_head { String::new() } else { body }));
        *response.status_mut() = rejection.status();
        if is_head {
            response
                .headers_mut()
                .insert(header::CONTENT_LENGTH, number_value(len as u64));
        }
        if let Some(media_type) = media_type {
            response
                .headers_mut()
                .insert(header::CONTENT_TYPE, media_type);
        }
        response
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
        Reason::Denied(_) if rejection.is_locked_out() => "Abnormal usage detected",
        Reason::Denied(_) | Reason::Blocked | Reason::NoPermit(_) => "Quota exceeded",
        Reason::Overloaded(_) => "Temporary reduced capacity",
        _ => rejection.status().canonical_reason().unwrap_or_default(),
    }
}

/// Returns the part of the reason that the client may know.
fn detail(rejection: &Rejection<'_>) -> Option<String> {
    match rejection.reason() {
        Reason::Denied(_) => {
            let seconds = rejection.retry_after_seconds()?;
            Some(match rejection.awaited_policy() {
                Some(name) => format!("Policy {name}: try again in {seconds} s."),
                None => format!("Try again in {seconds} s."),
            })
        }
        Reason::NoPermit(denied) => {
            let (name, limit, seconds) = (
                denied.name(),
                denied.limit(),
                rejection.retry_after_seconds()?,
            );
            Some(format!(
                "Policy {name}: {limit} requests at the same time; try again in about {seconds} s."
            ))
        }
        Reason::Overloaded(_) => Some(format!(
            "The service is overloaded: try again in {} s.",
            rejection.retry_after_seconds()?
        )),
        Reason::CostNeverFits(error) => Some(error.to_string()),
        Reason::MissingKey(error) => Some(error.to_string()),
        Reason::Blocked | Reason::Forbidden | Reason::Misconfigured(_) | Reason::Unavailable(_) => {
            None
        }
    }
}

/// Appends text as the content of a JSON string.
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

/// Selects a body that the client can read.
enum BodyFormat {
    Json,
    Text,
    Empty,
}

impl BodyFormat {
    /// Returns the format by the method and by `Accept` (RFC 9110, section 12.5.1). JSON wins a tie
    /// with text. A HEAD request has the format of a GET request.
    fn of(request: &Parts) -> Self {
        if request.method == Method::CONNECT {
            return Self::Empty;
        }
        if !request.headers.contains_key(header::ACCEPT) {
            return Self::Json;
        }
        let json = quality(
            &request.headers,
            &["application/problem+json", "application/json"],
            "application/*",
        );
        let text = quality(&request.headers, &["text/plain", "text/html"], "text/*");
        match (json, text) {
            (0, 0) => Self::Empty,
            (json, text) if json >= text => Self::Json,
            _ => Self::Text,
        }
    }
}

/// Returns the quality of a family of media types in thousandths, by the most specific range that
/// matches.
fn quality(headers: &HeaderMap, types: &[&str], range: &str) -> u16 {
    let mut best = (0, 0);
    for line in headers.get_all(header::ACCEPT) {
        for member in line.to_str().unwrap_or_default().split(',') {
            let mut parts = member.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let specific = match media {
                _ if types.iter().any(|name| media.eq_ignore_ascii_case(name)) => 3,
                _ if media.eq_ignore_ascii_case(range) => 2,
                "*/*" => 1,
                _ => continue,
            };
            let weight = parts.find_map(|parameter| {
                let (name, value) = parameter.split_once('=')?;
                name.trim()
                    .eq_ignore_ascii_case("q")
                    .then(|| value.trim().parse::<f32>().unwrap_or(0.0))
            });
            let weight = (weight.unwrap_or(1.0).clamp(0.0, 1.0) * 1000.0) as u16;
            best = best.max((specific, weight));
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Request;
    use tollgate_core::{Limiter, MemoryStore, PolicySet, Quota, store::Clock};

    use super::*;

    #[tokio::test]
    async fn the_document_of_a_denial_fills_its_buffer() {
        let (request, ()) = Request::new(()).into_parts();
        let quota = Quota::per_day(1);
        let burst = Policy::token_bucket("burst", quota);
        let day = Policy::fixed_window("day", quota);
        for (policies, expected) in [
            (
                PolicySet::from([burst.clone()]),
                r#" s.","violated-policies":["burst"]}"#,
            ),
            (
                PolicySet::from([burst.clone(), day.clone()]),
                r#" s.","violated-policies":["burst","day"]}"#,
            ),
            (
                PolicySet::from([burst.clone(), day.hidden()]),
                r#" s.","violated-policies":["burst"]}"#,
            ),
            (
                PolicySet::from([burst.hidden()]),
                r#""detail":"Try again in 86400 s."}"#,
            ),
        ] {
            let store = MemoryStore::builder().clock(Clock::manual(0)).build();
            let limiter = Limiter::new(store, policies);
            let _ = limiter.check("all").await;
            let decision = limiter.check("all").await.unwrap();
            let states: Vec<_> = decision.states().collect();
            let rejection =
                Rejection::new(Reason::Denied(&decision), &states, Duration::ZERO, &request);
            let json = Problem::new().document(&rejection);
            assert!(json.ends_with(expected), "{json}");
            assert_eq!(json.len(), json.capacity());
        }
    }

    #[test]
    fn text_is_escaped_for_json() {
        let mut json = String::new();
        escape(&mut json, "a \"b\" \\ \n \0\x1f\x20\x7f ü");
        assert_eq!(json, "a \\\"b\\\" \\\\ \\u000a \\u0000\\u001f\x20\x7f ü");
        assert_eq!(
            serde_json::from_str::<String>(&format!("\"{json}\"")).unwrap(),
            "a \"b\" \\ \n \0\x1f\x20\x7f ü"
        );
    }
}
