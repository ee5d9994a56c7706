//! The guard of every route: the host, the visitor, the origin, and the fields of a response.
//! The application authenticates; here it is only asked.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN, REFERRER_POLICY,
        X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
    },
    request::Parts,
};

use crate::{problem::Problem, state::ConsoleState};

/// The fields of every response.
const FIELDS: [(HeaderName, &str); 5] = [
    (CACHE_CONTROL, "no-store"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Lets a request pass, or answers it.
pub(crate) async fn guard(
    State(console): State<Arc<ConsoleState>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let mut response = match admit(&console, &mut parts) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(problem) => problem.into_response(),
    };
    let fields = response.headers_mut();
    for (name, value) in FIELDS {
        fields.insert(name, HeaderValue::from_static(value));
    }
    let policy = console.page.policy().clone();
    fields.insert(CONTENT_SECURITY_POLICY, policy);
    response
}

fn admit(console: &ConsoleState, parts: &mut Parts) -> Result<(), Problem> {
    let hosts = &console.hosts;
    let host = host(parts);
    if !hosts.is_empty() && !host.is_some_and(|host| hosts.contains(&bare(host))) {
        return Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            format!(
                "the page is not served at the host {:?}, expected {}",
                host.unwrap_or_default(),
                hosts.join(", ")
            ),
        ));
    }
    let Some(visitor) = (console.visitor)(parts) else {
        return Err(Problem::forbidden(
            "the application does not say who sends the request",
        ));
    };
    if parts.method == Method::POST {
        same_origin(&parts.headers, host)?;
        is_json(&parts.headers)?;
    }
    parts.extensions.insert(visitor);
    Ok(())
}

/// Refuses a request that another site makes in somebody's browser. A program that is no browser
/// sends neither field.
fn same_origin(headers: &HeaderMap, host: Option<&str>) -> Result<(), Problem> {
    let refused = |field: &HeaderName, value: &HeaderValue| {
        Err(Problem::forbidden(format!(
            "{field} must be that of the page, got {value:?}"
        )))
    };
    if let Some(site) = headers.get(FETCH_SITE)
        && site != "same-origin"
    {
        return refused(&FETCH_SITE, site);
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return Ok(());
    };
    let of_origin = origin.to_str().ok().and_then(|text| text.split_once("://"));
    match of_origin {
        Some((_, of_origin)) if Some(of_origin) == host => Ok(()),
        // Behind a proxy that changes the host, the browser's own word is enough.
        Some(_) if headers.contains_key(FETCH_SITE) => Ok(()),
        _ => refused(&ORIGIN, origin),
    }
}

/// Refuses what a form of another site could send.
fn is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(CONTENT_TYPE);
    let text = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        format!("content-type must be application/json, got {text:?}"),
    ))
}

/// Returns the host that the request names, with its port.
fn host(parts: &Parts) -> Option<&str> {
    let of_field = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    of_field.or_else(|| parts.uri.authority().map(|authority| authority.as_str()))
}

/// Returns a host without its port.
fn bare(host: &str) -> String {
    let end = match host.rfind(':') {
        Some(at) if !host[at..].contains(']') => at,
        _ => host.len(),
    };
    host[..end].to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_compared_without_its_port() {
        for (host, expected) in [
            ("localhost:80", "localhost"),
            ("LOCALHOST", "localhost"),
            ("127.0.0.1:1", "127.0.0.1"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(bare(host), expected);
        }
    }
}
