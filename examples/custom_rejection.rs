//! Replaces the body of rejections and the header format, and tries out a limit in shadow mode.
//!
//! ```text
//! cargo run --example custom_rejection
//! for i in 1 2 3; do curl -i http://127.0.0.1:3000/; done
//! for i in 1 2 3; do curl -i http://127.0.0.1:3000/trial; done
//! ```
//!
//! The third request to `/` within a minute gets 429 with the JSON body of this service. The
//! middleware adds `Retry-After` and the `X-RateLimit` fields. `/trial` has the same limit in
//! shadow mode: the third request passes, and its handler reads from the decision that it would
//! have been denied.
//!
//! Features: the defaults of `tollgate` and `tollgate-tower`.

use axum::{
    Json, Router,
    response::{IntoResponse, Response},
    routing::get,
};
use tollgate::{Limiter, Policy, Quota};
use tollgate_examples::{Failure, listen, serve, store};
use tollgate_tower::{
    HeaderFormat, RateLimitLayer, Rejection, ResetFormat, key::PeerIp, rejection::Reason,
    respond_fn,
};

const HOME: Policy = Policy::token_bucket("home", Quota::per_minute(2));
const TRIAL: Policy = Policy::token_bucket("trial", Quota::per_minute(2));

fn refuse(rejection: &Rejection<'_>) -> Response {
    let message = match rejection.reason() {
        Reason::Denied(_) => "slow down, please",
        Reason::Unavailable(_) => "the service is not available now",
        _ => "this request cannot be served",
    };
    let body = serde_json::json!({ "error": { "message": message, "retry_in": rejection.retry_after_seconds() } });
    (rejection.status(), Json(body)).into_response()
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = store()?;
    let home = RateLimitLayer::builder(Limiter::new(store.clone(), HOME), PeerIp)
        .header_format(HeaderFormat::Legacy {
            reset: ResetFormat::Seconds,
        })
        .respond_with(respond_fn(refuse))
        .build();
    let trial = RateLimitLayer::builder(Limiter::new(store, TRIAL), PeerIp)
        .shadow(true)
        .expose_decisions(true)
        .build();
    let report = |decisions: Option<tollgate_tower::Decisions>| async move {
        match decisions.is_some_and(|it| it.iter().any(tollgate::Decision::is_denied)) {
            true => "this would have been denied\n",
            false => "this would have passed\n",
        }
    };
    let router = Router::new()
        .route("/", get(|| async { "hello\n" }).layer(home))
        .route("/trial", get(report).layer(trial));

    let listener = listen().await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!(
        "Listening on {url}: GET / is limited to 2 per minute, GET /trial has the same limit in shadow mode."
    );
    println!("Try:");
    println!("  for i in 1 2 3; do curl -i {url}/; curl -i {url}/trial; done");
    serve(listener, router).await
}
