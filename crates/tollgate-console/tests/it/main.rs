//! The endpoints of the console, over limiters of the process and over Redis.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod exceptions;
mod guard;
mod local;
mod store;

use axum::{Router, body::Body};
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE, request::Parts};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tollgate_console::Visitor;
use tower::ServiceExt as _;

/// A key that would run as a script, close a string, and end a line of a log.
const HOSTILE: &str = "\"><img src=x onerror=alert(1)><script>alert(2)</script>\n${7*7}";

/// Names everybody ann.
fn ann(_: &Parts) -> Option<Visitor> {
    Some(Visitor::author("ann"))
}

async fn send(router: &Router, request: Request<Body>) -> Response<Body> {
    router.clone().oneshot(request).await.unwrap()
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

fn post(path: &str, body: &Value) -> Request<Body> {
    Request::post(path)
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_string()))
        .unwrap()
}

async fn text(response: Response<Body>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Returns the answer, which is JSON that a browser takes for nothing else.
#[track_caller]
fn assert_json(response: &Response<Body>) {
    let fields = response.headers();
    assert_eq!(fields[CONTENT_TYPE], "application/json");
    assert_eq!(fields["x-content-type-options"], "nosniff");
    assert_eq!(fields["cache-control"], "no-store");
}

async fn answer(router: &Router, request: Request<Body>) -> Value {
    let response = send(router, request).await;
    let status = response.status();
    if status != StatusCode::OK {
        panic!("{status}: {}", text(response).await);
    }
    assert_json(&response);
    serde_json::from_str(&text(response).await).unwrap()
}

/// Asserts that a request is refused with a problem document that has these words.
async fn assert_refused(router: &Router, request: Request<Body>, status: u16, words: &str) {
    let what = format!("{} {}", request.method(), request.uri());
    let response = send(router, request).await;
    assert_eq!(response.status().as_u16(), status, "{what}");
    assert_eq!(
        response.headers()[CONTENT_TYPE],
        "application/problem+json",
        "{what}"
    );
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    let problem: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(problem["status"], status, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(words), "{words} is not in {detail}");
}

/// The endpoints, with a body where they take one.
fn endpoints() -> Vec<Request<Body>> {
    let key = json!({"key": "acme"});
    let share = json!({"limiter": "api", "share": "25%"});
    vec![
        get("/"),
        get("/api/status"),
        get("/api/keys"),
        post("/api/peek", &key),
        post("/api/reset", &key),
        post("/api/share", &share),
        post(
            "/api/exception",
            &exception("api", "acme", "factor 2", "2h"),
        ),
        post("/api/withdraw", &withdrawal("api", "acme")),
    ]
}

/// The body that grants an exception.
fn exception(limiter: &str, key: &str, change: &str, ends: &str) -> Value {
    json!({"limiter": limiter, "key": key, "change": change, "ends": ends, "reason": "a move"})
}

/// The body that withdraws an exception.
fn withdrawal(limiter: &str, key: &str) -> Value {
    json!({"limiter": limiter, "key": key})
}

fn is_action(request: &Request<Body>) -> bool {
    request.method() == Method::POST && !request.uri().path().ends_with("peek")
}
