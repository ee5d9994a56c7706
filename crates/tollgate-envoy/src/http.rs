//! Serves health and decisions over HTTP, for clients without gRPC.

// Decisions are made in `service/`, and messages are read and written in `json.rs`.

use std::time::Duration;

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};

use tokio::time::timeout;
use tollgate_tower::drain::DrainLayer;

use crate::{Health, RateLimitService, json, proto::ratelimit::rate_limit_response::Code};

/// The most bytes of a request, and the longest time in which they come.
const MAX_BYTES: usize = 1 << 20;
const READING: Duration = Duration::from_secs(10);

/// Returns the routes `GET /healthcheck` and `POST /json`.
///
/// `/healthcheck` answers with 200 and `OK`, or with 500 when the service is not [healthy](Health).
///
/// `/json` takes a `RateLimitRequest` in the JSON form of protobuf, and answers with a
/// `RateLimitResponse`. The status is 200 when the request passes, 429 when it does not, and 400
/// when it cannot be decided. A body of more than 1 MiB is answered with 413, and a body that takes
/// longer than ten seconds with 408. The rest of such a body is [read and thrown
/// away](tollgate_tower::drain), so that the client receives the answer.
pub fn router(service: RateLimitService, health: Health) -> Router {
    Router::new()
        .route("/json", post(decide).with_state(service))
        .route("/healthcheck", get(healthcheck).with_state(health))
        .layer(DrainLayer::new())
}

/// Returns the routes of connections beyond the bound of the port: `/healthcheck`, and 503 for all
/// else.
pub(crate) fn spare_router(health: Health) -> Router {
    Router::new()
        .route("/healthcheck", get(healthcheck).with_state(health))
        .fallback(|| async {
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "the port has its most connections\n",
            )
        })
}

async fn healthcheck(State(health): State<Health>) -> (StatusCode, &'static str) {
    if health.is_healthy() {
        (StatusCode::OK, "OK")
    } else {
        (StatusCode::INTERNAL_SERVER_ERROR, "")
    }
}

async fn decide(State(service): State<RateLimitService>, body: Body) -> Response {
    let body = match timeout(READING, to_bytes(body, MAX_BYTES)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            return (
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body has more than 1 MiB\n",
            )
                .into_response();
        }
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "the body took too long\n").into_response(),
    };
    let Some(request) = json::request(&body) else {
        return (
            StatusCode::BAD_REQUEST,
            "the body is not a RateLimitRequest\n",
        )
            .into_response();
    };
    let response = match service.decide(&request).await {
        Ok(response) => response,
        Err(status) => {
            return (StatusCode::BAD_REQUEST, format!("{}\n", status.message())).into_response();
        }
    };
    let status = match response.overall_code() {
        Code::Ok => StatusCode::OK,
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
    };
    match json::response(&response) {
        Some(text) => (status, [(CONTENT_TYPE, "application/json")], text).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
