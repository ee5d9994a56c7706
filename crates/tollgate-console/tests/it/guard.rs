//! Requests that the guard refuses: no visitor, no author, another site, another host.

use axum::{Router, body::Body};
use http::{HeaderName, Request, StatusCode, header::CONTENT_TYPE};
use serde_json::json;
use tollgate::{Enforcement, Limiter, Policy, Quota};
use tollgate_console::{Console, ConsoleBuilder, LocalLimiters, Visitor};

use super::{ann, assert_refused, endpoints, get, is_action, post, send};

fn builder() -> ConsoleBuilder {
    let api = Limiter::in_memory(Policy::fixed_window("api", Quota::per_hour(10)));
    Console::builder(LocalLimiters::new().with_share(&api, &Enforcement::share(100)))
}

async fn status(router: &Router, request: Request<Body>) -> StatusCode {
    send(router, request).await.status()
}

#[tokio::test]
async fn without_a_visitor_nothing_is_served() {
    let router = builder().build(|_| None).router();
    for request in endpoints() {
        assert_refused(&router, request, 403, "does not say who").await;
    }
    assert_refused(&router, get("/other"), 403, "does not say who").await;
}

#[tokio::test]
async fn a_reader_sees_all_and_changes_nothing() {
    let router = builder().build(|_| Some(Visitor::reader())).router();
    for request in endpoints() {
        if is_action(&request) {
            assert_refused(&router, request, 403, "an action needs an author").await;
        } else if request.uri() != "/api/keys" {
            assert_eq!(status(&router, request).await, StatusCode::OK);
        }
    }
}

#[tokio::test]
async fn a_header_field_names_the_author() {
    let field = HeaderName::from_static("x-forwarded-user");
    let router = builder().build(Visitor::by_header(field)).router();
    let reset = || post("/api/reset", &json!({"key": "acme"}));
    assert_refused(&router, reset(), 403, "an action needs an author").await;
    let mut named = reset();
    named
        .headers_mut()
        .insert("x-forwarded-user", "bob".parse().unwrap());
    assert_eq!(status(&router, named).await, StatusCode::OK);
    let mut empty = reset();
    empty
        .headers_mut()
        .insert("x-forwarded-user", " ".parse().unwrap());
    assert_refused(&router, empty, 403, "an action needs an author").await;
}

#[tokio::test]
async fn another_site_sends_nothing_in_the_name_of_a_person() {
    let router = builder().build(ann).router();
    let from = |fields: &[(&'static str, &str)]| {
        let mut request = post("/api/reset", &json!({"key": "acme"}));
        request
            .headers_mut()
            .insert("host", "tools.example:81".parse().unwrap());
        for (name, value) in fields {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        request
    };
    for fields in [
        &[][..],
        &[("origin", "http://tools.example:81")],
        &[
            ("origin", "http://tools.example:81"),
            ("sec-fetch-site", "same-origin"),
        ],
        // A proxy has another host.
        &[
            ("origin", "https://tools.example"),
            ("sec-fetch-site", "same-origin"),
        ],
    ] {
        assert_eq!(
            status(&router, from(fields)).await,
            StatusCode::OK,
            "{fields:?}"
        );
    }
    for fields in [
        &[("origin", "https://evil.example")][..],
        &[("origin", "http://tools.example")],
        &[("origin", "null")],
        &[("origin", "null"), ("sec-fetch-site", "same-origin")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[
            ("origin", "http://tools.example:81"),
            ("sec-fetch-site", "cross-site"),
        ],
    ] {
        assert_refused(&router, from(fields), 403, "must be that of the page").await;
    }
    // What a form can send.
    for kind in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let mut form = from(&[]);
        form.headers_mut()
            .insert(CONTENT_TYPE, kind.parse().unwrap());
        assert_refused(&router, form, 415, "content-type must be application/json").await;
    }
}

#[tokio::test]
async fn a_host_that_is_not_named_is_misdirected() {
    let router = builder()
        .hosts(["localhost", "127.0.0.1"])
        .build(ann)
        .router();
    let to = |host: &str| {
        let mut request = get("/api/status");
        request.headers_mut().insert("host", host.parse().unwrap());
        request
    };
    for host in ["localhost", "LOCALHOST:6071", "127.0.0.1:6071"] {
        assert_eq!(status(&router, to(host)).await, StatusCode::OK, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example:6071"] {
        assert_refused(&router, to(host), 421, "expected localhost, 127.0.0.1").await;
    }
    assert_refused(&router, get("/"), 421, "is not served at the host").await;
}
